"""Cutting time: how a rollout's streams become the rows of a training batch. Nowhere else is time cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.types import Batch, PositiveInt, State


@dataclass
class Rollout:
    """What was collected: one stream per environment, and memory states from the middle of the streams.

    streams: Batch [N, T+1]; slot T is the bootstrap slot, in which nothing acted
    states: memory states that acting had before it read some slots, leading dimension M (for `Segment`)
    state_index: [N, T+1] long; which of [streams.state0; states] belongs to a slot; 0 where none was kept
    """

    streams: Batch
    states: State | None = None
    state_index: Tensor | None = None

    def state_at(self, env: Tensor, slot: Tensor) -> State:
        """States before (env[r], slot[r]); of any value where that slot is a start."""
        if self.states is None or self.state_index is None:
            return tree_map(lambda s: s[env], self.streams.state0)
        index = torch.where(slot == 0, env, self.state_index[env, slot])
        return tree_map(lambda first, rest: torch.cat([first, rest])[index], self.streams.state0, self.states)


@dataclass
class Rows:
    """Rows cut from streams [N, T+1]: row r shows `length[r]` slots of stream `env[r]` from slot `begin[r]`.

    Of these the first `acted[r]` count for the loss; padding on the right holds zeros and starts nothing.
    """

    env: Tensor
    begin: Tensor
    length: Tensor
    acted: Tensor
    slot: Tensor = field(init=False)
    valid: Tensor = field(init=False)
    within_acted: Tensor = field(init=False)

    def __post_init__(self) -> None:
        position = torch.arange(int(self.length.max()), device=self.env.device)
        self.valid = position < self.length[:, None]  # [R, S]
        self.within_acted = position < self.acted[:, None]
        self.slot = torch.where(self.valid, self.begin[:, None] + position, 0)

    def gather(self, stream: Tensor) -> Tensor:
        """[N, T+1, ...] to [R, S, ...], zero in the padding."""
        rows = stream[self.env[:, None], self.slot]
        return rows.masked_fill(~self.valid.view(*self.valid.shape, *[1] * (rows.dim() - 2)), 0)

    def scatter(self, rows: Tensor, shape: tuple[int, int]) -> Tensor:
        """[R, S] back to [N, T+1] = `shape`, zero where no row looked."""
        stream = rows.new_zeros(shape)
        env = self.env[:, None].expand_as(self.slot)
        # A bootstrap slot may be another row's first: acted slots are written last, so the result is unique.
        for part in (self.valid & ~self.within_acted, self.within_acted):
            stream[env[part], self.slot[part]] = rows[part]
        return stream

    def batch(self, rollout: Rollout) -> Batch:
        rows = replace(rollout.streams, state0=()).map(self.gather)
        rows.mask &= self.within_acted
        rows.state0 = rollout.state_at(self.env, self.begin)
        return rows

    @property
    def pad_fraction(self) -> float:
        return 1 - float(self.valid.float().mean())


class Batching(ABC):
    """A scheme for cutting streams into rows. Every acted slot counts in exactly one row."""

    @property
    def state_every(self) -> int | None:
        """Memory states are needed every this many slots of an episode; None: only where a stream begins."""
        return None

    @abstractmethod
    def rows(self, streams: Batch) -> Rows:
        """How to cut these streams [N, T+1]; rows in which nothing acted are left out."""


class Tape(Batching):
    """One row per environment: the stream as it was lived, with start flags inside and nothing cut or padded.

    Tape-based batching (Morad et al. 2024, arXiv:2402.09900, section 4): credit flows as far as the rollout reaches.
    """

    def rows(self, streams: Batch) -> Rows:
        _, T = streams.shape
        env = streams.mask.any(1).nonzero().squeeze(1)
        whole = torch.full_like(env, T)
        return Rows(env, torch.zeros_like(env), whole, whole)


class Segment(Batching):
    """Episodes cut into rows of `length` acted slots plus one bootstrap slot, right-padded.

    Rows never join two episodes. A row inside an episode begins with the memory state that acting had there, which
    is a constant: the gradient stops at the cut.

    length: acted slots per row; None: whole episodes, as far as the rollout reaches
    """

    def __init__(self, length: PositiveInt | None = None):
        self.length = length

    @property
    def state_every(self) -> int | None:
        return self.length

    def rows(self, streams: Batch) -> Rows:
        _, T = streams.shape
        begins = streams.start.clone()
        begins[:, 0] = True
        env, slot = begins.nonzero(as_tuple=True)  # one entry per piece of an episode, in stream order
        piece = begins.flatten().cumsum(0) - 1
        acted = torch.bincount(piece, weights=streams.mask.flatten().double(), minlength=len(env)).long()
        length = self.length or T
        count = -(-acted // length)  # rows per piece; none where nothing acted
        first_row = count.cumsum(0) - count
        index = torch.repeat_interleave(torch.arange(len(env), device=env.device), count)
        offset = (torch.arange(len(index), device=env.device) - first_row[index]) * length
        acted = (acted[index] - offset).clamp(max=length)
        return Rows(env[index], slot[index] + offset, acted + 1, acted)
