"""From arguments of Python to what is typed on the command line, and from rows to the tables of a notebook."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlmem.config.overrides import assignment


def as_typed(values: Mapping[str, Any]) -> list[str]:
    """`key=value` of each argument: numbers, texts, None, lists and dictionaries of these."""
    return [assignment(key, value) for key, value in values.items()]


def absolute(path: str | Path) -> Path:
    """The path as it is meant now: another current folder later changes nothing."""
    return Path(path).expanduser().absolute()


def in_group(group: str, option: str, values: Mapping[str, Any]) -> list[str]:
    """An option of a group, and keys of that group."""
    return [f"{group}={option}", *as_typed({f"{group}.{key}": value for key, value in values.items()})]


def tabular(rows: Iterable[Mapping[str, Any]]) -> Any:
    """A pandas.DataFrame if pandas is installed, else a list of dicts."""
    return import_module("pandas").DataFrame(rows) if find_spec("pandas") else list(rows)
