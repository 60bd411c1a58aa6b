"""Variants of models as published code computes them, where they fill a file of their own."""
