"""State-space modelling: what a memory knows of the state of a partially observable process."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from annotated_types import Gt, Lt
from torch import Tensor

from rlmem.acting.evaluate import Request
from rlmem.algos.supervised.base import Supervised
from rlmem.algos.supervised.dataset.file import read
from rlmem.algos.supervised.feed import DataWindow, Feed, WindowFeed
from rlmem.algos.supervised.windows import Partial, Predict, Ranges, Tables, split, unfit
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.core.types import PositiveInt

EVAL_ROWS = 256
"""Windows that an evaluation reads at once."""


@dataclass(kw_only=True)
class StateModel(Supervised):
    """Predict the state from a history of partial observations (Lu et al. 2024, arXiv:2405.17358, figure 5).

        observability:    E |f(h_T) - s_1|^2 / D   (predict=initial)
        constructability: E_t |f(h_t) - s_t|^2 / D   (predict=current)

    s is standardised with the training episodes' mean and standard deviation; h_t has read o_1 .. o_t and what the
    encoder shows beside them, such as the action before. The paper fixes no more than that; windows, target and split
    are ours.

    dataset: an HDF5 file with the full state (`rlmem.algos.supervised.dataset.file`); the environment says which part
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
        for done in range(0, number, EVAL_ROWS):
            yield self.draw(min(EVAL_ROWS, number - done), self.unread, generator)
