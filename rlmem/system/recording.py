"""What a method may take from the host's memory while it is recorded as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from torch import Tensor


class CannotRecord(RuntimeError):
    """A graph of what was called would replay numbers that belong to another call."""


class Recording:
    """Stands by while a method is recorded as a CUDA graph, which replays the work of the device alone.

    What the host computes, such as the order in which episodes are packed, is computed once, from flags whose values
    the host knows. So the method runs twice before it is replayed: once to be `watched`, when the arrays are kept that
    it brings to the device, and once to be `captured`, when it is given the same ones. A graph then holds for all
    inputs with the same flags.

    arrays: what was brought to the device, as it was on the host and as it is there
    reads_flags: whether the values of flags were asked for on the host
    """

    current: ClassVar[Recording | None] = None

    def __init__(self) -> None:
        self.arrays: list[tuple[np.ndarray, Tensor]] = []
        self.reads_flags = False
        self._given: Iterator[tuple[np.ndarray, Tensor]] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within, the method runs as ever."""
        self.arrays, self._given = [], None
        with self._standing_by():
            yield

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Within, the method is recorded."""
        self._given = iter(self.arrays)
        with self._standing_by():
            yield

    @contextmanager
    def _standing_by(self) -> Iterator[None]:
        Recording.current = self
        try:
            yield
        finally:
            Recording.current = None

    def bring(self, values: np.ndarray, move: Callable[[], Tensor]) -> Tensor:
        """`move()`, the values on the device; of a method that is captured, what it brought before."""
        if self._given is None:
            self.arrays.append((values.copy(), move()))
            return self.arrays[-1][1]
        before, there = next(self._given, (None, None))
        if before is None or there is None or not np.array_equal(before, values):
            raise CannotRecord("it brings other arrays to the device in every call")
        return there

    def ask(self, is_known: bool) -> None:
        """The values of flags are asked for on the host, where they are known or must be waited for."""
        self.reads_flags = True
        if self._given is not None and not is_known:
            raise CannotRecord("it waits for the device")
