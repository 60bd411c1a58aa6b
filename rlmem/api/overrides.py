"""From arguments of Python to what is typed on the command line."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlmem.config.overrides import assignment
from rlmem.system.command import find_modules_in


def as_typed(values: Mapping[str, Any]) -> list[str]:
    """`key=value` of each argument: numbers, texts, None, lists and dictionaries of these."""
    return [assignment(key, value) for key, value in values.items()]


def find_own_modules() -> None:
    """Let a `_target_` name a module in the current folder, as on the command line; a script may lie elsewhere."""
    find_modules_in(os.getcwd())


def absolute(path: str | Path) -> Path:
    """The path as it is meant now: another current folder later changes nothing."""
    return Path(path).expanduser().absolute()


def in_group(group: str, option: str, values: Mapping[str, Any]) -> list[str]:
    """An option of a group, and keys of that group."""
    find_own_modules()
    return [f"{group}={option}", *as_typed({f"{group}.{key}": value for key, value in values.items()})]
