"""Supervised learning with memories: algorithms that answer questions about what they read, and do not act."""
