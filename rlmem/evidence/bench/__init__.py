"""Speed, measured as ratios to named peers within one process. A benchmark is a subclass of `skeleton.Bench`.

A benchmark that belongs to one experiment lies next to its file: `experiments/ffm/figure3.py` is
`rlmem.evidence.bench.figure3`. Other benchmarks are in `benchmarks/`; `benchmarks/run.py` lists them all.
"""

from rlmem.config.paths import experiment_modules

__path__ += experiment_modules()
