"""Recorded episodes as frames with their return to go, and which of the frames are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from rlmem.supervised.dataset.file import Recording
from rlmem.supervised.feed import DataWindow
from rlmem.supervised.windows import Ranges, draw_places, policy_actions
from rlmem.types import Inputs, with_host


@dataclass
class Trajectories:
    """Recorded episodes, with a row for each of N transitions.

    episodes: where each lies
    seen: what the environment shows of the state, [N, O]
    to_go: the sum of the rewards from here to the end of the episode, [N]
    action: as a policy outputs it, [N, ...]
    """

    episodes: Ranges
    seen: Tensor
    to_go: Tensor
    action: Tensor

    @classmethod
    def of(cls, recording: Recording, space: Space, seen: list[int]) -> Trajectories:
        """The episodes of a recording, of whose actions `space` is the space."""
        length = torch.from_numpy(recording.lengths)
        first = length.cumsum(0) - length
        reward = torch.from_numpy(recording.rewards).double()
        up_to = reward.cumsum(0)  # the rewards before the episode cancel
        last = (first + length - 1).repeat_interleave(length)
        to_go = (up_to[last] - up_to + reward).float()
        shown = torch.from_numpy(recording.observations)[:, seen].contiguous()
        return cls(Ranges(first, length), shown, to_go, policy_actions(recording, space))

    def to(self, device: torch.device) -> Trajectories:
        """The same with the tables that windows are cut from on a device."""
        return Trajectories(self.episodes, *(table.to(device) for table in (self.seen, self.to_go, self.action)))

    def window(self, rows: int, length: int, received: Tensor, generator: torch.Generator) -> DataWindow:
        """Draw `rows` windows of `length` slots, as `draw_places`: the frames, and the actions as targets.

        received: for every row of the table, that of the newest frame which was not dropped, [N] (`Drops.received`)

        The observations are frames [rows, length, O + 2]: what was seen in the newest frame, the return to go there,
        and the slots since then. Rewards are zero, since the returns to go tell of those that were received.
        """
        index, valid = draw_places(rows, length, self.episodes, generator)
        newest, start = received[index], (torch.arange(length) == 0).expand(rows, -1)
        device, before, age = self.seen.device, torch.where(start, index, index - 1), index - newest
        index, newest, before, age = (x.to(device) for x in (index, newest, before, age))
        frames = framed(self.seen[newest], self.to_go[newest], age)
        begins, mask = (with_host(flags.numpy(), device) for flags in (start, valid))
        inputs = Inputs(frames, self.action[before], torch.zeros_like(frames[..., 0]), begins)
        return DataWindow(inputs, self.action[index], mask, int(valid.sum()))


def framed(seen: Tensor, to_go: Tensor, age: Tensor) -> Tensor:
    """Frames [..., O + 2] from what was seen [..., O], returns to go [...] and slots since then [...]."""
    return torch.cat([seen.float(), to_go.float()[..., None], age.float()[..., None]], -1)


class Drops:
    """Which frames of a table of episodes are dropped: each with a probability, but never the first of an episode.

    A dropped frame is replaced by the newest one that was not, with its return to go; actions are never dropped.

    episodes: where the episodes lie
    probability: of dropping a frame
    every: updates after which all frames are drawn again
    generator: draws them
    """

    def __init__(self, episodes: Ranges, probability: float, every: int, generator: torch.Generator):
        self.episodes, self.probability, self.every, self.generator = episodes, probability, every, generator
        self._draw()

    def received(self) -> Tensor:
        """For every row of the table, that of the newest frame that was not dropped, [N], for one update."""
        if not self.left:
            self._draw()
        self.left -= 1
        return self.newest

    def _draw(self) -> None:
        self.before, self.left = self.generator.get_state(), self.every
        row = torch.arange(int(self.episodes.length.sum()))
        kept = torch.rand(len(row), generator=self.generator) >= self.probability
        kept[self.episodes.first] = True
        self.newest = torch.where(kept, row, 0).cummax(0).values

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.before, "left": self.left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"].cpu())
        self._draw()
        self.left = state["left"]
