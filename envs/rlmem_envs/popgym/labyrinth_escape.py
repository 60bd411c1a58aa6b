"""LabyrinthEscape of POPGym."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Scores
from rlmem_envs.popgym import maze
from rlmem_envs.popgym.labyrinth import Labyrinth


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
    | oracle | takes the shortest way: 1 - steps/L |
    | full state | Box [4 (h + 1)(w + 1) + 1]: walls, start, goal and walker, a plane of cells each; the share of \
steps taken |

    Mazes are those of mazelib's HuntAndKill with h/2 x w/2 rooms, of which it leaves one closed once in a great many
    mazes. Start and goal are on opposite sides. In the top row and the left column the walker is not in the middle of
    the 3x3 cells but at their upper or left edge. Rules of popgym 1.0.7, also of 1.0.2.

    maze_dims: h and w, even
    episode_length: L
    """

    known = {  # measured over 200,000 episodes, oracle 40,960; memoryless: keeping a hand on the wall
        "easy": Scores(random=-0.4181, memoryless=0.9594, oracle=0.9789),
        "medium": Scores(random=-0.8341, memoryless=0.9181, oracle=0.9648),
        "hard": Scores(random=-0.9564, memoryless=0.8613, oracle=0.9491),
    }
    _hidden = ("maze", "start", "goal")

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        out = self.cells.take(self._walk(actions)) == maze.GOAL
        return out - self._step_cost, out, self.t >= self._last_step

    def _marked(self) -> NDArray[np.bool_]:
        return self.cells == maze.GOAL

    def _make_plans(self, cells: NDArray[np.int8]) -> Facts:
        distance = maze.flood(cells, (cells == maze.GOAL).argmax(1), self._row)
        return {"distance": np.where(distance < 0, cells.size, distance)}

    def oracle(self) -> NDArray[Any]:
        near = (self._base + self.position)[:, None] + self._steps[:4]
        return self._plan()["distance"].take(near).argmin(-1)

    def episode_steps(self) -> tuple[int, int]:
        most = self.params["episode_length"] - 1
        return min(*self.params["maze_dims"], most), most
