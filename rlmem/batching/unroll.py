"""Reading whole rows with a memory, with the gradient through its state cut where asked."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.types import Spans, State

Reader = Callable[[Tensor, State, Tensor], tuple[Tensor, State]]
"""A memory's `forward`: x [B, T, D], state, start [B, T] to y [B, T, H] and the final state."""


def unroll(memory: Reader, x: Tensor, state: State, start: Tensor, detach_every: int | None = None) -> Tensor:
    """y [B, T, H] of `memory(x, state, start)`, with the gradient through the state cut every `detach_every` slots.

    The values do not change. Cuts are at the slots whose age, counted from the episode's start or else from the row's
    beginning, is a multiple of `detach_every`: they do not depend on how episodes are laid out in rows. The states at
    the cuts come from a pass without gradient over the first, second, ... chunks of all episodes side by side; a second
    pass reads all chunks at once.

    memory: reads the rows
    x: [B, T, D]
    state: the memory's state before slot 0, leading dimension B
    start: [B, T] bool
    detach_every: slots of an episode between cuts; None cuts at starts only
    """
    if detach_every is None or not torch.is_grad_enabled():
        return memory(x, state, start)[0]
    chunks = _Chunks(start, detach_every)
    rows = x.flatten(0, 1)[chunks.slot]
    fresh = start.flatten()[chunks.slot] & chunks.valid
    pieces = [tree_map(lambda s: s[chunks.row[: chunks.counts[0]]], state)]
    with torch.no_grad():
        begin = 0
        for this, following in pairwise(chunks.counts):
            full = slice(begin, begin + following)
            before = tree_map(lambda s, n=following: s[:n], pieces[-1])
            pieces.append(memory(rows[full], before, fresh[full])[1])
            begin += this
    y, _ = memory(rows, tree_map(lambda *parts: torch.cat(parts), *pieces), fresh)
    return y[chunks.chunk, chunks.position].view(*start.shape, -1)


class _Chunks:
    """How rows with starts [B, T] are cut into chunks of at most k slots: indices only.

    Chunks are ordered by their number within the episode, and then by the episode's number of chunks, most first: the
    episodes that go on are always the first ones.

    row: [C], the row of each chunk
    slot, valid: [C, k], flat slots b * T + t, and whether they are no padding on the right
    counts: how many episodes have a first, second, ... chunk
    chunk, position: [B * T], the chunk of each flat slot and its position there
    """

    def __init__(self, start: Tensor, k: int):
        T, device = start.shape[1], start.device
        spans = Spans.of(start)
        by_length, rank = spans.longest_first()
        length = spans.length[by_length]
        number = torch.arange(-(-int(length[0]) // k), device=device)
        running = number[:, None] * k < length  # [chunks, E]
        counts = running.sum(1)
        of_number, of_rank = running.nonzero(as_tuple=True)
        begin = spans.first[by_length][of_rank] + of_number * k
        offset = torch.arange(min(k, int(length[0])), device=device)
        self.row = begin // T
        self.valid = offset < (length[of_rank] - of_number * k)[:, None]
        self.slot = torch.where(self.valid, begin[:, None] + offset, 0)
        self.counts = counts.tolist()
        self.position = spans.age % k
        self.chunk = (counts.cumsum(0) - counts)[spans.age // k] + rank[spans.number]
