"""The interface of batching schemes, tapes, which cut nothing, and the reading of whole rows with a memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.core.types import Batch, PositiveInt, Spans, State, broadcastable, on_host, to_device, with_host


@dataclass(frozen=True)
class StateSlots:
    """The slots before which acting keeps its memory's state, because rows may begin there.

    They are the slots whose age a, in slots, satisfies a > 0 and (a + shift) % every == 0.

    every: slots from one to the next
    shift: slots by which they come earlier
    of: stream: ages count from the beginning of the rollout or of the episode, whichever is later; episode: they
        count from the beginning of the episode, even if it lies in an earlier rollout
    """

    every: int
    shift: int = 0
    of: Literal["stream", "episode"] = "stream"


@dataclass
class Rollout:
    """What was collected: one stream per environment, and memory states from the middle of the streams.

    streams: Batch [N, T+1]; slot T is the bootstrap slot, in which nothing acted
    states: memory states that acting had before it read some slots, leading dimension M (see `StateSlots`)
    state_index: [N, T+1] long; which of [streams.state0; states] belongs to a slot: N and more where one was kept,
        0 elsewhere
    lag: updates between the weights that acted and those of the learner
    cut: the budget ended before some of the episodes that began together, so those that ended are the shorter ones
    """

    streams: Batch
    states: State | None = None
    state_index: Tensor | None = None
    lag: int = 0
    cut: bool = False

    def state_at(self, env: Tensor, slot: Tensor) -> State:
        """States before the slots (env[r], slot[r]); arbitrary where that slot is a start."""
        if self.states is None or self.state_index is None:
            return tree_map(lambda s: s[env], self.streams.state0)
        index = torch.where(slot == 0, env, self.state_index[env, slot])
        return tree_map(lambda first, rest: torch.cat([first, rest])[index], self.streams.state0, self.states)


@dataclass
class Rows:
    """Rows cut from streams [N, T+1]: row r shows `length[r]` slots of stream `env[r]` from slot `begin[r]`.

    Of these the first `acted[r]` count for the loss; padding on the right holds zeros and no starts. The numbers lie on
    the CPU, the streams on `device`.
    """

    env: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    acted: np.ndarray
    device: torch.device
    detach_every: int | None = None
    slot: np.ndarray = field(init=False)
    valid: np.ndarray = field(init=False)
    within_acted: np.ndarray = field(init=False)
    shown: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self) -> None:
        position = np.arange(self.length.max())
        self.valid = position < self.length[:, None]  # [R, S]
        self.within_acted = position < self.acted[:, None]
        self.slot = np.where(self.valid, self.begin[:, None] + position, 0)
        self.shown = tuple(to_device(x, self.device) for x in (self.env[:, None], self.slot, ~self.valid))

    def gather(self, stream: Tensor) -> Tensor:
        """[N, T+1, ...] to [R, S, ...], zero in the padding."""
        env, slot, padding = self.shown
        rows = stream[env, slot]
        return rows.masked_fill(broadcastable(padding, rows), 0)

    def scatter(self, rows: Tensor, shape: tuple[int, int]) -> Tensor:
        """[R, S] back to [N, T+1] = `shape`, zero in slots that no row shows."""
        stream, rows = rows.new_zeros(shape).flatten(), rows.flatten()
        flat = self.env[:, None] * shape[1] + self.slot
        # A bootstrap slot may be another row's first: acted slots are written last, so the result is unique.
        for part in (self.valid & ~self.within_acted, self.within_acted):
            stream[to_device(flat[part], self.device)] = rows[to_device(np.flatnonzero(part), self.device)]
        return stream.view(shape)

    def batch(self, rollout: Rollout) -> Batch:
        """The slots of the rollout in rows, each with the memory state that acting had where it begins."""
        streams, env = rollout.streams, self.env[:, None]
        rows = replace(streams, state0=None).map(self.gather)
        rows.start = with_host(on_host(streams.start)[env, self.slot] & self.valid, self.device)
        rows.mask = with_host(on_host(streams.mask)[env, self.slot] & self.within_acted, self.device)
        rows.state0 = rollout.state_at(to_device(self.env, self.device), to_device(self.begin, self.device))
        rows.detach_every = self.detach_every
        return rows

    @property
    def pad_fraction(self) -> float:
        return 1 - float(self.valid.mean())


class Pieces(NamedTuple):
    """P pieces of a replay's episodes, which a batch shows; a row is its pieces one after another."""

    row: Tensor
    """[P], the row that a piece is in, ascending."""
    episode: Tensor
    """[P], the position of its episode among those drawn from."""
    first: Tensor
    """[P], the slot of its episode that the piece begins at."""
    acted: Tensor
    """[P], its acted slots that count; it shows acted + 1 slots, the last of which only supplies a value."""
    prefix: Tensor
    """[P], slots before `first` that are read without gradient; only a piece alone in its row has any."""


class Batching(ABC):
    """A scheme for cutting time into rows.

    detach_every: slots between cuts of the gradient through the memory's state; see `unroll`
    running: off-policy, whether pieces of episodes are drawn that have not ended yet
    width: off-policy, the least number of slots of a row; shorter rows are padded
    """

    detach_every: int | None = None
    width: int = 0
    running: bool = False

    @abstractmethod
    def rows(self, streams: Batch) -> Rows:
        """On-policy: how to cut these streams [N, T+1]. Every acted slot counts in exactly one row; rows in which
        nothing acted are left out."""

    def on_policy_problem(self) -> str | None:
        """Why an on-policy algorithm cannot use these settings, in one sentence; None if it can."""
        return None

    def longest_episode(self, batch_size: int) -> int | None:
        """Off-policy: the most acted slots of an episode that a row shows; None: later rows show the rest."""
        return None

    def reach(self, slots: int | None) -> int | None:
        """The most slots of one episode between which gradients flow in a row.

        slots: those of a stream, or of an episode in a batch; None: whole episodes
        """
        return least(slots, self.detach_every)

    def replay_problem(self, batch_size: int) -> str | None:
        """Why a replay cannot be read with these settings, in one sentence; None if it can."""
        return None

    def state_slots(self, replay: bool) -> StateSlots | None:
        """Which states acting must keep, for rows of a rollout or of a replay; None: none beyond those of a rollout's
        first slots."""
        return None

    @abstractmethod
    def draw(self, lengths: Tensor, weight: Tensor | None, batch_size: int, generator: torch.Generator) -> Pieces:
        """Off-policy: a random batch of pieces of episodes.

        lengths: [E], acted slots of each episode, at least 1, on the CPU; if `running`, the last are of running ones
        weight: [E], how often to draw each episode relative to a uniform draw, on the CPU; None: uniformly
        batch_size: acted slots in the batch
        generator: the random numbers to use
        """


def least(*numbers: int | None) -> int | None:
    """The least of the numbers that are not None; None: there are none."""
    return min((number for number in numbers if number is not None), default=None)


def draw_weighted(mass: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` indices, each drawn with probability mass[i] / sum(mass), with replacement; mass [E] float64."""
    cumulative = mass.cumsum(0)
    at = torch.rand(count, dtype=torch.float64, generator=generator) * cumulative[-1]
    return torch.searchsorted(cumulative, at, right=True).clamp(max=len(mass) - 1)


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
