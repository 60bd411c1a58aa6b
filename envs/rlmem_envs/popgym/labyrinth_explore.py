"""LabyrinthExplore of POPGym."""

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
    | full state | Box [4 (h + 1)(w + 1) + 1]: walls, start, visited cells and walker, a plane of cells each; the \
share of steps taken |

    Mazes are those of mazelib's HuntAndKill with h/2 x w/2 rooms, of which it leaves one closed once in a great many
    mazes. In the top row and the left column the walker is not in the middle of the 3x3 cells but at their upper or
    left edge. Rules of popgym 1.0.7, also of 1.0.2.

    maze_dims: h and w, even
    episode_length: L
    """

    known = {  # measured over 40,960 episodes; memoryless: keeping a hand on the wall
        "easy": Scores(random=-0.3578, memoryless=0.9684, oracle=0.9825),
        "medium": Scores(random=-0.6125, memoryless=0.9254, oracle=0.9574),
        "hard": Scores(random=-0.7425, memoryless=0.8646, oracle=0.9189),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        maze_dims: tuple[Even, Even] = (10, 10),
        episode_length: Annotated[int, Ge(2)] = 1024,
        **kwargs: Any,
    ):
        super().__init__(num_envs, maze_dims, episode_length, **kwargs)
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

    def _marked(self) -> NDArray[np.bool_]:
        return self.visited

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

    def _letters(self, i: int) -> NDArray[np.str_]:
        return np.where(self.visited[i] & (self.cells[i] == maze.FREE), ".", super()._letters(i))
