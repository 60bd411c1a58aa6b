"""Words of regular languages, read one symbol at a time."""
