"""Temporal order: endless streams of symbols, to be classified by which markers came, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Gt
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlmem_envs.core.draws import Draws

DISTRACTORS = 4
RUNS = (
    (((0, 8),), ((1, 10),), ((0, 4), (1, 4)), ((0, 5), (2, 5)), ((1, 6), (3, 6))),
    (((2, 8),), ((3, 10),), ((2, 4), (3, 4)), ((0, 5), (3, 5)), ((1, 6), (2, 6))),
)
"""The slow forms of markers 0 and 1: five each, as runs (distractor, steps). Every form holds other distractors than
the nine others, and the two markers are alike in how long their forms are."""

SLOW_BOUNDARY = (4, 8)
"""Fewest and most steps of a slow start or end."""


@dataclass(frozen=True)
class Variant:
    """length, positions: fewest and most symbols; first and last index at which each marker may begin."""

    length: tuple[int, int]
    positions: tuple[tuple[int, int], ...]
    slow: bool = False

    def shortened(self, by: int) -> Variant:
        """Lengths and places so many times smaller. Raises ValueError where the markers would not fit."""
        places = tuple((first // by, last // by) for first, last in self.positions)
        apart = all(last < first for (_, last), (first, _) in pairwise(places))
        if by > 1 and (self.slow or by > 10 or not apart):
            raise ValueError(f"shorten={by}: leaves no room for the markers; expected at most 10, and 1 for slow ones")
        return Variant((self.length[0] // by, self.length[1] // by), places, self.slow)


VARIANTS = {
    "two_symbols": Variant((100, 110), ((10, 20), (50, 60))),
    "three_symbols": Variant((100, 110), ((10, 20), (33, 43), (66, 76))),
    "low_frequency": Variant((98, 133), ((10, 20), (50, 60)), slow=True),
}

Name = Literal["two_symbols", "three_symbols", "low_frequency"]


class Minibatch(NamedTuple):
    """B rows of T symbols, [B, T] each.

    symbols: 0 .. num_symbols - 1
    start: whether a sequence begins here
    label: class of the running sequence
    mask: whether it ends here, where the class is due
    """

    symbols: NDArray[np.int64]
    start: NDArray[np.bool_]
    label: NDArray[np.int64]
    mask: NDArray[np.bool_]


class TemporalOrderStream:
    """Rows of sequences, one after another without end, cut into windows; each row is an independent sampler.

    A sequence is a start, distractors (any of four, equally likely), two or three markers, and an end. Each marker is
    one of two; its class is the binary number of the markers, the first one weighing most. Windows follow each other
    in time and rows are not aligned, so a sequence ends anywhere in a window and goes on in the next, where a network
    must go on with its state.

    | variant | symbols | classes | length | markers begin at |
    |---|---|---|---|---|
    | two_symbols | 4 distractors, 2 markers, start, end | 4 | 100-110 | 10-20, 50-60 |
    | three_symbols | the same | 8 | 100-110 | 10-20, 33-43, 66-76 |
    | low_frequency | 4 distractors, start, end | 4 | 98-133 | 10-20, 50-60 |

    The start has index 0, lengths count start and end, and all are uniform. In low_frequency a marker is one of five
    runs of distractors, 8 to 12 steps long, and start and end take 4 to 8 steps. All classes are equally likely.

    Stepleton et al. 2018 (arXiv:1805.04955), after Hochreiter and Schmidhuber (1997), tasks 6a and 6b, from whom the
    places of later markers are. The paper does not list its slow runs nor say how long start and end last: ours.

    Row i with seed s is the same for every batch_size, and its stream the same for every window.

    batch_size, window: B and T
    shorten: lengths and places of markers are so many times smaller
    """

    def __init__(
        self,
        batch_size: Annotated[int, Gt(0)],
        window: Annotated[int, Gt(0)],
        variant: Name = "two_symbols",
        seed: Annotated[int, Ge(0)] = 0,
        shorten: Annotated[int, Gt(0)] = 1,
    ):
        if variant not in VARIANTS:
            raise ValueError(f"variant={variant}: expected one of {', '.join(VARIANTS)}")
        self.batch_size, self.window = batch_size, window
        self._variant = VARIANTS[variant].shortened(shorten)
        self._first_marker = DISTRACTORS
        self._begin = DISTRACTORS + (0 if self._variant.slow else 2)
        self._end = self._begin + 1
        self.num_symbols, self.num_classes = self._end + 1, 2 ** len(self._variant.positions)
        self._draws = Draws(batch_size)
        self._rows = np.arange(batch_size)
        self._draws.seed(seed, self._rows)
        self._sequences = np.zeros((batch_size, self._variant.length[1]), np.int64)
        self._length = np.zeros(batch_size, np.int64)
        self._label = np.zeros(batch_size, np.int64)
        self._position = np.zeros(batch_size, np.int64)
        self._renew(self._rows)

    def next(self, window: int | None = None) -> Minibatch:
        """The next window of every row; window: its T, if it is not the usual one."""
        shape = self.batch_size, window or self.window
        symbols, label = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        start, mask = np.zeros(shape, bool), np.zeros(shape, bool)
        columns, filled = np.arange(shape[1]), np.zeros(self.batch_size, np.int64)
        while (filled < shape[1]).any():  # write on in every row, to the end of the window or of the sequence
            index = (self._position - filled)[:, None] + columns
            here = (columns >= filled[:, None]) & (index < self._length[:, None])
            shown = np.take_along_axis(self._sequences, index.clip(0, self._variant.length[1] - 1), 1)
            np.copyto(symbols, shown, where=here)
            np.copyto(label, self._label[:, None], where=here)
            np.copyto(start, index == 0, where=here)
            np.copyto(mask, index == self._length[:, None] - 1, where=here)
            written = here.sum(1)
            filled += written
            self._position += written
            ended = np.flatnonzero(self._position == self._length)
            if ended.size:
                self._renew(ended)
        return Minibatch(symbols, start, label, mask)

    def _renew(self, rows: NDArray[np.intp]) -> None:
        """Draw the next sequences of `rows`."""
        self._draws.next_episode(rows)
        low, high = self._variant.length
        length = low + self._draws.integers(rows, high - low + 1)
        symbols = self._draws.integers(rows, DISTRACTORS, high)
        label = np.zeros(len(rows), np.int64)
        for first, last in self._variant.positions:
            marker = self._draws.integers(rows, 2)
            self._write_marker(rows, symbols, marker, first + self._draws.integers(rows, last - first + 1))
            label = 2 * label + marker
        index = np.arange(high)
        symbols[index < self._boundary(rows)] = self._begin
        symbols[index >= length[:, None] - self._boundary(rows)] = self._end  # what is beyond the length is not read
        self._sequences[rows], self._length[rows], self._label[rows], self._position[rows] = symbols, length, label, 0

    def _boundary(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """How many steps starts or ends take [rows, 1]."""
        if not self._variant.slow:
            return np.ones((len(rows), 1), np.int64)
        low, high = SLOW_BOUNDARY
        return low + self._draws.integers(rows, high - low + 1, 1)

    def _write_marker(
        self,
        rows: NDArray[np.intp],
        symbols: NDArray[np.int64],
        marker: NDArray[np.int64],
        position: NDArray[np.int64],
    ) -> None:
        if not self._variant.slow:
            symbols[np.arange(len(rows)), position] = self._first_marker + marker
            return
        form = SLOW_MARKERS[marker, self._draws.integers(rows, SLOW_MARKERS.shape[1])]  # [rows, 12]
        row, step = np.nonzero(form >= 0)
        symbols[row, position[row] + step] = form[row, step]

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here."""
        return {"draws": self._draws.state()} | {name: getattr(self, name).copy() for name in _ARRAYS}

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a stream of the same batch_size and variant to a saved `state`."""
        self._draws.restore(state["draws"])
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name]))


class TemporalOrder:
    """The task as `env=temporal_order` names it: streams of one variant, for an algorithm that classifies.

    Spaces are those of a slot: what is shown, and which classes there are.

    variant, shorten: see `TemporalOrderStream`
    """

    tests = "remembering which symbols came, and in which order"
    source = "Stepleton et al. 2018 (arXiv:1805.04955), after Hochreiter and Schmidhuber (1997)"

    def __init__(self, variant: Name = "two_symbols", shorten: Annotated[int, Gt(0)] = 1):
        self._rules: dict[str, Any] = {"variant": variant, "shorten": shorten}
        one = self.stream(1, 1, 0)
        self.single_observation_space = Discrete(one.num_symbols)
        self.single_action_space = Discrete(one.num_classes)

    def stream(self, batch_size: int, window: int, seed: int) -> TemporalOrderStream:
        """`batch_size` rows that nobody has read yet."""
        return TemporalOrderStream(batch_size, window, seed=seed, **self._rules)

    def close(self) -> None:
        """Nothing is held."""


_ARRAYS = ("_sequences", "_length", "_label", "_position")


def _slow_markers() -> NDArray[np.int64]:
    """RUNS symbol by symbol: [2, 5, 12], -1 after the last."""
    forms = [[[letter for letter, steps in runs for _ in range(steps)] for runs in forms] for forms in RUNS]
    longest = max(len(form) for marker in forms for form in marker)
    return np.array([[form + [-1] * (longest - len(form)) for form in marker] for marker in forms])


SLOW_MARKERS = _slow_markers()
