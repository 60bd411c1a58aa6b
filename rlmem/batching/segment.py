"""Segment-based batching: rows of one piece of an episode each."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlmem.batching.base import Batching, Pieces, Rows, StateSlots, draw_weighted, least
from rlmem.core.errors import UserError
from rlmem.core.types import Batch, NonNegativeInt, PositiveInt, Spans, on_host


class Segment(Batching):
    """Episodes cut into rows of at most `length` acted slots plus one that only supplies a value, right-padded.

    Rows never join two episodes, and the gradient stops where they begin. On-policy, every piece is a row, from the
    memory state that acting had there. Off-policy, rows are drawn uniformly from all segments of the replay: those of
    an episode begin every `length - overlap` slots, and the last one may be short.

    length: acted slots per row; null: whole episodes (on-policy: as far as the rollout reaches)
    The rest is for replay:
    rows: rows of a batch, whatever they hold; null: as many as hold the batch's transitions, the last one shortened
    init_state: what a row inside an episode begins with: the memory's initial state (zero); the one that acting had
        there (stored; Kapturowski et al. 2019); or what the present network makes of all slots before it, read without
        gradient (recompute)
    burn_in: slots before a row that bring that state up to the present network, read without gradient and not counted
        (Kapturowski et al. 2019, R2D2)
    overlap: acted slots that a segment shares with the one before
    running: draw from episodes that have not ended yet, too, as far as their slots have a successor
    pad: pad all rows to `length`, even if every segment in the batch is shorter (published with SBB, Morad et al. 2024)
    detach_every: slots of a row between cuts of the gradient through the state
    """

    def __init__(
        self,
        length: PositiveInt | None = None,
        rows: PositiveInt | None = None,
        init_state: Literal["zero", "stored", "recompute"] = "stored",
        burn_in: NonNegativeInt = 0,
        overlap: NonNegativeInt = 0,
        running: bool = False,
        pad: bool = False,
        detach_every: PositiveInt | None = None,
    ):
        if length is None and (burn_in or overlap):
            name, value = ("burn_in", burn_in) if burn_in else ("overlap", overlap)
            raise UserError(f"batching.{name}={value}: whole episodes have none; e.g. batching.length=64")
        if length is not None and overlap >= length:
            raise UserError(f"batching.overlap={overlap}: must be less than batching.length={length}")
        if length is None and running:
            raise UserError("batching.running=true: whole episodes have ended; e.g. batching.length=64")
        if length is None and pad:
            raise UserError("batching.pad=true: whole episodes have no length to pad to; e.g. batching.length=64")
        if burn_in and init_state == "recompute":
            raise UserError(f"batching.burn_in={burn_in}: init_state=recompute reads all slots before a row already")
        self.length, self.num_rows, self.init_state = length, rows, init_state
        self.burn_in, self.overlap, self.running, self.detach_every = burn_in, overlap, running, detach_every
        self.width = length + 1 if length is not None and pad else 0

    def rows(self, streams: Batch) -> Rows:
        T, spans = streams.shape[1], Spans.of(streams.start)
        acted = np.bincount(spans.number, weights=on_host(streams.mask).reshape(-1)).astype(np.int64)
        length = self.length or T
        count = -(-acted // length)  # rows per span; none where nothing acted
        first_row = np.cumsum(count) - count
        index = np.repeat(np.arange(len(count)), count)
        offset = (np.arange(len(index)) - first_row[index]) * length
        acted = np.minimum(acted[index] - offset, length)
        first = spans.first[index]
        return Rows(first // T, first % T + offset, acted + 1, acted, streams.mask.device, self.detach_every)

    def on_policy_problem(self) -> str | None:
        other_state = None if self.init_state == "stored" else self.init_state
        asked = {"rows": self.num_rows, "init_state": other_state, "burn_in": self.burn_in, "overlap": self.overlap}
        asked |= {"pad": bool(self.width)}
        keys = ", ".join(f"{name}={value}" for name, value in asked.items() if value)
        return f"{keys}: for replay only; on-policy rows begin with the state that acting had" if keys else None

    def reach(self, slots: int | None) -> int | None:
        return least(slots, self.length, self.detach_every)

    def longest_episode(self, batch_size: int) -> int | None:
        return batch_size if self.length is None and self.num_rows is None else None

    def state_slots(self, replay: bool) -> StateSlots | None:
        if self.length is None or (replay and self.init_state != "stored"):
            return None
        return StateSlots(self.length - self.overlap, self.burn_in, "episode") if replay else StateSlots(self.length)

    def draw(self, lengths: Tensor, weight: Tensor | None, batch_size: int, generator: torch.Generator) -> Pieces:
        rows = self.num_rows or batch_size  # enough, since every segment has an acted slot
        if self.length is None:
            stride, mass = 0, torch.ones(len(lengths))
        else:
            stride = self.length - self.overlap
            mass = (lengths - self.overlap).clamp(min=1).add_(stride - 1).div_(stride, rounding_mode="floor")
        count = mass.long()
        episode = draw_weighted(mass.double() if weight is None else mass * weight.double(), rows, generator)
        number = (torch.rand(rows, dtype=torch.float64, generator=generator) * count[episode]).long()
        first = number * stride
        acted = lengths[episode] - first
        if self.length is not None:
            acted.clamp_(max=self.length)
        if self.num_rows is None:
            before = acted.cumsum(0) - acted
            enough = int((before < batch_size).sum())
            episode, first, acted = episode[:enough], first[:enough], acted[:enough]
            acted[-1] = min(int(acted[-1]), batch_size - int(before[enough - 1]))
        prefix = first if self.init_state == "recompute" else first.clamp(max=self.burn_in)
        return Pieces(torch.arange(len(episode)), episode, first, acted, prefix)
