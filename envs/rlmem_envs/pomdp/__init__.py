"""Partially observable decision processes given as tables: files in Cassandra's format, and exact beliefs."""
