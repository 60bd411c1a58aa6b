"""From the node of a group to the object that it describes; what cannot be built becomes a UserError."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from gymnasium.vector import VectorEnv

from rlmem.algos.base import Algorithm
from rlmem.batching import Batching
from rlmem.config.catalog import default_choices
from rlmem.config.compose import Config
from rlmem.config.targets import build, require_kind
from rlmem.errors import UserError, one_line
from rlmem.memory.base import Memory
from rlmem.nets.encoder import InputEncoder
from rlmem.scan import Engine, chosen_engine, native, triton_scan
from rlmem.supervised.classify import Labelled

BASES: dict[str, tuple[type, ...]] = {
    "algo": (Algorithm,),
    "batching": (Batching,),
    "encoder": (InputEncoder,),
    "env": (VectorEnv, Labelled),
    "memory": (Memory,),
}
"""The classes from which the targets of each group must derive."""


@contextmanager
def refused(where: str, what: str, hint: str, plain: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn an exception of third-party code into a UserError, which quotes `plain` ones without their class."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = error if isinstance(error, plain) else one_line(error)
        raise UserError(f"{where}: {what} ({reason}); {hint}") from error


DEBUG = "--debug shows the traceback"


def build_group(config: Config, group: str, **runtime: Any) -> Any:
    """The object that a group describes; `runtime` are the arguments that the configuration does not supply."""
    where, node = f"{group}={config.choices[group]}", config.values[group]
    with refused(where, f"{node['_target_']} cannot be built", DEBUG):
        try:
            return build_node(where, group, node, **runtime)
        except ValueError as error:  # values that do not go together
            raise UserError(f"{where}: {error}; see `rlmem config {group}=...`") from error


def build_node(where: str, group: str, node: dict[str, Any], **runtime: Any) -> Any:
    """The object that a node describes. Raises UserError before anything is called if it is of another kind."""
    option = "" if group == "memory" else f"; e.g. {group}={default_choices()[group]}"
    try:
        require_kind(node["_target_"], BASES[group])
    except UserError as error:
        own = "; e.g. derive it from rlmem.memory.Memory, LinearRecurrence or RecurrentCell"
        raise UserError(f"{where}: {error}{option or own}") from error
    made = build(node, **runtime)
    if not isinstance(made, BASES[group]):
        what = f"{node['_target_']} returned a {type(made).__name__}, not what its annotation says"
        raise UserError(f"{where}: {what}{option}")
    return made


def build_memory(config: Config, input_size: int, device: torch.device) -> Memory:
    """The memory of `config`, for inputs of `input_size` features. Raises UserError if it cannot be built."""
    where, node = f"memory={config.choices['memory']}", config.values["memory"]
    name = node["_target_"]
    with refused(where, f"{name} cannot be built", DEBUG):
        memory = build_node(where, "memory", node, input_size=input_size)
        if missing := [size for size in ("input_size", "output_size") if not hasattr(memory, size)]:
            raise UserError(f"{where}: {name} does not set {' and '.join(missing)}; e.g. self.{missing[0]} = ...")
        memory = memory.to(device)
    with refused(where, f"{name} fails in initial_state(1)", DEBUG):
        memory.initial_state(1)
    scan_engines(memory, device)
    return memory


def scan_engines(memory: torch.nn.Module, device: torch.device) -> list[str]:
    """The engines that the scans of a memory run on, and why not the fastest; UserError if one of them cannot run."""
    name, fastest = ("triton", triton_scan) if device.type == "cuda" else ("native", native)
    found = []
    for engine in dict.fromkeys(str(module.engine) for module in memory.modules() if hasattr(module, "engine")):
        chosen = chosen_engine(cast(Engine, engine), device)
        why = fastest.missing() if (engine, chosen) == ("auto", "chunked") else None
        found.append(f"{chosen} scan" + (f" (the {name} engine {why})" if why else ""))
    return found
