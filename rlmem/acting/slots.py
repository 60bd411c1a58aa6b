"""What a rollout holds while it is being lived, slot by slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.batching import Rollout
from rlmem.types import Batch, State


@dataclass
class Slots:
    """Slots of a rollout while it is being lived: lists over time, stacked to [N, T+1, ...] at the end."""

    state0: State
    numpy: dict[str, list[np.ndarray]] = field(default_factory=dict)
    torch: dict[str, list[Tensor]] = field(default_factory=dict)
    kept: list[tuple[int, Tensor, State]] = field(default_factory=list)

    def slot(self, obs, prev_reward, start, inputs, action, log_prob, reward, terminated, acted) -> None:
        self._add(self.numpy, obs=obs, prev_reward=prev_reward, start=start)
        self._add(self.numpy, reward=reward, terminated=terminated, mask=acted)
        self._add(self.torch, prev_action=inputs.prev_action, action=action, log_prob=log_prob)

    def bootstrap(self, obs, prev_reward, start, inputs) -> None:
        """The last slot, in which nothing acted."""
        nothing = np.zeros_like(start)
        log_prob = torch.zeros(len(start), device=inputs.prev_action.device)
        self.slot(
            obs, prev_reward, start, inputs, inputs.prev_action, log_prob, np.zeros_like(prev_reward), nothing, nothing
        )

    def keep_state(self, t: int, rows: Tensor, state: State) -> None:
        self.kept.append((t, rows, tree_map(lambda s: s[rows], state)))

    def rollout(self) -> Rollout:
        stacked: dict[str, Any] = {name: torch.stack(values, 1) for name, values in self.torch.items()}
        device = stacked["action"].device
        for name, values in self.numpy.items():
            stacked[name] = torch.from_numpy(np.stack(values, 1)).to(device)
        behaviour = {"log_prob": stacked.pop("log_prob")}
        streams = Batch(state0=self.state0, behaviour=behaviour, **stacked)
        if not self.kept:
            return Rollout(streams)
        states = tree_map(lambda *parts: torch.cat(parts), *[state for _, _, state in self.kept])
        N, _ = streams.shape
        index = torch.zeros(streams.shape, dtype=torch.long, device=device)
        position = N
        for t, rows, _ in self.kept:
            index[rows, t] = torch.arange(position, position + len(rows), device=device)
            position += len(rows)
        return Rollout(streams, states, index)

    @staticmethod
    def _add(lists: dict[str, list[Any]], **values: Any) -> None:
        for name, value in values.items():
            lists.setdefault(name, []).append(value)
