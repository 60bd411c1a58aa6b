"""LabyrinthExplore of POPGym."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Scores, Who
from rlmem_envs.popgym import maze
from rlmem_envs.popgym.labyrinth import Even, Labyrinth


class LabyrinthExplore(Labyrinth):
    """Visit every cell of a maze, seeing the 3x3 cells around.

    | | |
    |---|---|
    | observation | MultiDiscrete([5] * 10): the 3x3 cells, row by row, and the last action (4 at first) |
    | cells | 0 free, 1 wall, 2 start; 3 and 4 are never seen |
    | action | Discrete(4): left, right, up, down; into a wall it does nothing |
    | reward | 1/f in a new one of the f free cells, else -1/L, L = episode_length |
    | end | terminates when all cells are visited; truncates after L - 1 steps, both flags together if both |
    | hidden | `maze` [h + 1, w + 1]: 1 where a wall is; `start` [2]: row and column, in an outer wall |
    | oracle | goes depth first, to the deepest cell last: 1 - (f - its depth)/L |

    The maze is the HuntAndKill of mazelib on h/2 x w/2 rooms, of which a few may stay closed, sometimes the one at the
    start. On the top row and in the left column the walker is seen at the edge of the 3x3 cells. Rules of popgym 1.0.7,
    also of 1.0.2.

    maze_dims: h and w, even
    episode_length: L
    """

    tests = "exploration; following a wall does well without memory"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    levels = {
        level: {"maze_dims": (dim, dim), "episode_length": 1024}
        for level, dim in {"easy": 10, "medium": 14, "hard": 18}.items()
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        maze_dims: tuple[Even, Even] = (10, 10),
        episode_length: Annotated[int, Ge(2)] = 1024,
        **kwargs: Any,
    ):
        super().__init__(num_envs, maze_dims, episode_length, **kwargs)
        self._step_cost = 1 / episode_length
        self.visited = np.zeros(self.cells.shape, bool)
        self.left = np.zeros(num_envs, np.int64)  # cells that were not visited yet
        self.pay = np.zeros(num_envs)  # for a new cell

    def _begin(self, who: Who, facts: Facts) -> None:
        super()._begin(who, facts)
        self.visited[who] = False
        self.visited[who, self.position[who]] = True
        self.left[who] = (self.cells[who] == maze.FREE).sum(1)
        self.pay[who] = 1 / np.maximum(self.left[who], 1)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        at = self._walk(actions)
        is_new = ~self.visited.take(at)
        self.visited.put(at, True)
        self.left -= is_new
        return np.where(is_new, self.pay, -self._step_cost), self.left == 0, self.t >= self._last_step

    def _make_plans(self, cells: NDArray[np.int8]) -> Facts:
        plan = maze.tour(cells, (cells == maze.START).argmax(1), self._row)
        return plan | {"enter": np.where(plan["enter"] < 0, cells.size, plan["enter"]).astype(np.int32)}

    def oracle(self) -> NDArray[Any]:
        """Towards the first cell on the best tour that was not visited yet."""
        plan, at = self._plan(), self._base + self.position
        enter = plan["enter"]
        target = np.where(self.visited, enter.size, enter).min(-1)[:, None]
        near = at[:, None] + self._steps[:4]
        is_below = (enter.take(near) > enter.take(at)[:, None]) & (enter.take(near) <= target)
        leads_there = is_below & (target < plan["leave"].take(near))
        is_back = near == (self._base + plan["back"].take(at))[:, None]
        return (2 * leads_there + is_back).argmax(-1)

    def episode_steps(self) -> tuple[int, int]:
        most = self.params["episode_length"] - 1
        return min(7, most), most  # no walk is stuck before it has opened four rooms and the three passages

    def _text(self, i: int) -> str:
        """As in the other labyrinth, and dots are cells visited."""
        letters = np.array([" ", "#", "S", "G"])[self.cells[i]]
        letters[self.visited[i]] = "."
        letters[self.position[i]] = "A"
        return "\n".join("".join(row) for row in letters.reshape(-1, self._row)[1:-1, 1:-1])
