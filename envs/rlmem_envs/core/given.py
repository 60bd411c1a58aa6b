"""Hidden facts that `reset` is given, in the place of those that would be drawn."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.core.task import Facts, Task, Who


class Given:
    """The facts that running episodes of a task were given.

    Facts of whole episodes replace the drawn ones when an episode begins; those of single steps are kept for them.

    tables: facts of single steps [N, T, ...] by name; NaN where they are drawn
    """

    def __init__(self) -> None:
        self.tables: Facts = {}

    def begin(self, task: Task, who: Who, facts: Facts, hidden: Mapping[str, Any]) -> None:
        """Begin episodes in environments `who`, whose drawn `facts` [n, ...] those in `hidden` [N, ...] replace.

        Raises ValueError, before anything has been kept, for facts that no episode can have.
        """
        tables = _replace(task, facts, hidden, who) if hidden else {}
        if self.tables:
            self._forget(who)
        for name, table in tables.items():
            self._keep(name, table, who)

    def override(self, name: str, drawn: NDArray[Any], who: Who, t: NDArray[np.int64]) -> NDArray[Any]:
        """`drawn` [n, ...] for step t [n] of environments `who`, or what was given for it, which is written into it."""
        if name in self.tables:
            table = self.tables[name]
            rows = np.flatnonzero(t < table.shape[1])
            values = table[who[rows], t[rows]]
            drawn[rows] = np.where(np.isnan(values), drawn[rows], values)
        return drawn

    def state(self) -> Facts:
        return {name: table.copy() for name, table in self.tables.items()}

    def restore(self, state: Facts) -> None:
        self.tables = {name: np.array(table) for name, table in state.items()}

    def _keep(self, name: str, array: NDArray[Any], who: Who) -> None:
        """Keep `array` [N, T, ...] for environments `who`; what the others were given stays."""
        old = self.tables.get(name, array[:, :0])
        table = np.full((len(array), max(old.shape[1], array.shape[1]), *array.shape[2:]), np.nan)
        table[:, : old.shape[1]] = old
        table[who, : array.shape[1]] = array[who]
        self.tables[name] = table

    def _forget(self, who: Who) -> None:
        for name, table in list(self.tables.items()):
            table[who] = np.nan
            if np.isnan(table).all():
                del self.tables[name]


def _replace(task: Task, facts: Facts, hidden: Mapping[str, Any], who: Who) -> Facts:
    """Put what was given in the place of what was drawn; returns the tables [N, T, ...] of single steps."""
    tables = {}
    for name, values in hidden.items():
        array = np.asarray(values)
        if name in facts:
            facts[name] = _as_drawn(name, array, facts[name], who, task.num_envs)
        elif name in task.per_step:
            shape = task.per_step[name]
            if array.dtype.kind not in "fiu" or array.shape[:1] + array.shape[2:] != (task.num_envs, *shape):
                expected = (task.num_envs, "T", *shape)
                raise ValueError(f"hidden fact `{name}` has shape {array.shape}, expected numbers {expected}")
            tables[name] = array
        else:
            names = ", ".join([*facts, *task.per_step])
            raise ValueError(f"`{name}` is no hidden fact of {type(task).__name__}; it has: {names}")
    if problem := task._problem(facts):
        raise ValueError(f"hidden fact {problem}")
    return tables


def _as_drawn(name: str, array: NDArray[Any], drawn: NDArray[Any], who: Who, num_envs: int) -> NDArray[Any]:
    """What was given [N, ...] for environments `who`, in the type and shape of what was drawn [n, ...]."""
    if array.shape != (expected := (num_envs, *drawn.shape[1:])):
        raise ValueError(f"hidden fact `{name}` has shape {array.shape}, expected {expected}")
    with np.errstate(invalid="ignore"):
        values = array[who].astype(drawn.dtype)
    if not np.array_equal(values, array[who]):
        raise ValueError(f"hidden fact `{name}` has values that are not of its type, {drawn.dtype}")
    return values
