"""The slots of a rollout while it is collected."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.batching import Rollout
from rlmem.types import Batch, State, each_leaf, with_host


@dataclass(frozen=True)
class Slot:
    """One slot of N environments: the fields of `rlmem.types.Batch` by their names, [N, ...] each, and log_prob.

    Observations of several parts are their leaves by their paths, [N, ...] each.

    Actions and log_prob are on the agent's device or on the host. A slot without an action has `mask` false, and zeros
    or the previous action in the fields of the action.
    """

    obs: np.ndarray | dict[str, np.ndarray]
    prev_action: Tensor
    prev_reward: np.ndarray
    start: np.ndarray
    action: Tensor
    log_prob: Tensor
    reward: np.ndarray
    terminated: np.ndarray
    mask: np.ndarray


@dataclass
class Slots:
    """Slots in order of time, stacked to [N, T+1, ...] at the end.

    state0: the memory's state before them
    device: where the rollout is to be
    """

    state0: State
    device: torch.device
    slots: list[Slot] = field(default_factory=list)
    kept: list[tuple[int, Tensor, State]] = field(default_factory=list)
    """States for rows that begin inside the rollout: a slot, environments [K], and their states before it [K, ...]."""

    def keep_states(self, env: Tensor, state: State) -> None:
        """Keep the states before the next slot of the environments `env` [K]; state: of all environments, [N, ...]."""
        if len(env):
            self.kept.append((len(self.slots), env, tree_map(lambda leaf: leaf[env], state)))

    def rollout(self, cut: bool) -> Rollout:
        """All that was collected; `cut` is that of `Rollout`."""
        device = self.device
        stacked: dict[str, Any] = {}
        for name in Slot.__annotations__:
            values = [getattr(slot, name) for slot in self.slots]
            if isinstance(values[0], dict):
                leaves = {leaf: np.stack([value[leaf] for value in values], 1) for leaf in values[0]}
                stacked[name] = each_leaf(lambda array: with_host(array, device), leaves)
                continue
            tensors = isinstance(values[0], Tensor)
            stacked[name] = torch.stack(values, 1).to(device) if tensors else with_host(np.stack(values, 1), device)
        streams = Batch(state0=self.state0, behaviour={"log_prob": stacked.pop("log_prob")}, **stacked)
        if not self.kept:
            return Rollout(streams, cut=cut)
        index = torch.zeros(streams.shape, dtype=torch.long, device=device)
        position = streams.shape[0]
        for slot, env, _ in self.kept:
            index[env, slot] = torch.arange(position, position + len(env), device=device)
            position += len(env)
        states = tree_map(lambda *parts: torch.cat(parts), *[state for _, _, state in self.kept])
        return Rollout(streams, states, index, cut=cut)
