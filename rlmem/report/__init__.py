"""Reports of what was run: one HTML page, RESULTS.md, and learning curves as figures."""
