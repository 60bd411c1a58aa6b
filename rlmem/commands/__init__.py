"""The verbs of the command line: one module each, with `parser()` and `run(arguments)`, imported when it is used."""
