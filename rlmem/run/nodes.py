"""From the nodes of a configuration to the objects that they describe; what cannot be built becomes a UserError."""

from collections.abc import Sequence
from typing import Any

import torch

from rlmem.config.compose import Config
from rlmem.config.messages import shell
from rlmem.config.schema import CALLBACKS
from rlmem.config.targets import build, require_kind
from rlmem.core.errors import UserError, one_line
from rlmem.loops.parts import Callback
from rlmem.memory.base import Memory
from rlmem.memory.brc import BRC
from rlmem.memory.gru import GRU, LSTM
from rlmem.memory.xlstm import SLSTM
from rlmem.scan import native, triton_scan


def built(where: str, node: dict[str, Any], kinds: type | tuple[type, ...], **runtime: Any) -> Any:
    """The object that a node describes. Raises UserError, before anything is called if it is of another kind.

    where: the beginning of a message, such as `memory=gru`
    kinds: the class that it derives from, or several
    runtime: arguments that the configuration does not supply
    """
    name = node["_target_"]
    try:
        require_kind(where, name, kinds)
        made = build(node, **runtime)
    except UserError:
        raise
    except ValueError as error:  # values that do not go together
        see = f"see `rlmem config {shell(where)}`" if "=" in where else "--debug shows the traceback"
        raise UserError(f"{where}: {error}; {see}") from error
    except Exception as error:
        raise UserError(f"{where}: {name} cannot be built ({one_line(error)}); --debug shows the traceback") from error
    if not isinstance(made, kinds):
        raise UserError(f"{where}: {name} returned a {type(made).__name__}, not what its annotation says")
    return made


def build_group(config: Config, group: str, kind: type, **runtime: Any) -> Any:
    """The object that a group describes; see `built`."""
    return built(f"{group}={config.choices[group]}", config.values[group], kind, **runtime)


def build_memory(where: str, node: dict[str, Any], input_size: int, device: torch.device) -> Memory:
    """The memory of a node, for inputs of `input_size` features. Raises UserError if it cannot be built."""
    memory, name = built(where, node, Memory, input_size=input_size), node["_target_"]
    if missing := [size for size in ("input_size", "output_size") if not hasattr(memory, size)]:
        raise UserError(f"{where}: {name} does not set {' and '.join(missing)}; e.g. self.{missing[0]} = ...")
    memory = memory.to(device)
    try:
        memory.initial_state(1)
    except Exception as error:
        what = f"{name} fails in initial_state(1) ({one_line(error)})"
        raise UserError(f"{where}: {what}; --debug shows the traceback") from error
    if device.type != "meta":  # where nothing is computed
        scan_engines(memory, device)
    return memory


def scan_engines(memory: Memory, device: torch.device) -> list[str]:
    """The engines that the scans and cells of a memory run on, and why not the fastest; UserError if one cannot run."""
    name, fastest = ("triton", triton_scan) if device.type == "cuda" else ("native", native)
    found = []
    for part in memory.scanning():
        chosen = part.runs_on(device)
        why = fastest.missing() if (part.engine, chosen) == ("auto", "chunked") else None
        found.append(f"{chosen} scan" + (f" (the {name} engine {why})" if why else ""))
    found = list(dict.fromkeys(found))
    kinds = GRU | LSTM | SLSTM | BRC  # which have kernels of their own
    has_cells = device.type == "cpu" and any(isinstance(module, kinds) for module in memory.modules())
    if has_cells and (why := native.missing()):
        found.append(f"an operator at a time (the native engine {why})")
    return found


def make_callbacks(config: Config, more: Sequence[Callback] = ()) -> dict[str, Callback]:
    """The callbacks of a configuration, and `more` by the names of their classes. Raises UserError."""
    nodes = config.values.get(CALLBACKS, {})
    callbacks = {name: built(f"{CALLBACKS}.{name}", node, Callback) for name, node in nodes.items()}
    for callback in more:
        if not isinstance(callback, Callback):
            raise UserError(f"{CALLBACKS}: expected objects of rlmem.Callback, got a {type(callback).__name__}")
        callbacks[f"{type(callback).__name__}-{len(callbacks)}"] = callback
    if callbacks and (devices := config.settings.trainer.devices) > 1:
        what = f"runs of several processes (trainer.devices={devices}) call none"
        raise UserError(f"{CALLBACKS}: {what}; e.g. trainer.devices=1")
    return callbacks
