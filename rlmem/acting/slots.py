"""The slots of a rollout while it is collected."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.batching import Rollout
from rlmem.types import Batch, State


@dataclass(frozen=True)
class Slot:
    """One slot of N environments: the fields of `rlmem.types.Batch` by their names, [N, ...] each, and log_prob.

    A slot without an action has `mask` false, and zeros or the previous action in the fields of the action.
    """

    obs: np.ndarray
    prev_action: Tensor
    prev_reward: np.ndarray
    start: np.ndarray
    action: Tensor
    log_prob: Tensor
    reward: np.ndarray
    terminated: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class KeptStates:
    """Memory states before slot `t` of the environments `rows` [K]; the state's leaves are [K, ...]."""

    t: int
    rows: Tensor
    state: State


@dataclass
class Slots:
    """Slots in order of time, stacked to [N, T+1, ...] at the end.

    state0: the memory's state before the first slot
    slots: those collected so far
    kept: memory states for rows that will begin within the rollout
    """

    state0: State
    slots: list[Slot] = field(default_factory=list)
    kept: list[KeptStates] = field(default_factory=list)

    def keep_state(self, t: int, rows: Tensor, state: State) -> None:
        """Keep the state before slot `t` of the environments `rows` [K]; state: of all environments, [N, ...]."""
        self.kept.append(KeptStates(t, rows, tree_map(lambda leaf: leaf[rows], state)))

    def rollout(self) -> Rollout:
        device = self.slots[0].action.device
        stacked: dict[str, Any] = {
            name: _stacked([getattr(slot, name) for slot in self.slots], device) for name in Slot.__annotations__
        }
        streams = Batch(state0=self.state0, behaviour={"log_prob": stacked.pop("log_prob")}, **stacked)
        if not self.kept:
            return Rollout(streams)
        states = tree_map(lambda *parts: torch.cat(parts), *[kept.state for kept in self.kept])
        index = torch.zeros(streams.shape, dtype=torch.long, device=device)
        position = streams.shape[0]
        for kept in self.kept:
            index[kept.rows, kept.t] = torch.arange(position, position + len(kept.rows), device=device)
            position += len(kept.rows)
        return Rollout(streams, states, index)


def _stacked(values: list[Any], device: torch.device) -> Tensor:
    """[N, T, ...] on `device`, from arrays or tensors [N, ...] of T slots."""
    return torch.stack(values, 1) if isinstance(values[0], Tensor) else torch.from_numpy(np.stack(values, 1)).to(device)
