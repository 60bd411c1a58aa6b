"""Speed, measured as ratios to named peers within one process."""
