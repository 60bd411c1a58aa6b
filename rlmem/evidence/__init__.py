"""`rlmem reproduce`: the tables and figures of papers as data, run and judged."""
