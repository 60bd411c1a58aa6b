"""Speed, measured as ratios to named peers within one process. A benchmark is a subclass of `skeleton.Bench`."""
