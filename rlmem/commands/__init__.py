"""The commands of the command line: a file each, with a function `run` whose arguments are flags; see `toolkit`."""
