"""Supervised learning in which nothing acts: the classes of sequences of an endless stream, with truncated
backpropagation, and what a memory knows of the state of a partially observable process."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal, Protocol, cast, runtime_checkable

import numpy as np
import torch
from annotated_types import Gt, Lt
from gymnasium.spaces import Discrete, MultiDiscrete
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from rlmem.acting.evaluate import Request
from rlmem.algos.supervised.base import Supervised
from rlmem.algos.supervised.feed import DataWindow, Feed, WindowFeed
from rlmem.algos.supervised.recording import read
from rlmem.algos.supervised.windows import Partial, Predict, Ranges, Tables, split, unfit
from rlmem.core.errors import UserError
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


WINDOWS_AT_ONCE = 256
"""Windows that an evaluation reads at once."""


@dataclass(kw_only=True)
class StateModel(Supervised):
    """Predict the state from a history of partial observations (Lu et al. 2024, arXiv:2405.17358, figure 5).

        observability:    E |f(h_T) - s_1|^2 / D   (predict=initial)
        constructability: E_t |f(h_t) - s_t|^2 / D   (predict=current)

    s is standardised with the training episodes' mean and standard deviation; h_t has read o_1 .. o_t and what the
    encoder shows beside them, such as the action before. The paper fixes no more than that; windows, target and split
    are ours.

    dataset: an HDF5 file with the full state (`rlmem.algos.supervised.recording`); the environment says which part
        is seen
    predict: initial: the state in the first slot of a window, from the last one; current: the state of every slot
    window: slots of a row, drawn inside an episode; a shorter episode is one row
    target: full: predict the full state; hidden: predict only what is not seen
    held_out_share: fraction of the episodes that are kept for evaluation
    smoothing: decay of mse_smoothed, an exponential mean over windows
    """

    dataset: str | None = None
    predict: Predict = "current"
    window: PositiveInt = 64
    target: Literal["full", "hidden"] = "full"
    held_out_share: Annotated[float, Gt(0), Lt(1)] = 0.1

    needs = "predicts the state of which an environment shows a part"
    example = "env=hopper_p"
    answers = "windows"
    sign = -1
    continues = False

    def inspect(self, env: Any) -> str | None:
        if not isinstance(env, Partial):
            return f"{self.needs}, which it does not tell; e.g. {self.example}"
        every, self.seen = [*range(env.full_size())], env.seen_slots()
        self.predicted = every if self.target == "full" else [slot for slot in every if slot not in self.seen]
        if not self.predicted:
            return f"algo.target=hidden: everything is seen; e.g. {self.example}"
        self.outputs, self.space = len(self.predicted), cast(Any, env).single_action_space
        return unfit(self.dataset, len(every), self.space)

    def prepare_evaluation(self, streams: Streams, device: torch.device) -> None:
        """Read the data set and choose the held-out episodes: the same ones in every evaluation of a run."""
        recording = read(Path(str(self.dataset)))
        self.digest = recording.digest("observations", "actions")
        if len(recording.lengths) < 2:
            raise UserError(f"algo.dataset={self.dataset}: one episode, and none is left to hold out; expected several")
        self.train, self.unread = split(recording, self.held_out_share, streams.torch("split"))
        self.tables = Tables.of(recording, self.space, self.seen, self.predicted, self.train).to(device)

    def draw(self, rows: int, episodes: Ranges, generator: torch.Generator) -> DataWindow:
        return self.tables.draw(rows, self.window, episodes, self.predict, generator)

    def feed(self, env: Any, streams: Streams, device: torch.device) -> Feed:
        self.prepare_evaluation(streams, device)
        draw = lambda rows, generator: self.draw(rows, self.train, generator)  # noqa: E731
        return WindowFeed(self, draw, streams.torch("windows"), device)

    def window_size(self) -> int:
        return self.window

    def judge(self, answer: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"mse": (answer - target).square().mean(-1)}

    def unseen(self, env: Any, request: Request) -> Iterator[DataWindow]:
        """As `Supervised.unseen`, windows of the held-out episodes."""
        generator, number = request.streams.torch("evaluation/windows"), request.episodes
        for done in range(0, number, WINDOWS_AT_ONCE):
            yield self.draw(min(WINDOWS_AT_ONCE, number - done), self.unread, generator)
