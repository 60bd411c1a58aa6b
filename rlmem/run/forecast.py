"""Whether a run fits into the memory of its machine, by lower bounds, before anything large is allocated or written.

What is refused cannot run; what is accepted may still turn out to be too much.
"""

import math
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from rich.filesize import decimal as size
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from rlmem.algos.base import Learner, Plan, Storage
from rlmem.config.compose import Config
from rlmem.config.overrides import leaf_paths
from rlmem.core.errors import UserError
from rlmem.core.spaces import is_tree, leaves, readable_type

LARGE = 1024
"""Only networks with a larger integer in their configuration are measured before they are built."""

PLANNED_BYTES = 10**8
"""A dry run, which needs only shapes, does not build networks whose construction computes more bytes than this."""

FLAG_BYTES = 23
"""Bytes of a slot beside observation and action: rewards, three flags, a log-probability, the previous action."""

STATE_COPIES = 3
"""Memory states that each environment has at once while acting: before a rollout, now, and next."""


def large_agent(config: Config, make_agent: Callable[..., Any], device: torch.device, learns: bool) -> Any:
    """An agent that takes long to build, as shapes without numbers; None for any other agent.

    Raises UserError if the device has too little memory for it, of which it needs more if it `learns`.
    """
    nodes = {group: config.values[group] for group in ("memory", "encoder", "algo")}
    large = {path: number for path, value in leaf_paths(nodes) if (number := _largest(value)) > LARGE}
    if not large:
        return None
    where, there = " ".join(f"{group}={config.choices[group]}" for group in ("memory", "encoder")), memory_of(device)
    example = f"e.g. a smaller {' or '.join(sorted(large, key=large.__getitem__, reverse=True))}"
    try:
        with torch.device("meta"), _TensorCount() as count:
            agent = make_agent()
            state = tensor_bytes(agent.initial_state(1))
    except Exception as error:
        if "overflow" in str(error).lower():  # of 64 bits
            raise UserError(f"{where}: larger than any memory, and {device} has {size(there)}; {example}") from error
        return None  # third-party code that needs real numbers, or a mistake that building will report
    weights = tensor_bytes(list(agent.parameters()))
    needed = max((4 if learns else 1) * weights + state, count.largest)  # Adam keeps two moments beside the gradient
    if needed > there:
        problem = f"{parameters(agent):,} parameters and a state of {size(state)} need {size(needed)} of memory or more"
        raise UserError(f"{where}: {problem}, and {device} has {size(there)}; {example}")
    return agent if count.total > PLANNED_BYTES else None


def _largest(value: Any) -> int:
    """The largest integer in a value, which may be a list; 0 if there is none."""
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0


def require_environments(env: VectorEnv, number: int) -> None:
    """Raise UserError if this machine cannot hold `number` environments like `env`."""
    try:
        env.reset(seed=0)
        state = env.state()  # type: ignore[attr-defined]
    except Exception:  # third-party code; the same call is made, and its error shown, when the run begins
        state = None
    arrays = sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, np.ndarray))
    needed, there = number * (_bytes(env.single_observation_space) + arrays), memory_of(torch.device("cpu"))
    if needed > there:
        problem = f"so many take {size(needed)} of memory or more, and this machine has {size(there)}"
        raise UserError(f"env.num_envs={number}: {problem}; e.g. env.num_envs=64")


def require_memory(plan: Plan, agent: Any, storage: Storage | None, device: torch.device) -> None:
    """Raise UserError if rollouts, memory states and the replay of a run do not fit into the memory of its machine."""
    host, num_envs = torch.device("cpu"), plan.num_envs
    if storage is None:
        return
    observation, action = _bytes(plan.env.single_observation_space), _bytes(plan.env.single_action_space)
    trunk = agent.trunks.critic
    features = 4 * (trunk.encoder.output_size + trunk.memory.output_size) if storage.with_gradient else 0
    slots = min(storage.slots, -(-plan.total_steps // num_envs)) + 1
    states = STATE_COPIES * num_envs * tensor_bytes(agent.initial_state(1))
    rollout = num_envs * slots * (observation + 2 * action + FLAG_BYTES + features)
    replay = 0 if storage.directory else sum(replay_bytes(plan, agent, storage))
    for where, needed in ((device, states + rollout), (host, replay + (states + rollout if device == host else 0))):
        if needed <= (there := memory_of(where)):
            continue
        takes = f"{size(needed)} of memory or more, and {where} has {size(there)}"
        if 2 * replay > needed:
            problem = f"algo.capacity={storage.capacity}: a replay of so many transitions, as the run fills it, takes"
            example = "algo.replay_dir=/tmp, which keeps it on the disk, or a smaller algo.capacity"
        elif (fitting := 2 ** int(math.log2(max(1, num_envs * there / needed / 2)))) < 8 and storage.slots_key:
            key = f"algo.{storage.slots_key}"
            problem, example = f"{key}={storage.slots}: rollouts of {num_envs} x {slots} slots take", f"{key}=128"
        else:
            problem = f"env.num_envs={num_envs}: rollouts of {slots} slots and the states of so many take"
            example = f"env.num_envs={fitting}"
        raise UserError(f"{problem} {takes}; e.g. {example}")


def replay_bytes(plan: Plan, agent: Any, storage: Storage | None) -> tuple[int, int]:
    """The most bytes of the transitions in a replay, and of the memory states kept with them; 0 without a replay."""
    if storage is None or storage.capacity is None:
        return 0, 0
    slot = _bytes(plan.env.single_observation_space) + _bytes(plan.env.single_action_space) + 6
    most, every = min(storage.capacity, plan.total_steps), storage.state_every
    return most * slot, most // every * tensor_bytes(agent.initial_state(1)) if every else 0


def checkpoint_bytes(plan: Plan, agent: Any, algo: Learner, storage: Storage | None) -> int:
    """The most bytes of a checkpoint: the replay, and the weights with their copies (`Learner.weight_copies`)."""
    replay = replay_bytes(plan, agent, storage)
    return algo.weight_copies * tensor_bytes(list(agent.parameters())) + sum(replay)


def _bytes(space: Space) -> int:
    """Bytes of one observation or action."""
    if is_tree(space):
        return sum(map(_bytes, leaves(space).values()))
    return max(1, math.prod(space.shape or ())) * readable_type(space).itemsize


class _TensorCount(TorchFunctionMode):
    """Counts the bytes of the tensors that are made inside: `total`, of all of them, and `largest`, of one."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.largest = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.total += tensor.numel() * tensor.element_size()
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


def tensor_bytes(tree: Any) -> int:
    """Bytes of all tensors in a pytree."""
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def memory_of(device: torch.device) -> int:
    """Bytes of memory of a GPU or of this machine; very many where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return sys.maxsize


def numbers(state: Any) -> int:
    """How many numbers a state holds, a complex one being two."""
    return sum(leaf.numel() * (2 if leaf.is_complex() else 1) for leaf in tree_leaves(state))


def parameters(module: torch.nn.Module) -> int:
    """The number of parameters of a module, in scalars."""
    return sum(parameter.numel() for parameter in module.parameters())
