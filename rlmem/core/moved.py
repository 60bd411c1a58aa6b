"""Names that modules had: stored runs and programs of others still use them."""

from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

MOVED = {
    "rlmem.algos.supervised.classify": "rlmem.algos.supervised.predict",
    "rlmem.algos.supervised.dataset": "rlmem.algos.supervised.recording",
    "rlmem.algos.supervised.dataset.file": "rlmem.algos.supervised.recording",
    "rlmem.algos.supervised.state_model": "rlmem.algos.supervised.predict",
    "rlmem.algos.supervised.dataset.play": "rlmem.algos.supervised.recording",
    "rlmem.memory.rwkv7": "rlmem.memory.linear_attention",
    "rlmem.scan.walk": "rlmem.scan.linear",
    "rlmem.memory.lprnn": "rlmem.memory.filters",
    "rlmem.memory.indrnn": "rlmem.memory.diagonal",
    "rlmem.memory.rtu": "rlmem.memory.diagonal",
    "rlmem.memory.lmu": "rlmem.memory.filters",
    "rlmem.memory.brc": "rlmem.memory.gru",
    "rlmem.memory.rglru": "rlmem.memory.mingru",
    "rlmem.memory.positions": "rlmem.memory.window",
    "rlmem.conformance.compare": "rlmem.conformance.probe",
    "rlmem.scan.triton_matrix": "rlmem.scan.triton_scan",
    "rlmem.scan.monoid": "rlmem.scan.linear",
    "rlmem.acting.cluster": "rlmem.acting.actors",
    "rlmem.acting.play": "rlmem.acting.film",
    "rlmem.acting.returned": "rlmem.acting.observed",
    "rlmem.acting.returned.alike": "rlmem.acting.autoreset.alike",
    "rlmem.acting.returned.arrays": "rlmem.acting.autoreset.arrays",
    "rlmem.acting.returned.numeric_leaves": "rlmem.acting.autoreset.numeric_leaves",
    "rlmem.acting.returned.put_infos": "rlmem.acting.autoreset.put_infos",
    "rlmem.acting.returned.put_rows": "rlmem.acting.autoreset.put_rows",
    "rlmem.agents.base": "rlmem.agents.actor_critic",
    "rlmem.agents.head_settings": "rlmem.agents.layers",
    "rlmem.analysis.declared": "rlmem.analysis",
    "rlmem.analysis.readout": "rlmem.analysis.features",
    "rlmem.agents.image": "rlmem.agents.leaves",
    "rlmem.agents.plain": "rlmem.agents.encoder",
    "rlmem.agents.running": "rlmem.agents.layers",
    "rlmem.algos.pqn": "rlmem.algos.dqn",
    "rlmem.api.exporting": "rlmem.share",
    "rlmem.api.hub": "rlmem.share",
    "rlmem.api.overrides": "rlmem.api.make",
    "rlmem.api.trained": "rlmem.run.trained",
    "rlmem.batching.tape": "rlmem.batching.base",
    "rlmem.bench": "rlmem.evidence.bench",
    "rlmem.core.failures": "rlmem.core.errors",
    "rlmem.core.launch": "rlmem.core.parallel",
    "rlmem.core.modules": "rlmem.core.hardware",
    "rlmem.core.signals": "rlmem.core.command",
    "rlmem.core.strictjson": "rlmem.core.received",
    "rlmem.evidence.measure": "rlmem.evidence.runner",
    "rlmem.evidence.page.html": "rlmem.evidence.page.documents",
    "rlmem.evidence.references": "rlmem.evidence.metrics",
    "rlmem.config.editors": "rlmem.config.validate",
    "rlmem.errors": "rlmem.core.errors",
    "rlmem.jobs.axes": "rlmem.jobs.spec",
    "rlmem.jobs.jobs": "rlmem.jobs.manifest",
    "rlmem.jobs.launchers": "rlmem.jobs.multirun",
    "rlmem.jobs.mps": "rlmem.jobs.pool",
    "rlmem.jobs.population.history": "rlmem.jobs.population.spec",
    "rlmem.loggers": "rlmem.record.loggers",
    "rlmem.loops.callbacks": "rlmem.loops.parts",
    "rlmem.loops.evaluation": "rlmem.loops.parts",
    "rlmem.losses.ppo": "rlmem.losses.on_policy",
    "rlmem.losses.q_learning": "rlmem.losses.off_policy",
    "rlmem.losses.reduce": "rlmem.losses.on_policy",
    "rlmem.losses.returns": "rlmem.losses.on_policy",
    "rlmem.losses.sac": "rlmem.losses.off_policy",
    "rlmem.memory.elman": "rlmem.memory.gru",
    "rlmem.memory.fwp": "rlmem.memory.linear_attention",
    "rlmem.memory.gated_deltanet": "rlmem.memory.linear_attention",
    "rlmem.memory.heads": "rlmem.memory.blocks",
    "rlmem.memory.lstm": "rlmem.memory.gru",
    "rlmem.memory.minlstm": "rlmem.memory.mingru",
    "rlmem.memory.mlstm": "rlmem.memory.xlstm",
    "rlmem.memory.s5": "rlmem.memory.lru",
    "rlmem.memory.slstm": "rlmem.memory.xlstm",
    "rlmem.memory.torch_cell": "rlmem.memory.gru",
    "rlmem.nets": "rlmem.agents",
    "rlmem.nets.distributions": "rlmem.agents.heads",
    "rlmem.nets.few_inputs": "rlmem.agents.encoder",
    "rlmem.nets.off_policy_heads": "rlmem.agents.heads",
    "rlmem.parallel": "rlmem.core.parallel",
    "rlmem.parallel.start": "rlmem.core.parallel",
    "rlmem.population": "rlmem.jobs.population",
    "rlmem.record.formats": "rlmem.record.provenance",
    "rlmem.record.upload": "rlmem.record.loggers",
    "rlmem.replay": "rlmem.batching",
    "rlmem.report": "rlmem.evidence.page",
    "rlmem.report.profile": "rlmem.evidence.profile",
    "rlmem.reproduction": "rlmem.evidence",
    "rlmem.scan.convolution": "rlmem.memory.blocks",
    "rlmem.run.environments": "rlmem.run.nodes",
    "rlmem.seeding": "rlmem.core.seeding",
    "rlmem.share.contents": "rlmem.share.card",
    "rlmem.share.step": "rlmem.share.portable",
    "rlmem.spaces": "rlmem.core.spaces",
    "rlmem.stats": "rlmem.evidence.statistics",
    "rlmem.stats.aggregate": "rlmem.evidence.statistics",
    "rlmem.stats.benchmarks": "rlmem.evidence.metrics",
    "rlmem.stats.compare": "rlmem.evidence.statistics",
    "rlmem.stats.figures": "rlmem.record.figures",
    "rlmem.stats.memory_bias": "rlmem.evidence.twins.memory_bias",
    "rlmem.stats.memory_improvability": "rlmem.evidence.twins.memory_improvability",
    "rlmem.stats.observability_gap": "rlmem.evidence.twins.observability_gap",
    "rlmem.stats.resampling": "rlmem.evidence.statistics",
    "rlmem.stats.tables": "rlmem.record.tables",
    "rlmem.stats.twins": "rlmem.evidence.twins",
    "rlmem.stats.welch": "rlmem.evidence.statistics",
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
