"""Speed, measured as ratios to named peers within one process. A benchmark is a subclass of `skeleton.Bench`.

Those that are no part of the package are in `benchmarks/`, where `run.py` lists all.
"""
