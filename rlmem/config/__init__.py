"""From a command line to a checked run: composition, validation, provenance, catalogue.

Nothing is imported here, so that `rlmem.config.catalog` stays free of Hydra and of torch.
"""
