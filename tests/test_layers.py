"""Which part of the source may import what: the layers of docs/design.md, read from the syntax tree.

Every import statement counts, also inside functions and under TYPE_CHECKING. Names built at run time
(importlib, a `_target_`) are not seen.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SPACES = "gymnasium.Space gymnasium.spaces"
DATA = "rlmem.types rlmem.products rlmem.scan rlmem.spaces rlmem.errors rlmem.state_dicts"
LEARNING = f"{DATA} rlmem.batching rlmem.memory rlmem.nets rlmem.losses rlmem.agents rlmem.algos rlmem.parallel"
RECORD = "rlmem.__version__ rlmem.checkpoint rlmem.loggers rlmem.progress rlmem.recorder rlmem.rundir rlmem.strictjson"
WHOLE = "rlmem.config rlmem.assemble rlmem.saved rlmem.summary rlmem.make_loop rlmem.room rlmem.sizes rlmem.supervised"
ACTING = f"{LEARNING} rlmem.seeding rlmem.rollout rlmem.guard rlmem.patience rlmem.slots"
RUNNING = f"{ACTING} {RECORD} rlmem.evaluate rlmem.replay rlmem.actors rlmem.loops"

LAYERS = {
    # the environments, which know nothing of rlmem
    "rlmem_envs": "numpy gymnasium annotated_types rlmem_envs lazy:popgym lazy:pybullet lazy:PIL lazy:ale_py",
    # the bottom: data and mathematics
    "rlmem": "",
    "rlmem.errors": "",
    "rlmem.strictjson": "",
    "rlmem.patience": "",
    "rlmem.types": "torch numpy annotated_types",
    "rlmem.state_dicts": "torch",
    "rlmem.products": "torch",
    "rlmem.scan": "torch numpy rlmem.errors rlmem.types rlmem.products rlmem.scan lazy:triton",
    "rlmem.scan.triton_kernels": "triton",
    "rlmem.seeding": "torch numpy",
    "rlmem.spaces": f"torch numpy {SPACES}",
    # networks and losses, which do not know each other
    "rlmem.memory": f"torch numpy {DATA} rlmem.memory",
    "rlmem.nets": f"torch numpy {SPACES} {DATA} rlmem.nets",
    "rlmem.losses": f"torch numpy {DATA} rlmem.losses rlmem.parallel",
    "rlmem.parallel": "torch rlmem.errors rlmem.signals rlmem.parallel lazy:rlmem.train",
    "rlmem.batching": "torch numpy rlmem.types rlmem.errors rlmem.batching",
    "rlmem.replay": "torch numpy rlmem.types rlmem.errors rlmem.batching rlmem.replay",
    "rlmem.conformance": f"torch numpy {DATA} rlmem.memory rlmem.conformance",
    "rlmem.stats": "numpy rlmem.stats",
    "rlmem.tables": "rlmem.stats lazy:rich",
    # agents and algorithms
    "rlmem.agents": f"torch {SPACES} {DATA} rlmem.agents rlmem.batching rlmem.memory rlmem.nets",
    "rlmem.algos": f"torch numpy {SPACES} {LEARNING}",
    # acting, recording, and the loop around both: the Gymnasium interface, never a concrete environment
    "rlmem.guard": "numpy gymnasium rlmem.errors rlmem.faults",
    "rlmem.slots": "torch numpy rlmem.batching rlmem.types",
    "rlmem.rollout": f"torch numpy gymnasium {ACTING}",
    "rlmem.evaluate": f"torch numpy gymnasium {ACTING}",
    "rlmem.actors": f"torch gymnasium {ACTING} rlmem.signals rlmem.actors lazy:ray",
    "rlmem.loops": f"torch numpy gymnasium {RUNNING} rlmem.signals",
    "rlmem.checkpoint": "torch",
    "rlmem.recorder": "rlmem.errors rlmem.strictjson",
    "rlmem.rundir": f"yaml filelock {DATA} rlmem.__version__ rlmem.machine rlmem.trust",
    "rlmem.trust": "rlmem.errors",
    "rlmem.progress": "rich",
    "rlmem.faults": "torch rlmem.errors",
    "rlmem.sizes": "torch",
    "rlmem.signals": "",
    "rlmem.loggers": f"{DATA} rlmem.rundir lazy:tensorboard lazy:wandb",
    "rlmem.pictures": "numpy gymnasium rlmem.errors lazy:PIL",
    "rlmem.play": "numpy gymnasium rlmem.errors rlmem.pictures",
    # the configuration, and what turns it into a run; only here: hydra, omegaconf, pydantic
    "rlmem.config": "hydra omegaconf pydantic pydantic_core annotated_types yaml rlmem.errors rlmem.strictjson "
    "rlmem.config lazy:rlmem.train lazy:rlmem.signals lazy:rlmem.output",
    "rlmem.room": f"torch numpy gymnasium {LEARNING} rlmem.config rlmem.sizes",
    "rlmem.assemble": f"torch gymnasium {RUNNING} rlmem.config rlmem.machine rlmem.room rlmem.supervised",
    "rlmem.summary": f"torch {RUNNING} rlmem.config rlmem.assemble rlmem.room rlmem.sizes rlmem.supervised",
    "rlmem.make_loop": f"gymnasium {RUNNING} {WHOLE}",
    "rlmem.machine": "lazy:torch",
    "rlmem.mirrors": "rlmem.config rlmem.errors rlmem.loggers rlmem.recorder rlmem.rundir",
    "rlmem.saved": "rlmem.checkpoint rlmem.recorder rlmem.rundir rlmem.trust rlmem.errors rlmem.faults rlmem.config",
    "rlmem.train": f"torch numpy gymnasium {RUNNING} {WHOLE} rlmem.faults rlmem.mirrors rlmem.signals",
    "rlmem.evaluate_run": f"{RUNNING} {WHOLE} rlmem.pictures",
    "rlmem.sweep": "hydra.core yaml rich rlmem.errors rlmem.config rlmem.machine rlmem.rundir rlmem.trust "
    "rlmem.signals rlmem.strictjson rlmem.sweep lazy:rlmem.cli",
    "rlmem.population": f"torch numpy yaml rich scipy {RUNNING} {WHOLE} rlmem.faults rlmem.mirrors rlmem.signals "
    "rlmem.population rlmem.sweep rlmem.train",
    "rlmem.sweep.search": "optuna rlmem.errors rlmem.sweep",
    # supervised tasks as runs of their own kind, and files of episodes
    "rlmem.supervised": f"torch numpy gymnasium annotated_types {RUNNING} rlmem.dataset.file rlmem.supervised",
    "rlmem.dataset": "numpy rlmem.errors lazy:h5py",
    "rlmem.dataset.play": f"torch numpy gymnasium {ACTING} rlmem.dataset",
    "rlmem.dataset.generate": f"numpy gymnasium {RUNNING} {WHOLE} rlmem.dataset",
    # tables and figures of papers: data, runs, verdicts, and looking into what was trained
    "rlmem.published": "numpy rlmem.config.messages rlmem.config.paths rlmem.errors rlmem.stats",
    "rlmem.analysis": f"torch numpy gymnasium {RUNNING} {WHOLE} rlmem.analysis lazy:matplotlib lazy:scipy lazy:sklearn",
    "rlmem.reproduce": "numpy yaml pydantic filelock rlmem.__version__ rlmem.config rlmem.errors rlmem.machine "
    "rlmem.published rlmem.checkpoint rlmem.recorder rlmem.reproduce rlmem.saved rlmem.rundir rlmem.stats rlmem.sweep "
    "rlmem.strictjson rlmem.tables rlmem.trust "
    "lazy:rlmem.analysis lazy:rlmem.bench lazy:rlmem.cli lazy:rlmem.population",
    "rlmem.report": "numpy matplotlib rlmem.config rlmem.errors rlmem.report rlmem.reproduce rlmem.rundir rlmem.stats "
    "rlmem.sweep rlmem.tables",
    "rlmem.env_table": "yaml gymnasium rlmem.errors rlmem.config rlmem.strictjson",
    "rlmem.bench": "torch numpy gymnasium rich popgym sb3_contrib stable_baselines3 rlmem_envs "
    f"{RUNNING} rlmem.bench rlmem.config rlmem.conformance rlmem.assemble rlmem.machine rlmem.make_loop rlmem.train "
    "lazy:matplotlib",
    # `rlmem --help` must be instant: the command line imports what is heavy inside its verbs
    "rlmem.output": "",
    "rlmem.cli": "rlmem.errors rlmem.output rlmem.signals rlmem.config.messages lazy:rlmem",
    "rlmem.commands": "rlmem.errors rlmem.strictjson rlmem.config.messages rlmem.commands lazy:rlmem",
    "rlmem.__main__": "rlmem.cli",
}
"""Module or package -> what it may import beside the standard library; `lazy:` only inside a function."""


def layer_of(module: str) -> str | None:
    """The most specific entry that holds `module`; the entry `rlmem` is rlmem/__init__.py alone."""
    holders = [layer for layer in LAYERS if within(module, layer) and (layer != "rlmem" or module == "rlmem")]
    return max(holders, key=len, default=None)


def within(name: str, prefix: str) -> bool:
    return f"{name}.".startswith(f"{prefix}.")


def imports(tree: ast.AST, package: str, in_function: bool = False) -> Iterator[tuple[int, str, bool]]:
    """(line, dotted name, whether it is inside a function) of every import below `tree`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, node.module] if node.module else parents)
            yield from ((node.lineno, f"{origin}.{alias.name}", in_function) for alias in node.names)
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(node, package, in_function or function)


def violations(source: str, module: str, file: str) -> list[str]:
    """One line for each import that the layer of `module` does not allow."""
    layer = layer_of(module)
    if layer is None:
        return [f"{file}: `{module}` is in no layer; add it to LAYERS in {Path(__file__).name}"]
    rules = LAYERS[layer].split()
    found = []
    package = module if file.endswith("__init__.py") else module.rpartition(".")[0]
    for line, name, in_function in imports(ast.parse(source), package):
        allowed = [r.removeprefix("lazy:") for r in rules if in_function or not r.startswith("lazy:")]
        if name.split(".")[0] in sys.stdlib_module_names or any(within(name, prefix) for prefix in allowed):
            continue
        found.append(f"{file}:{line}: imports {name}; {layer} may import the standard library and: {' '.join(rules)}")
    return found


def source_files() -> list[Path]:
    return sorted(path for folder in ("rlmem", "envs/rlmem_envs") for path in (ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("envs", "__init__"))


def test_every_import_stays_within_its_layer():
    assert len(source_files()) > 20
    found = [
        problem
        for path in source_files()
        for problem in violations(path.read_text(), module_name(path), path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_layer_of_the_table_allows_only_layers_that_exist():
    rules = {rule.removeprefix("lazy:") for rules in LAYERS.values() for rule in rules.split()}
    modules = {module_name(path) for path in source_files()} | {"rlmem.__version__"}
    missing = [rule for rule in rules if within(rule, "rlmem") and not any(within(m, rule) for m in modules)]
    assert not missing


BAD = {
    "a memory that reads the configuration": ("rlmem.memory.gru", "import hydra"),
    "a lazy import counts too": ("rlmem.memory.gru", "def f():\n    from rlmem.batching import Tape"),
    "memory and nets do not know each other": (
        "rlmem.memory.gru",
        "from rlmem.nets.layers import orthogonal",
    ),
    "types is the bottom": ("rlmem.types", "from rlmem.scan import linear_scan"),
    "a relative import is no way around": ("rlmem.memory.gru", "from ..algos import ppo"),
    "a package's name through the front door": ("rlmem.losses.ppo", "from rlmem import agent"),
    "only the spaces of gymnasium": ("rlmem.nets.encoder", "import gymnasium"),
    "a concrete environment in the rollout": ("rlmem.rollout", "from rlmem_envs.popgym import make"),
    "an environment that knows rlmem": ("rlmem_envs.vector", "from rlmem.types import Batch"),
    "popgym is imported when it is needed": ("rlmem_envs.popgym.package", "import popgym"),
    "a heavy import at the top of the command line": ("rlmem.cli", "from rlmem.train import train"),
    "a new module without a layer": ("rlmem.misc", ""),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_import_is_found_and_named(case):
    module, source = BAD[case]
    file = module.replace(".", "/") + ".py"
    (problem,) = violations(source, module, file)
    assert problem.startswith(file), case
    assert "may import" in problem or "in no layer" in problem
