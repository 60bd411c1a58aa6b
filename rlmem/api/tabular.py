"""Rows as the tables that a notebook shows."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def tabular(rows: Iterable[Mapping[str, Any]]) -> Any:
    """A pandas.DataFrame if pandas is installed, else a list of dicts."""
    return import_module("pandas").DataFrame(rows) if find_spec("pandas") else list(rows)
