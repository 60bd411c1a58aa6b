"""Environments of rlmem: Gymnasium vector environments, usable without the rest of the package."""
