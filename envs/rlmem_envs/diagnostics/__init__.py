"""Small tasks whose answer is known, for tests."""
