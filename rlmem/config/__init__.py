"""From a command line to a checked run. Nothing is imported here: `catalog` stays free of Hydra and of torch."""
