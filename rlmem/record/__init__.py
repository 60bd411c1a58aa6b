"""What a run leaves behind: its directory, record, checkpoints, progress, and the loggers beside them."""
