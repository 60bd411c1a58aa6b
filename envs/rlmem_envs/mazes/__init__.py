"""T-mazes of Memory-RL."""
