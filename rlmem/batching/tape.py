"""Tape-based batching: rows in which episodes follow one another."""

import numpy as np
import torch
from torch import Tensor

from rlmem.batching.base import Batching, Pieces, Rows, draw_weighted
from rlmem.types import Batch, PositiveInt, on_host


class Tape(Batching):
    """Rows of whole episodes one after another, with start flags inside (Morad et al. 2024, arXiv:2402.09900, sec. 4).

    On-policy, one row per environment: the stream as collected, neither cut nor padded; credit flows as far as the
    rollout reaches. Off-policy, episodes are drawn uniformly with replacement until the row is full; the last one is
    cut to fit, and is followed by the slot that its last target needs, too (published: targets come from a
    second scan, over next observations). One row has no padding at all.

    rows: rows of an off-policy batch, which share its size; the longest of them sets the padding of the others
    detach_every: slots of an episode between cuts of the gradient through the state; null: cut at starts only
    """

    def __init__(self, rows: PositiveInt = 1, detach_every: PositiveInt | None = None):
        self.num_rows, self.detach_every = rows, detach_every

    def rows(self, streams: Batch) -> Rows:
        _, T = streams.shape
        env = np.flatnonzero(on_host(streams.mask).any(1))
        whole = np.full_like(env, T)
        return Rows(env, np.zeros_like(env), whole, whole, streams.mask.device, self.detach_every)

    def on_policy_problem(self) -> str | None:
        if self.num_rows == 1:
            return None
        return f"rows={self.num_rows} is for replay: on-policy there is one tape per environment; e.g. env.num_envs=8"

    def longest_episode(self, batch_size: int) -> int:
        return batch_size // self.num_rows

    def replay_problem(self, batch_size: int) -> str | None:
        if self.num_rows <= batch_size:
            return None
        return f"rows={self.num_rows} is more than the {batch_size} transitions of a batch; e.g. batching.rows=1"

    def draw(self, lengths: Tensor, weight: Tensor | None, batch_size: int, generator: torch.Generator) -> Pieces:
        R, longest = self.num_rows, -(-batch_size // self.num_rows)  # enough: each has an acted slot
        size = torch.full((R, 1), batch_size // R)
        size[: batch_size % R] += 1
        if weight is None:
            episode = torch.randint(len(lengths), (R, longest), generator=generator)
        else:
            episode = draw_weighted(weight.double(), R * longest, generator).view(R, longest)
        acted = lengths[episode]
        before = acted.cumsum(1) - acted
        row, column = (before < size).nonzero(as_tuple=True)
        acted = torch.minimum(acted, size - before)[row, column]
        nothing = torch.zeros_like(row)
        return Pieces(row, episode[row, column], nothing, acted, nothing)
