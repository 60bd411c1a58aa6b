"""Losses and returns as pure functions, in the notation of their papers."""
