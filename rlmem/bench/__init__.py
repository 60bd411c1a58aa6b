"""Speed, measured as ratios to named peers within one process. A benchmark is a subclass of `skeleton.Bench`.

Benchmarks outside the package are in `benchmarks/`; `benchmarks/run.py` lists them all.
"""
