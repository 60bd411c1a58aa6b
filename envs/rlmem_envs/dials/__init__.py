"""Tasks with dials for how much is to be held, for how long, and how often it is rewritten."""
