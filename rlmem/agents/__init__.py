"""Agents: encoders, memories and heads. All parameters live here."""
