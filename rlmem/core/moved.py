"""Names that modules had: stored runs and programs of others still use them."""

from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "rlmem.api.exporting": "rlmem.share",
    "rlmem.api.exporting.step": "rlmem.share.portable",
    "rlmem.api.exporting.write": "rlmem.share.export",
    "rlmem.api.hub": "rlmem.share.hub",
    "rlmem.bench": "rlmem.evidence.bench",
    "rlmem.errors": "rlmem.core.errors",
    "rlmem.loggers": "rlmem.record.loggers",
    "rlmem.nets": "rlmem.agents",
    "rlmem.nets.off_policy_heads": "rlmem.agents.heads",
    "rlmem.nets.plain": "rlmem.agents.encoder",
    "rlmem.parallel": "rlmem.core.parallel",
    "rlmem.parallel.start": "rlmem.core.launch",
    "rlmem.population": "rlmem.jobs.population",
    "rlmem.replay": "rlmem.batching",
    "rlmem.report.profile": "rlmem.evidence.profile",
    "rlmem.seeding": "rlmem.core.seeding",
    "rlmem.spaces": "rlmem.core.spaces",
    "rlmem.stats": "rlmem.evidence.statistics",
    "rlmem.stats.figures": "rlmem.record.figures",
    "rlmem.stats.tables": "rlmem.record.tables",
    "rlmem.supervised": "rlmem.algos.supervised",
    "rlmem.sweep": "rlmem.jobs",
    "rlmem.system": "rlmem.core",
    "rlmem.types": "rlmem.core.types",
}
"""Old dotted name of a package, module or class -> the present one."""


def current(name: str) -> str:
    """The present dotted name of a module or class that may have been named by an old one (`MOVED`)."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if new := MOVED.get(".".join(parts[:length])):
            return ".".join([new, *parts[length:]])
    return name


class OldModules(MetaPathFinder, Loader):
    """Imports modules by old names. Such a module has the attributes of the present one."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if current(fullname) != fullname else None

    def exec_module(self, module: ModuleType) -> None:
        present = import_module(current(module.__name__))
        vars(module)["__getattr__"] = partial(getattr, present)
        vars(module)["__dir__"] = partial(dir, present)
