"""Reports of finished and running runs: one HTML page, RESULTS.md, and learning curves as figures."""
