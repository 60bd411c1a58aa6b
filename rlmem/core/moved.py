"""Names that modules had: stored runs and programs of others still use them."""

import json
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("moved.json").read_text(encoding="utf-8"))
MOVED: dict[str, str] = TABLES["moved"]
"""Old dotted name of a package, module or class -> the present one."""
HASHED: dict[str, str] = TABLES["hashed"]
"""Present dotted name of a class -> its name in hashes of configurations, which a move must not change."""
ADDED: list[str] = TABLES["added"]
"""Keys with their defaults, in JSON, that configurations did not have at first, and their hashes leave out."""


def current(name: str) -> str:
    """The present dotted name of a module or class that may have been named by an old one (`MOVED`)."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if new := MOVED.get(".".join(parts[:length])):
            return current(".".join([new, *parts[length:]]))
    return name


class OldModules(MetaPathFinder, Loader):
    """Imports modules by old names. Such a module has the attributes of the present one, and those in MOVED."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if current(fullname) != fullname else None

    def exec_module(self, module: ModuleType) -> None:
        present = import_module(current(module.__name__))

        def attribute(name: str) -> Any:
            moved = MOVED.get(f"{module.__name__}.{name}")
            return resolve_name(moved) if moved else getattr(present, name)

        vars(module)["__getattr__"] = attribute
        vars(module)["__all__"] = [name for name in dir(present) if not name.startswith("_")]
        vars(module)["__dir__"] = partial(dir, present)
