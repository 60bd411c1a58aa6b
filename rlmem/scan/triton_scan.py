"""The `triton` engine."""


def missing() -> str | None:
    """Why this engine cannot run here."""
    return "not there"
