"""Windows of recorded episodes, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.batching.base import draw_weighted
from rlmem.supervised.dataset.file import Recording
from rlmem.supervised.feed import DataWindow
from rlmem.types import Inputs, with_host

Predict = Literal["initial", "current"]


class Ranges(NamedTuple):
    """Where episodes lie in the tables: the first row [E] and the number of rows [E] of each."""

    first: Tensor
    length: Tensor


def split(recording: Recording, share: float, generator: torch.Generator) -> tuple[Ranges, Ranges]:
    """Split the episodes at random: those to train on, and a fraction `share` held out, at least one of each."""
    length = torch.from_numpy(recording.lengths)
    first, order = length.cumsum(0) - length, torch.randperm(len(length), generator=generator)
    number = min(max(1, round(share * len(length))), len(length) - 1)
    train, held = order[number:], order[:number]
    return Ranges(first[train], length[train]), Ranges(first[held], length[held])


@dataclass
class Tables:
    """The data that windows are cut from. Every field has a row for each of N transitions.

    seen: observations [N, O]
    target: what is predicted, [N, P]
    action: as a policy outputs it, [N, ...]
    reward: [N]
    """

    seen: Tensor
    target: Tensor
    action: Tensor
    reward: Tensor

    @classmethod
    def of(cls, recording: Recording, space: Space, seen: list[int], predicted: list[int], train: Ranges) -> Tables:
        """The tables of a recording.

        Targets are standardised with mean and standard deviation over the transitions of `train`. Actions are scaled
        from the bounds of `space` to [-1, 1], or counted from zero.
        """
        state = torch.from_numpy(recording.observations)
        wanted = state[:, predicted]
        rows = torch.cat([torch.arange(a, a + n) for a, n in zip(*map(Tensor.tolist, train), strict=True)])
        std, mean = torch.std_mean(wanted[rows].double(), 0)
        target = (wanted - mean) / torch.where(std > 1e-6, std, 1)  # the target of a constant is zero
        if isinstance(space, spaces.Discrete):
            action = recording.actions[:, 0].astype(np.int64) - int(space.start)
        else:
            assert isinstance(space, spaces.Box)
            action = (2 * (recording.actions - space.low) / (space.high - space.low) - 1).astype(np.float32)
        tables = state[:, seen].contiguous(), target.float(), torch.from_numpy(action)
        return cls(*tables, torch.from_numpy(recording.rewards))

    def to(self, device: torch.device) -> Tables:
        return Tables(*(table.to(device) for table in vars(self).values()))

    def draw(
        self, rows: int, length: int, episodes: Ranges, predict: Predict, generator: torch.Generator
    ) -> DataWindow:
        """Draw `rows` windows of `length` slots, each place inside one of `episodes` with equal probability.

        Every window begins with an empty memory. An episode shorter than a window is one, padded on the right.

        predict: initial: the state in a window's first slot, from its last one; current: the state of every slot
        """
        places = (episodes.length - length).clamp(min=0) + 1
        episode = draw_weighted(places.double(), rows, generator)
        offset = (torch.rand(rows, dtype=torch.float64, generator=generator) * places[episode]).long()
        shown = (episodes.length[episode] - offset).clamp(max=length)
        slot = torch.arange(length)
        valid = slot < shown[:, None]
        index = (episodes.first[episode] + offset)[:, None] + torch.minimum(slot, shown[:, None] - 1)
        start = (slot == 0).expand(rows, -1)
        before = torch.where(start, index, index - 1)
        mask = (valid if predict == "current" else slot == shown[:, None] - 1).numpy()
        wanted = index if predict == "current" else index[:, :1].expand(-1, length)
        device = self.seen.device
        index, before, wanted = (x.to(device) for x in (index, before, wanted))
        start = with_host(start.numpy(), device)
        reward = self.reward[before].masked_fill(start, 0)
        inputs = Inputs(self.seen[index], self.action[before], reward, start)
        return DataWindow(inputs, self.target[wanted], with_host(mask, device), int(mask.sum()))
