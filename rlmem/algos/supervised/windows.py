"""Windows of recorded episodes, drawn at random: states to predict, or frames with their return to go, some dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.algos.supervised.dataset.file import Recording, shapes
from rlmem.algos.supervised.feed import DataWindow
from rlmem.batching.base import draw_weighted
from rlmem.core.types import Inputs, with_host

Predict = Literal["initial", "current"]


@runtime_checkable
class Partial(Protocol):
    """An environment that shows part of its state, a vector."""

    def seen_slots(self) -> list[int]:
        """The indices of the numbers of the state that it shows."""

    def full_size(self) -> int:
        """How many numbers the state has."""


def unfit(dataset: str | None, size: int, space: Space) -> str | None:
    """Why a file does not hold observations of `size` numbers and actions of a space; None if it does.

    Raises UserError if it is not a recording.
    """
    if dataset is None:
        return "algo.dataset=null: expected an HDF5 file of episodes; e.g. algo.dataset=data/hopper.hdf5"
    needed = size, space.shape[0] if space.shape else 1
    if (actual := shapes(Path(dataset))) == needed:
        return None
    sizes = "observations of {} numbers and actions of {}".format
    return f"algo.dataset={dataset}: {sizes(*actual)}; expected {sizes(*needed)}; see `rlmem dataset info`"


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


def policy_actions(recording: Recording, space: Space) -> Tensor:
    """The actions of a recording as a policy outputs them: scaled from the bounds of `space` to [-1, 1], or counted
    from zero."""
    if isinstance(space, spaces.Discrete):
        return torch.from_numpy(recording.actions[:, 0].astype(np.int64) - int(space.start))
    assert isinstance(space, spaces.Box)
    wide = np.result_type(space.dtype, np.float32)
    half_low, half_high = space.low.astype(wide) / 2, space.high.astype(wide) / 2  # whose difference never overflows
    quarter = np.where(half_high > half_low, half_high - half_low, 1) / 2
    scaled = np.where(half_high > half_low, (recording.actions / 2 - half_low) / quarter - 1, 0)
    return torch.from_numpy(scaled.astype(np.float32))


class Places(NamedTuple):
    """The places of windows in the tables, [rows, length] each.

    row: the table's row of every slot, that of the last one in the padding
    before: the row of the slot before, of the first slot itself
    start: true in the first slot
    valid: true where there is no padding
    """

    row: Tensor
    before: Tensor
    start: Tensor
    valid: Tensor


def draw_places(rows: int, length: int, episodes: Ranges, generator: torch.Generator) -> Places:
    """`rows` windows of `length` slots, each place inside one of `episodes` with equal probability.

    An episode shorter than a window is one, padded on the right.
    """
    places = (episodes.length - length).clamp(min=0) + 1
    episode = draw_weighted(places.double(), rows, generator)
    offset = (torch.rand(rows, dtype=torch.float64, generator=generator) * places[episode]).long()
    shown = (episodes.length[episode] - offset).clamp(max=length)
    slot = torch.arange(length)
    index = (episodes.first[episode] + offset)[:, None] + torch.minimum(slot, shown[:, None] - 1)
    start = (slot == 0).expand(rows, -1)
    return Places(index, torch.where(start, index, index - 1), start, slot < shown[:, None])


@dataclass
class Tables:
    """The data that windows are cut from. Every table has a row for each of N transitions.

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
        tables = state[:, seen].contiguous(), target.float(), policy_actions(recording, space)
        return cls(*tables, torch.from_numpy(recording.rewards))

    def to(self, device: torch.device) -> Self:
        """The same with the tables on a device."""
        tables = {name: table.to(device) for name, table in vars(self).items() if isinstance(table, Tensor)}
        return replace(self, **tables)

    def window(self, places: Places, obs: Tensor, predicted: Tensor, mask: Tensor) -> DataWindow:
        """The slots at `places`, in which `obs` is observed.

        predicted: the rows of the targets [rows, length], on the device
        mask: which slots have a target, [rows, length]
        """
        device = self.seen.device
        before, (start, asked) = places.before.to(device), (with_host(x.numpy(), device) for x in (places.start, mask))
        inputs = Inputs(obs, self.action[before], self.reward[before].masked_fill(start, 0), start)
        return DataWindow(inputs, self.target[predicted], asked, int(mask.sum()))

    def draw(
        self, rows: int, length: int, episodes: Ranges, predict: Predict, generator: torch.Generator
    ) -> DataWindow:
        """Draw `rows` windows of `length` slots, as `draw_places`. Every window begins with an empty memory.

        predict: initial: the state in a window's first slot, from its last one; current: the state of every slot
        """
        places = draw_places(rows, length, episodes, generator)
        row, valid = places.row.to(self.seen.device), places.valid
        last = valid & ~torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], 1)
        if predict == "current":
            return self.window(places, self.seen[row], row, valid)
        return self.window(places, self.seen[row], row[:, :1].expand(-1, length), last)


@dataclass
class Trajectories(Tables):
    """Recorded episodes, whose actions are the targets. Rewards are zero, since the returns to go tell of them.

    episodes: where each lies
    to_go: the sum of the rewards from here to the end of the episode, [N]
    """

    episodes: Ranges
    to_go: Tensor

    @classmethod
    def of(cls, recording: Recording, space: Space, seen: list[int]) -> Trajectories:  # type: ignore[override]
        """The episodes of a recording, of whose actions `space` is the space."""
        length = torch.from_numpy(recording.lengths)
        first = length.cumsum(0) - length
        reward = torch.from_numpy(recording.rewards).double()
        up_to = reward.cumsum(0)  # the rewards before the episode cancel
        last = (first + length - 1).repeat_interleave(length)
        to_go = (up_to[last] - up_to + reward).float()
        shown = torch.from_numpy(recording.observations)[:, seen].contiguous()
        action = policy_actions(recording, space)
        return cls(shown, action, action, torch.zeros_like(to_go), Ranges(first, length), to_go)

    def frames(self, rows: int, length: int, received: Tensor, generator: torch.Generator) -> DataWindow:
        """Draw `rows` windows of `length` slots, as `draw_places`: the frames, and the actions as targets.

        received: for every row of the table, that of the newest frame which was not dropped, [N] (`Drops.received`)

        The observations are frames [rows, length, O + 2]: what was seen in the newest frame, the return to go there,
        and the slots since then.
        """
        places = draw_places(rows, length, self.episodes, generator)
        row, newest = (x.to(self.seen.device) for x in (places.row, received[places.row]))
        return self.window(places, framed(self.seen[newest], self.to_go[newest], row - newest), row, places.valid)


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
        seen = torch.rand(len(row), generator=self.generator) >= self.probability
        seen[self.episodes.first] = True
        self.newest = torch.where(seen, row, 0).cummax(0).values

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.before, "left": self.left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"].cpu())
        self._draw()
        self.left = state["left"]
