"""rlmem as a library. `rlmem/__init__.py` says what it offers."""
