"""Reading whole rows with a memory, with the gradient through its state cut where asked."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.types import Spans, State, on_host, to_device, with_host

Reader = Callable[[Tensor, State, Tensor], tuple[Tensor, State]]
"""A memory's `forward`: x [B, T, ...], state, start [B, T] to y [B, T, H] and the final state."""


def unroll(memory: Reader, x: Tensor, state: State, start: Tensor, detach_every: int | None = None) -> Tensor:
    """y [B, T, H] of `memory(x, state, start)`, with the gradient through the state cut every `detach_every` slots.

    The values do not change. Cuts are at the slots whose age, counted from the episode's start or else from the row's
    beginning, is a multiple of `detach_every`: they do not depend on how episodes are laid out in rows. The states at
    the cuts come from a pass without gradient over the first, second, ... chunks of all episodes side by side; a second
    pass reads all chunks at once.

    memory: reads the rows
    x: [B, T, ...]
    state: the memory's state before slot 0, leading dimension B
    start: [B, T] bool
    detach_every: slots of an episode between cuts; None cuts at starts only
    """
    if detach_every is None or not torch.is_grad_enabled():
        return memory(x, state, start)[0]
    chunks = _Chunks(start, detach_every)
    rows = x.flatten(0, 1)[chunks.slot]
    pieces = [tree_map(lambda s: s[chunks.row[: chunks.counts[0]]], state)]
    with torch.no_grad():
        begin = 0
        for this, following in pairwise(chunks.counts):
            full = slice(begin, begin + following)
            before = tree_map(lambda s, n=following: s[:n], pieces[-1])
            pieces.append(memory(rows[full], before, with_host(chunks.fresh[full], x.device))[1])
            begin += this
    y, _ = memory(rows, tree_map(lambda *parts: torch.cat(parts), *pieces), with_host(chunks.fresh, x.device))
    return y[chunks.chunk, chunks.position].view(*start.shape, -1)


class _Chunks:
    """How rows with starts [B, T] are cut into chunks of at most k slots: indices only.

    Chunks are ordered by their number within the episode, and then by the episode's number of chunks, most first: the
    episodes that go on are always the first ones.

    row: [C], the row of each chunk
    slot: [C, k], flat slots b * T + t, 0 in the padding on the right
    fresh: [C, k], on the CPU, whether a slot is a start
    counts: how many episodes have a first, second, ... chunk
    chunk, position: [B * T], the chunk of each flat slot and its position there
    """

    def __init__(self, start: Tensor, k: int):
        T, spans = start.shape[1], Spans.of(start)
        by_length, rank = spans.longest_first()
        length = spans.length[by_length]
        number = np.arange(-(-int(length[0]) // k))
        running = number[:, None] * k < length  # [chunks, E]
        counts = running.sum(1)
        of_number, of_rank = np.nonzero(running)
        begin = spans.first[by_length][of_rank] + of_number * k
        offset = np.arange(min(k, int(length[0])))
        valid = offset < (length[of_rank] - of_number * k)[:, None]
        slot = np.where(valid, begin[:, None] + offset, 0)
        chunk = (np.cumsum(counts) - counts)[spans.age // k] + rank[spans.number]
        places = (begin // T, slot, spans.age % k, chunk)
        self.row, self.slot, self.position, self.chunk = (to_device(x, start.device) for x in places)
        self.counts = counts.tolist()
        self.fresh = on_host(start).reshape(-1)[slot] & valid
