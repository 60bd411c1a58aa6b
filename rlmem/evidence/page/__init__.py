"""Pages, figures and tables of many runs."""
