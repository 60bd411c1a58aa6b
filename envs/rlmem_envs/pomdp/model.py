"""A decision process as tables, and the exact belief about its state."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A partially observable Markov decision process with A actions, S states and O observations.

    states, actions, observations: their names
    discount: of later rewards, for planning
    start: [S], how likely an episode begins in each state
    T: [A, S, S], how likely action a leads from s to s'
    Z: [A, S, O], how likely o is seen when action a has led to s'
    R: [A, S, S, O], the reward of action a in s if it leads to s' and o is seen; the last two may have size 1
    ends: [S], the states in which an episode is over
    """

    states: tuple[str, ...]
    actions: tuple[str, ...]
    observations: tuple[str, ...]
    discount: float
    start: Table
    T: Table
    Z: Table
    R: Table
    ends: NDArray[np.bool_]

    def __post_init__(self) -> None:
        for field, name in (("start", "start"), ("T", "T"), ("Z", "O")):
            table = getattr(self, field)
            wrong = np.abs(table.sum(-1) - 1) > 1e-4
            if wrong.any() or (table < 0).any():
                place = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else ()
                where = ", ".join(self._named(name, place))
                problem = f"sum to {table.sum(-1)[place]:g}" if wrong.any() else "are negative"
                raise ValueError(f"{name}{f' of {where}' if where else ''}: probabilities {problem}; expected 1 in all")
            total = table.sum(-1, keepdims=True)
            rounded = np.abs(total - 1) > 1e-12  # as files write it, such as 0.333 three times
            object.__setattr__(self, field, np.where(rounded, table / total, table))

    def _named(self, table: str, place: tuple[int, ...]) -> list[str]:
        return (
            [names[i] for names, i in zip((self.actions, self.states), place, strict=False)] if table != "start" else []
        )

    @property
    def pay(self) -> Table:
        """[A, S], the mean reward of an action in a state."""
        return np.einsum("ast,ato,asto->as", self.T, self.Z, np.broadcast_to(self.R, (*self.T.shape, self.Z.shape[-1])))

    def after(self, belief: Table, action: NDArray[Any], seen: NDArray[Any]) -> Table:
        """Beliefs [n, S] after actions [n] and what was seen of them [n]; states that end are left out."""
        new = np.zeros_like(belief)
        for a in np.unique(action):
            rows = action == a
            new[rows] = belief[rows] @ self.T[a] * self.Z[a][:, seen[rows]].T
        new[:, self.ends] = 0
        total = new.sum(-1, keepdims=True)
        return np.where(total > 0, new / np.where(total > 0, total, 1), self.start)
