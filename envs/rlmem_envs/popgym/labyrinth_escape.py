"""LabyrinthEscape of POPGym."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Scores
from rlmem_envs.popgym import maze
from rlmem_envs.popgym.labyrinth import Even, Labyrinth


class LabyrinthEscape(Labyrinth):
    """Find the way out of a maze, seeing the 3x3 cells around.

    | | |
    |---|---|
    | observation | MultiDiscrete([5] * 10): the 3x3 cells, row by row, and the last action (4 at first) |
    | cells | 0 free, 1 wall, 2 start, 3 goal; 4 is never seen |
    | action | Discrete(4): left, right, up, down; into a wall it does nothing |
    | reward | -1/L at every step, L = episode_length, and 1 more at the goal |
    | end | terminates at the goal; truncates after L - 1 steps, both flags together if both |
    | hidden | `maze` [h + 1, w + 1]: 1 where a wall is; `start`, `goal` [2]: row and column, in outer walls |
    | oracle | takes the shortest way: 1 - steps/L, or -1 + 1/L where there is none |

    The maze is the HuntAndKill of mazelib on h/2 x w/2 rooms, of which a few may stay closed, sometimes the one at the
    start or the goal. Start and goal are on opposite sides. On the top row and in the left column the walker is seen at
    the edge of the 3x3 cells. Rules of popgym 1.0.7, also of 1.0.2.

    maze_dims: h and w, even
    episode_length: L
    """

    tests = "exploration; following a wall does well without memory"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    levels = {
        level: {"maze_dims": (dim, dim), "episode_length": 1024}
        for level, dim in {"easy": 10, "medium": 14, "hard": 18}.items()
    }
    _hidden = ("maze", "start", "goal")

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        maze_dims: tuple[Even, Even] = (10, 10),
        episode_length: Annotated[int, Ge(2)] = 1024,
        **kwargs: Any,
    ):
        super().__init__(num_envs, maze_dims, episode_length, **kwargs)
        self._step_cost = 1 / episode_length

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        out = self.cells.take(self._walk(actions)) == maze.GOAL
        return out - self._step_cost, out, self.t >= self._last_step

    def _make_plans(self, cells: NDArray[np.int8]) -> Facts:
        distance = maze.flood(cells, (cells == maze.GOAL).argmax(1), self._row)
        return {"distance": np.where(distance < 0, cells.size, distance)}

    def oracle(self) -> NDArray[Any]:
        near = (self._base + self.position)[:, None] + self._steps[:4]
        return self._plan()["distance"].take(near).argmin(-1)

    def episode_steps(self) -> tuple[int, int]:
        most = self.params["episode_length"] - 1
        return min(*self.params["maze_dims"], most), most
