"""ColorCubes: walk to cubes that are seen only when one of them has moved."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Horizons, Scores, Who
from rlmem_envs.core.columns import features, one_hot

UP, DOWN, LEFT, RIGHT = range(4)


class ColorCubes(BatchedEnv):
    """Walk to the cube of the wanted colour; where the cubes are is shown only when one of them has moved.

    | | |
    |---|---|
    | observation | Box [2 + 3 N + 2]: one's own row and column; the wanted colour, of N = num_cubes, one-hot; whether \
cubes are shown, and whether with their colours; row and column of each cube, zeros where none is shown |
    | action | Discrete(4): up, down, left, right; walls stop, cubes do not |
    | reward | 1 for entering the cell of the wanted cube |
    | end | terminates with the last of num_targets cubes, truncates after 2 (size - 1) num_targets steps |
    | recall | 1 to 2 size - 3 slots back; with updates=positions as far as the episode reaches |
    | hidden | `cells` [N + 1]: those of the cubes and of the player; `targets` [num_targets]: the wanted colours; \
`luck` [3] of every step: whether a cube moves, which one, and to which free cell |
    | success | all targets were reached |
    | oracle | num_targets, walking straight to each |
    | full state | Box [2 N + 2]: row and column of each cube by colour, the shares of targets reached and steps taken |

    Rows, columns and cells count from 0; numbers of the observation are divided by size - 1. A cube that was reached
    moves to another cell, and the next colour is wanted. In every other step one of the cubes that are not wanted moves
    with the chance `teleport`. A free cell holds neither a cube nor the player. All cubes are shown in the first slot
    and in the slot after a move: by colour, or with updates=positions, after the first slot, in the order of their
    cells and without their colours, so that who moved must be inferred from what was seen before.

    The paper names grid, colours, phases, teleports and the two kinds of updates; the limit of steps and
    what a step of the grid does are of this project.

    size: rows and columns of the grid
    num_cubes: N
    num_targets: cubes to reach
    teleport: the chance that a cube moves by itself in a step
    updates: full: moves show all cubes by colour; positions: without colours
    """

    tests = "a map that is rewritten in part"
    source = "Shchendrigin et al. 2026 (arXiv:2601.15086)"
    levels = {
        "trivial": {"size": 6, "num_cubes": 1, "num_targets": 1, "teleport": 0.0, "updates": "full"},
        "medium": {"size": 6, "num_cubes": 3, "num_targets": 5, "teleport": 0.1, "updates": "full"},
        "extreme": {"size": 6, "num_cubes": 3, "num_targets": 5, "teleport": 0.1, "updates": "positions"},
    }
    known = {  # random and memoryless: measured over 200,000 episodes and more, standard errors up to 0.003
        "trivial": Scores(random=0.153, memoryless=0.370, oracle=1.0),
        "medium": Scores(random=0.677, memoryless=2.847, oracle=5.0),
        "extreme": Scores(random=0.677, memoryless=2.547, oracle=5.0),
    }
    keys = {"w": UP, "s": DOWN, "a": LEFT, "d": RIGHT}
    per_step = {"luck": (3,)}

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        size: Annotated[int, Ge(2), Le(100)] = 6,
        num_cubes: Annotated[int, Gt(0), Le(1_000)] = 3,
        num_targets: Annotated[int, Gt(0), Le(10_000)] = 5,
        teleport: Annotated[float, Ge(0), Le(1)] = 0.1,
        updates: Literal["full", "positions"] = "full",
        **kwargs: Any,
    ):
        if num_cubes + 2 > size * size:
            raise ValueError(f"num_cubes={num_cubes}: expected at most {size * size - 2}, a free cell left of {size}^2")
        self._size, self._cubes, self._targets, self._teleport = size, num_cubes, num_targets, teleport
        self._coloured, self._limit = updates == "full", 2 * (size - 1) * num_targets
        self._ranges = {"cells": (0, size * size - 1), "targets": (0, num_cubes - 1)}
        params = {"size": size, "num_cubes": num_cubes, "num_targets": num_targets, "teleport": teleport}
        full = Box(0, 1, (2 * num_cubes + 2,), np.float32)
        space = Box(0, 1, (4 + 3 * num_cubes,), np.float32)
        super().__init__(num_envs, space, Discrete(4), params | {"updates": updates}, full_space=full, **kwargs)
        self.cubes = np.zeros((num_envs, num_cubes), np.int64)  # their cells
        self.player = np.zeros(num_envs, np.int64)  # its cell
        self.targets = np.zeros((num_envs, num_targets + 1), np.int64)  # one more for episodes that are over
        self.reached = np.zeros(num_envs, np.int64)
        self.shown = np.zeros(num_envs, bool)
        self._steps_of = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])

    def _draw(self, who: Who) -> Facts:
        return {
            "cells": self.draws.permutation(who, self._size**2)[:, : self._cubes + 1],
            "targets": self.draws.integers(who, self._cubes, self._targets),
        }

    def _problem(self, facts: Facts) -> str | None:
        in_order = np.sort(facts["cells"], axis=1)
        return super()._problem(facts) or ("`cells` are not all different" if not np.diff(in_order).all() else None)

    def _begin(self, who: Who, facts: Facts) -> None:
        self.cubes[who], self.player[who] = facts["cells"][:, :-1], facts["cells"][:, -1]
        self.targets[who, :-1] = facts["targets"]
        self.reached[who], self.shown[who] = 0, True

    def _wanted(self) -> NDArray[np.int64]:
        return self.targets[self._all, self.reached]

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        luck = self._or_given("luck", self.draws.uniform(None, 3), self._all, self.t)
        place = np.stack(np.divmod(self.player, self._size), -1) + self._steps_of[actions]
        row, column = place.clip(0, self._size - 1).T
        self.player = row * self._size + column
        wanted, self.cubes = self._wanted(), self.cubes.copy()
        caught = (self.cubes[self._all, wanted] == self.player) & ~self.over
        leaves = ~caught & (luck[:, 0] < self._teleport) & (self._cubes > 1)
        other = (wanted + 1 + (luck[:, 1] * (self._cubes - 1)).astype(np.int64)) % self._cubes
        self.shown = caught | leaves
        if self.shown.any():
            self._move(np.flatnonzero(self.shown), np.where(caught, wanted, other), luck[:, 2])
        self.reached = self.reached + caught
        terminated = caught & (self.reached == self._targets)
        return caught.astype(np.float64), terminated, ~terminated & (self.t + 1 >= self._limit)

    def _move(self, who: Who, cube: NDArray[np.int64], luck: NDArray[np.float64]) -> None:
        """Move one cube of each environment `who` to a free cell."""
        free = np.ones((len(who), self._size**2), bool)
        rows = np.arange(len(who))
        free[rows[:, None], self.cubes[who]] = free[rows, self.player[who]] = False
        number = (luck[who] * free.sum(1)).astype(np.int64)
        self.cubes[who, cube[who]] = (free.cumsum(1) > number[:, None]).argmax(1)

    def _colours_seen(self) -> NDArray[np.bool_]:
        """Whether cubes are shown with their colours [N]."""
        return self.shown & (self._coloured | (self.t == 0))

    def _observe(self) -> NDArray[np.float32]:
        coloured = self._colours_seen()
        cubes = np.where(coloured[:, None], self.cubes, np.sort(self.cubes, axis=1))
        places = np.stack(np.divmod(cubes, self._size), -1) * self.shown[:, None, None]
        own = np.stack(np.divmod(self.player, self._size), -1)
        wanted = one_hot(self._wanted(), self._cubes)
        scale = self._size - 1
        return features(own / scale, wanted, self.shown, coloured, places / scale)

    def _full_state(self) -> NDArray[np.float32]:
        places = np.stack(np.divmod(self.cubes, self._size), -1) / (self._size - 1)
        return features(places, self.reached / self._targets, self.t / self._limit)

    def _success(self) -> NDArray[np.bool_]:
        return self.reached == self._targets

    def _way(self) -> NDArray[np.int64]:
        """Rows and columns [2, N] from the player to the wanted cube."""
        goal = self.cubes[self._all, self._wanted()]
        return np.stack(np.divmod(goal, self._size)) - np.stack(np.divmod(self.player, self._size))

    def _distance(self) -> NDArray[np.int64]:
        """Steps [N] to the wanted cube."""
        return np.abs(self._way()).sum(0)

    def _towards(self) -> NDArray[np.int64]:
        """Actions [N] that bring the player nearer to the wanted cube: rows first."""
        down, right = self._way()
        return np.where(down != 0, np.where(down > 0, DOWN, UP), np.where(right > 0, RIGHT, LEFT))

    def oracle(self) -> NDArray[Any]:
        return self._towards()

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """It goes round through all cells, and takes the wanted cube if it sees it in the next cell.

        A single cube it goes after wherever it sees it. Of several that does not pay: it would lose its way round.
        """
        row, column = np.divmod(self.player, self._size)
        last, edge = self._size - 1, np.where(row == 0, 0, 1)
        along = np.where(row % 2 == 0, np.where(column < last, RIGHT, DOWN), np.where(column > edge, LEFT, DOWN))
        along = np.where(row == last, LEFT, along)
        round_trip = np.where((column == 0) & (row > 0), UP, along)
        near = self._colours_seen() & ((self._distance() == 1) | (self._targets == 1))
        return np.where(near, self._towards(), round_trip)

    def episode_steps(self) -> tuple[int, int]:
        return self._targets, self._limit

    def _horizons(self) -> Horizons:
        return Horizons(1, max(1, 2 * self._size - 3) if self._coloured else self._limit - 1)

    def text(self, i: int) -> str:
        board = np.full(self._size**2, ".")
        if self.shown[i]:
            coloured = self._colours_seen()[i]
            for colour, cell in enumerate(self.cubes[i]):
                board[cell] = chr(ord("a") + colour % 26) if coloured else "x"
        board[self.player[i]] = "@"
        rows = ("".join(row) for row in board.reshape(self._size, -1))
        return "\n".join([*rows, f"wanted: {chr(ord('a') + self._wanted()[i] % 26)}"])
