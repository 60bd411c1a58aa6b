"""Environments and memories by their names on the command line, and arguments of Python as they are typed there."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from rlmem.config.compose import load
from rlmem.config.overrides import assignment
from rlmem.memory import Memory
from rlmem.run import nodes
from rlmem.run.assemble import choose_device


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


def make_env(name: str, num_envs: int = 1, **options: Any) -> VectorEnv:
    """The vector of environments that `env=NAME` is.

        rlmem.make_env("repeat_previous", num_envs=64, level="easy")

    name: an option of `env`, see `rlmem list env`
    num_envs: how many environments
    options: further keys of `env`; `rlmem config env=NAME` shows them

    It resets itself in the step after an episode's end (Gymnasium's NEXT_STEP autoreset). Raises UserError for an
    unknown name, key or value.
    """
    return nodes.make_env(load(in_group("env", name, options)), num_envs, every_leaf=True)


def make_memory(name: str, input_size: int, device: str | torch.device = "cpu", **options: Any) -> Memory:
    """The memory that `memory=NAME` is: a `torch.nn.Module` under the contract of `rlmem.memory.Memory`.

        memory = rlmem.make_memory("ffm", input_size=8)
        y, state = memory(x, memory.initial_state(len(x)), start)      # x [B, T, 8], start [B, T] bool

    name: an option of `memory`, see `rlmem list memory`
    input_size: features that it reads
    device: where its weights lie: cpu, cuda, or auto, which is cuda if there is one
    options: further keys of `memory`; `rlmem config memory=NAME` shows them

    The first weights are drawn from torch's global generator. Raises UserError for an unknown name, key or value.
    """
    config = load(in_group("memory", name, options))
    return nodes.build_memory(f"memory={name}", config.values["memory"], input_size, choose_device(str(device)))
