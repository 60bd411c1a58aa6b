"""Which part of the source may import what. docs/design.md has the table below.

Every import statement counts, also inside functions and under TYPE_CHECKING. Names built at run time
(importlib, a `_target_`) are not seen.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Layer(NamedTuple):
    """What a package is for, and what it may import beside the standard library and itself.

    `lazy:` marks what may be imported inside functions only.
    """

    purpose: str
    below: str = ""
    """Packages of rlmem, each of which stands before this one in LAYERS."""
    others: str = ""
    """Third-party packages."""


LAYERS = {
    "core": Layer(
        "batches, states, spaces, random streams, errors, and the operating system",
        "",
        "torch numpy gymnasium.Space gymnasium.spaces annotated_types",
    ),
    "scan": Layer("everything that runs over time, with starts", "core", "torch triton"),
    "memory": Layer("the memory models", "core scan", "torch numpy"),
    "conformance": Layer("the memory contract, measured", "core scan memory", "torch numpy"),
    "losses": Layer("pure functions of rewards, values and masks", "scan", "torch"),
    "batching": Layer("which slots form a row, of a rollout and of the replay", "core", "torch numpy"),
    "agents": Layer(
        "encoders, memory, heads and distributions; `step` and `read`",
        "core scan memory batching",
        "torch numpy gymnasium.Space gymnasium.spaces",
    ),
    "acting": Layer(
        "acting in environments: rollouts, evaluation, films; never a concrete environment",
        "core scan batching agents",
        "torch numpy gymnasium lazy:PIL lazy:ray",
    ),
    "config": Layer(
        "composing and checking the configuration of a run",
        "core",
        "hydra omegaconf pydantic pydantic_core annotated_types yaml",
    ),
    "record": Layer(
        "what a run leaves behind, loggers beside it, tables and figures",
        "__version__ core config",
        "torch numpy yaml filelock rich matplotlib lazy:tensorboard lazy:wandb",
    ),
    "loops": Layer(
        "when to act, learn, evaluate and save", "core memory batching agents acting record", "torch numpy gymnasium"
    ),
    "algos": Layer(
        "from a batch to a better agent; learning without acting, and files of episodes",
        "core scan memory losses batching agents acting loops",
        "torch numpy gymnasium annotated_types lazy:h5py",
    ),
    "run": Layer(
        "from a configuration to a trained agent",
        "__version__ core scan memory batching agents acting config record loops algos",
        "torch numpy gymnasium rich",
    ),
    "jobs": Layer(
        "many runs: grids, searches, queues, populations; each in a process of its own",
        "core acting config record loops run",
        "torch numpy hydra omegaconf pydantic.TypeAdapter yaml rich optuna scipy",
    ),
    "analysis": Layer(
        "looking into what was trained",
        "core memory batching agents acting config record run",
        "torch numpy gymnasium lazy:matplotlib lazy:scipy lazy:sklearn",
    ),
    "evidence": Layer(
        "tables and figures of papers: runs, published numbers, speed, verdicts; pages of many runs",
        "__version__ core scan config record loops run jobs lazy:analysis",
        (
            "torch numpy yaml pydantic filelock packaging scipy.special lazy:scipy matplotlib jinja2 markupsafe rich "
            "lazy:popgym lazy:sb3_contrib lazy:stable_baselines3"
        ),
    ),
    "share": Layer(
        "handing on what was trained: files that act without rlmem, the Hugging Face Hub",
        "__version__ core agents acting config record run evidence",
        "torch numpy gymnasium yaml jinja2 lazy:onnxruntime lazy:onnxscript huggingface_hub lazy:safetensors",
    ),
    "api": Layer(
        "what `import rlmem` offers: training, trained agents, environments and memories in Python",
        "core memory config record loops run jobs evidence lazy:share",
        "torch gymnasium rich",
    ),
    "commands": Layer(
        "the command line; --help must be instant, so what is heavy is imported inside a command",
        (
            "__version__ core.command core.declared core.errors core.received config.messages analysis.analyses "
            "analysis.analyze analysis.find lazy:core lazy:conformance lazy:acting lazy:config lazy:record "
            "lazy:algos lazy:run lazy:jobs lazy:evidence lazy:share"
        ),
        "yaml lazy:shtab",
    ),
    "__main__": Layer("`python -m rlmem`", "commands", ""),
}
"""Package or module of rlmem -> what it may import, from bottom to top."""

OPTIONAL = "popgym pybullet mujoco PIL ale_py minigrid"
ENVIRONMENTS = " ".join(["numpy gymnasium annotated_types rlmem_envs", *(f"lazy:{name}" for name in OPTIONAL.split())])
"""What `rlmem_envs` may import; it knows nothing of rlmem."""


def rules_of(layer: str) -> list[str]:
    """The dotted names that a layer may import, `lazy:` before some."""
    if layer == "rlmem_envs":
        return ENVIRONMENTS.split()
    mark = lambda name: f"lazy:rlmem.{name[5:]}" if name.startswith("lazy:") else f"rlmem.{name}"  # noqa: E731
    return [f"rlmem.{layer}", *map(mark, LAYERS[layer].below.split()), *LAYERS[layer].others.split()]


def layer_of(module: str) -> str | None:
    """The layer that holds `module`; None: there is none."""
    first, _, rest = module.partition(".")
    layer = rest.partition(".")[0]
    return first if first == "rlmem_envs" else layer if layer in LAYERS else None


def design_table() -> str:
    """The table of docs/design.md."""
    code = lambda names: ", ".join(f"`{name}`" for name in names.replace("lazy:", "").split()) or "-"  # noqa: E731
    rows = [
        f"| `{name}` | {layer.purpose} | {code(layer.below)} | {code(layer.others)} |" for name, layer in LAYERS.items()
    ]
    return "\n".join(["| package | purpose | may import | third-party packages |", "|---|---|---|---|", *rows])


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
    if module == "rlmem":
        offered = ["rlmem.api", "rlmem.core.errors", "rlmem.loops.parts", "rlmem.run.trained"]
        layer, rules = "rlmem", [*offered, "rlmem.core.moved"]
    else:
        layer = layer_of(module)
        if layer is None:
            return [f"{file}: `{module}` is in no layer; add it to LAYERS in {Path(__file__).name}"]
        rules = rules_of(layer)
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


def test_layers_only_import_downwards():
    order = list(LAYERS)
    for name, layer in LAYERS.items():
        below = [rule.removeprefix("lazy:").partition(".")[0] for rule in layer.below.split()]
        assert not [other for other in below if other != "__version__" and other not in order[: order.index(name)]], (
            name
        )


def test_every_layer_is_there_and_few_stand_at_the_top():
    entries = {
        path.stem for path in (ROOT / "rlmem").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert entries == {"__init__", *LAYERS}
    assert len(entries) <= 21


def test_the_table_of_layers_in_the_design_is_this_one():
    assert design_table() in (ROOT / "docs" / "design.md").read_text(), f"docs/design.md needs:\n{design_table()}"


BAD = {
    "a memory that reads the configuration": ("rlmem.memory.gru", "import hydra"),
    "a lazy import counts too": ("rlmem.memory.gru", "def f():\n    from rlmem.batching import Tape"),
    "a relative import is no way around": ("rlmem.memory.gru", "from ..algos import ppo"),
    "only the spaces of gymnasium": ("rlmem.agents.encoder", "import gymnasium"),
    "a concrete environment in the rollout": ("rlmem.acting.collector", "from rlmem_envs.popgym import make"),
    "an environment that knows rlmem": ("rlmem_envs.vector", "from rlmem.core.types import Batch"),
    "a heavy import at the top of the command line": ("rlmem.commands.cli", "from rlmem.run.train import train"),
    "a new module without a layer": ("rlmem.misc", ""),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_import_is_found_and_named(case):
    module, source = BAD[case]
    file = module.replace(".", "/") + ".py"
    (problem,) = violations(source, module, file)
    assert problem.startswith(file), case
    assert "may import" in problem or "in no layer" in problem
