"""Classifying sequences of an endless stream, with truncated backpropagation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from gymnasium.spaces import Discrete, MultiDiscrete
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from rlmem.acting.evaluate import Request
from rlmem.algos.supervised.base import Supervised
from rlmem.algos.supervised.feed import DataWindow, Feed
from rlmem.core.seeding import Streams
from rlmem.core.types import Inputs, PositiveInt, State, on_host, with_host

EVAL_ROWS, EVAL_WINDOW = 64, 128
"""The most rows that an evaluation reads side by side, and the slots of each that it reads at once."""

CHUNK = 256
"""The fewest slots of every row that are drawn at once."""


@runtime_checkable
class Labelled(Protocol):
    """What makes streams of labelled sequences: an environment without actions, or a game whose answers are labels.

    `stream(...).next(window)` has symbols, start, label and mask [B, T]; `state()` and `restore(state)` are exact. Its
    observation space is that of the symbols, its action space that of the classes.
    """

    def stream(self, batch_size: int, window: int, seed: int) -> Any:
        """`batch_size` independent rows, in windows of `window` slots."""

    def close(self) -> None:
        """Free its resources."""


@dataclass(kw_only=True)
class Classify(Supervised):
    """Cross entropy where the class of a sequence is due, as at its last slot (Stepleton et al. 2018, arXiv:1805.04955,
    section 4.1).

    Rows are independent samplers, read in consecutive windows of `truncation` slots. The state is carried from window
    to window, and the gradient stops there: that is truncated backpropagation through time.

    truncation: slots of a window
    reset: reset the memory where a sequence begins; if false, only the symbols mark the beginning
    smoothing: decay of accuracy_smoothed, an exponential mean over the windows that have a target
    """

    truncation: PositiveInt = 32
    batch_size: PositiveInt = 16
    reset: bool = False

    needs = "classifies labelled sequences"
    example = "env=temporal_order"
    answers = "sequences"
    sign = 1
    continues = True

    def inspect(self, env: Any) -> str | None:
        if not isinstance(env, Labelled) or not isinstance(getattr(env, "single_action_space", None), Discrete):
            return f"{self.needs}, of which it has no stream; e.g. {self.example}"
        if not isinstance(getattr(env, "single_observation_space", None), Discrete | MultiDiscrete):
            return f"{self.needs}, and its observations are no symbols of them; e.g. env.observe=partial"
        self.outputs = int(cast(Any, env).single_action_space.n)
        return None

    def feed(self, env: Any, streams: Streams, device: torch.device) -> Feed:
        stream = env.stream(self.batch_size, self.truncation, streams.int("env"))
        return StreamFeed(stream, self.batch_size, self.truncation, self.reset, device)

    def window_size(self) -> int:
        return self.truncation

    def judge(self, answer: Tensor, target: Tensor) -> dict[str, Tensor]:
        right = (answer.argmax(-1) == target).float()
        return {"loss": F.cross_entropy(answer, target, reduction="none"), "accuracy": right}

    def unseen(self, env: Any, request: Request) -> Iterator[DataWindow]:
        """As `Supervised.unseen`, new streams from their beginning; rows share the sequences equally."""
        rows = min(request.episodes, EVAL_ROWS)
        most = request.episodes // rows + (np.arange(rows) < request.episodes % rows)
        stream = env.stream(rows, EVAL_WINDOW, request.streams.int("evaluation/env"))
        feed = StreamFeed(stream, rows, EVAL_WINDOW, self.reset, request.device)
        begun = np.zeros(rows, int)
        while (begun <= most).any():
            window = feed.next(2**62)
            assert window.begins is not None
            number = begun[:, None] + window.begins.cumsum(1)  # of the sequence, from 1
            begun = number[:, -1]
            mask = on_host(window.mask) & (number <= most[:, None])
            yield replace(window, mask=with_host(mask, request.device), due=int(mask.sum()))


class StreamFeed(Feed):
    """Consecutive windows of a stream (`Labelled.stream`), cut from larger chunks, which are cheaper to draw."""

    def __init__(self, stream: Any, rows: int, window: int, reset: bool, device: torch.device):
        super().__init__(device)
        self.stream, self.rows, self.window, self.reset = stream, rows, window, reset
        self.columns = window * -(-CHUNK // window)
        self.reward = torch.zeros(rows, self.columns, device=device)
        self.action = self.reward.long()
        self._refill()

    def _refill(self) -> None:
        self.before, self.at = self.stream.state(), 0
        chunk = self.stream.next(self.columns)
        self.symbols, self.label = (torch.from_numpy(x).to(self.device) for x in (chunk.symbols, chunk.label))
        self.start, self.mask = chunk.start, chunk.mask
        self.due = chunk.mask.sum(0)

    def next(self, budget: int) -> DataWindow:
        began = perf_counter()
        if self.at == self.columns:
            self._refill()
        here = slice(self.at, min(self.at + self.window, self.at + -(-budget // self.rows), self.columns))
        self.at = here.stop
        self.steps += min(budget, self.rows * (here.stop - here.start))
        begins = self.start[:, here]
        start, mask = (with_host(flags, self.device) for flags in (begins & self.reset, self.mask[:, here]))
        inputs = Inputs(self.symbols[:, here], self.action[:, here], self.reward[:, here], start)
        window = DataWindow(inputs, self.label[:, here], mask, int(self.due[here].sum()), begins)
        self.seconds["data"] += perf_counter() - began
        return window

    def carry(self, state: State) -> None:
        self.state = tree_map(lambda leaf: leaf.detach(), state)

    def state_dict(self) -> dict[str, Any]:
        numbers = tree_map(lambda leaf: torch.from_numpy(leaf), self.before)
        return super().state_dict() | {"stream": numbers, "at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.stream.restore(tree_map(lambda leaf: leaf.numpy(), state["stream"]))
        self._refill()
        self.at = state["at"]
