"""Compositions of shipped options, made once for each choice of them.

Hydra takes a quarter of a second to compose a configuration, and most tests compose one. The same options of `conf/`
give the same composition, so that later ones are copies of the first. What a test finds in other folders, or tells
Hydra, is composed as ever.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import wraps
from typing import Any

from rlmem.config import compose
from rlmem.config.groups import Groups
from rlmem.config.paths import conf_dir, own_dirs

SHIPPED = conf_dir()


def install() -> None:
    """Remember what is composed in this process from now on."""
    read = Groups.read
    compose._compose = _remembered(compose._compose)  # type: ignore[assignment]
    Groups.read = staticmethod(_remembered(read))  # type: ignore[method-assign,assignment]


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(loader, lines, ...)`, which gives copies of what it gave for the same lines."""
    found: dict[tuple[str, ...], Any] = {}

    @wraps(function)
    def remembering(loader: Any, lines: list[str], *more: Any) -> Any:
        key = tuple(lines)
        if conf_dir() != SHIPPED or own_dirs() or any(line.lstrip("+~").startswith("hydra") for line in key):
            return function(loader, lines, *more)
        if key not in found:
            found[key] = function(loader, lines, *more)
        return deepcopy(found[key])

    return remembering
