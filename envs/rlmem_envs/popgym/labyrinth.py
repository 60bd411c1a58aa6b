"""What the two labyrinths of POPGym share: a maze, a walker in it, and the cells around the walker as observation."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le, MultipleOf
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.popgym import maze
from rlmem_envs.popgym.hunt_and_kill import Stock
from rlmem_envs.popgym.maze import DOWN, FREE, GOAL, LEFT, NONE, RIGHT, START, UP, WALL

Even = Annotated[int, Ge(6), Le(1000), MultipleOf(2)]

_VIEW = np.array([3, 5, 1, 7])
"""Where the cells to the left, right, up and down are in an observation, for a walker in its centre."""


def _turn_right() -> NDArray[np.intp]:
    """The way of a walker whose right hand stays on a wall: by its last action and the open ways as bits, [5, 16]."""
    order = {UP: (RIGHT, UP, LEFT, DOWN), RIGHT: (DOWN, RIGHT, UP, LEFT), DOWN: (LEFT, DOWN, RIGHT, UP)}
    order |= {LEFT: (UP, LEFT, DOWN, RIGHT), NONE: (UP, LEFT, DOWN, RIGHT)}
    return np.array([[next((d for d in order[a] if bits >> d & 1), UP) for bits in range(16)] for a in range(5)])


_HANDS = _turn_right()


class Labyrinth(BatchedEnv):
    """A walker in a maze that sees the 3x3 cells around it and its last action.

    maze_dims: h and w, for h/2 x w/2 rooms in a grid of h + 1 rows and w + 1 columns
    episode_length: one more than the most steps
    """

    tests = "exploration; following a wall does well without memory"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-np.inf, 1.0)
    levels = {
        level: {"maze_dims": (dim, dim), "episode_length": 1024}
        for level, dim in {"easy": 10, "medium": 14, "hard": 18}.items()
    }
    keys = {"a": LEFT, "d": RIGHT, "w": UP, "s": DOWN}
    _hidden: tuple[str, ...] = ("maze", "start")

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        maze_dims: tuple[Even, Even] = (10, 10),
        episode_length: Annotated[int, Ge(2)] = 1024,
        **kwargs: Any,
    ):
        if len(maze_dims) != 2 or any(d < 6 or d % 2 for d in maze_dims):
            raise ValueError(f"maze_dims={list(maze_dims)}: expected height and width, even numbers from 6")
        params = {"maze_dims": tuple(maze_dims), "episode_length": episode_length}
        self._height, self._width = (d + 1 for d in maze_dims)
        full = Box(0, 1, (4 * self._height * self._width + 1,), np.float32)
        super().__init__(num_envs, MultiDiscrete([5] * 10), Discrete(4), params, full_space=full, **kwargs)
        self._row = self._width + 2  # the cells have a ring of walls around them
        size = (self._height + 2) * self._row
        self._base, self._steps = self._all * size, maze.strides(self._row)
        self._step_cost, self._last_step = 1 / episode_length, episode_length - 2
        self._windows = self._make_windows()
        self._stock = Stock(num_envs, maze_dims[0] // 2, maze_dims[1] // 2)
        self._plans: Facts = {}
        self.cells = np.full((num_envs, size), WALL, np.int8)
        self.position = np.zeros(num_envs, np.int64)
        self.last = np.full(num_envs, NONE)

    def _make_windows(self) -> NDArray[np.intp]:
        """Indices of the cells that are seen from every cell [cells, 9], with 0 for what POPGym shows as wall.

        Beyond the bottom and the right there are walls. At the top and on the left the window begins with the walker's
        own row or column, and ends with walls. In mazes that are not square it ends, as in POPGym, at the row whose
        number is the width, and at the column whose number is the height.
        """
        seen = []
        for length, other in ((self._height, self._width), (self._width, self._height)):
            at = np.arange(-1, length + 1)[:, None]
            line = np.maximum(at - 1, 0) + np.arange(3)
            seen.append(np.where(line <= np.minimum(np.minimum(at + 1, other), length - 1), line + 1, -1))
        rows, columns = seen[0][:, None, :, None], seen[1][None, :, None, :]
        return np.where((rows < 0) | (columns < 0), 0, rows * self._row + columns).reshape(-1, 9)

    def _draw(self, who: Who) -> Facts:
        facts = self._stock.take(self.draws, who)
        return {name: facts[name] for name in self._hidden}

    def _begin(self, who: Who, facts: Facts) -> None:
        rows = np.arange(len(who))
        cells = np.full((len(who), self._height + 2, self._row), WALL, np.int8)
        cells[:, 1:-1, 1:-1] = facts["maze"]
        for name, symbol in (("start", START), ("goal", GOAL)):
            if name in facts:
                row, column = facts[name].T + 1
                cells[rows, row, column] = symbol
        self.cells[who] = cells.reshape(-1, self.cells.shape[1])
        row, column = facts["start"].T + 1
        self.position[who] = row * self._row + column
        self.last[who] = NONE

    def _walk(self, actions: NDArray[Any]) -> NDArray[np.intp]:
        """Go where no wall is. Returns the indices [N] of the walkers among the cells of all environments."""
        at = self._base + self.position
        ahead = at + self._steps.take(actions)
        at = np.where(self.cells.take(ahead) == WALL, at, ahead)
        self.position = at - self._base
        self.last = actions.copy()
        return at

    def _observe(self) -> NDArray[Any]:
        observations = np.empty((self.num_envs, 10), np.int64)
        window = self._windows.take(self.position, axis=0)
        window += self._base[:, None]
        observations[:, :9] = self.cells.take(window)
        observations[:, 9] = self.last
        return observations

    def _marked(self) -> NDArray[np.bool_]:
        """The cells that matter beside walls, start and walker, [N, cells]."""
        raise NotImplementedError

    def _full_state(self) -> NDArray[np.float32]:
        walker = one_hot(self.position, self.cells.shape[1])
        planes = np.stack([self.cells == WALL, self.cells == START, self._marked(), walker], 1)
        inner = planes.reshape(self.num_envs, 4, -1, self._row)[:, :, 1:-1, 1:-1]
        return features(inner, self.t / (self._last_step + 1))

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Keep the right hand on the wall, which leads everywhere in a maze without loops, and take the goal if near.

        The last action is the direction in which the walker came. It leaves its start towards the inside, which lies
        below if the start is seen at the top, to the right if seen on the left, and never comes back.
        """
        observation = self._observe()
        near, last = observation[:, _VIEW], observation[:, 9]
        is_open = (near == FREE) | (near == GOAL)
        action = _HANDS[last, is_open @ (1 << np.arange(4))]
        first = last == NONE
        action[first & (near[:, UP] == START)] = DOWN
        action[first & (near[:, LEFT] == START)] = RIGHT
        goal = near == GOAL
        return np.where(goal.any(-1), goal.argmax(-1), action)

    def _make_plans(self, cells: NDArray[np.int8]) -> Facts:
        """What the oracle knows about mazes [n, cells], by name."""
        raise NotImplementedError

    def _plan(self) -> Facts:
        """What the oracle knows about the present mazes; it is found out when the oracle is first asked."""
        if not self._plans:
            self._plans = {"cells": np.zeros_like(self.cells)}
        stale = np.flatnonzero((self._plans["cells"] != self.cells).any(1))
        if len(stale):
            cells = self.cells[stale]
            for name, values in ({"cells": cells} | self._make_plans(cells)).items():
                self._plans.setdefault(name, np.zeros(self.cells.shape, values.dtype))[stale] = values
        return self._plans

    def _letters(self, i: int) -> NDArray[np.str_]:
        return np.array([" ", "#", "S", "G"])[self.cells[i]]

    def text(self, i: int) -> str:
        """# are walls, S is the start, G the goal, A the walker, and dots are cells that count as visited."""
        letters = self._letters(i)
        letters[self.position[i]] = "A"
        return "\n".join("".join(row) for row in letters.reshape(-1, self._row)[1:-1, 1:-1])
