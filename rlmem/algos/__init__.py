"""Algorithms: from a batch to a better agent."""
