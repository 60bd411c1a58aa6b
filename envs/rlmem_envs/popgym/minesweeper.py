"""MineSweeper of POPGym."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, BatchedEnv, Facts, Scores, Who

SIZES = {"easy": (4, 2), "medium": (6, 6), "hard": (8, 10)}
"""Rows (and columns) of the board, and mines on it."""

CLEAR, MINE, VIEWED = range(3)

PLAY = {
    "easy": "1000 1000 1..1 1212",
    "medium": "000..2 0001.2 001112 .11112 ..111. 2222.2",
    "hard": "00022222 00011112 00011112 21111112 21111112 21111112 21111112 22222222",
}
"""Boards for play without memory: after a count of k, any cell with a k. 2 stands for two or more.

While the count is 0 a corner is uncovered, whose cells are around each other; what shows mines leads elsewhere.
"""

OLDER = {
    "easy": Scores(random=-0.2423, memoryless=-0.2006, oracle=1.0),
    "medium": Scores(random=-0.4013, memoryless=-0.3882, oracle=1.0),
    "hard": Scores(random=-0.4323, memoryless=-0.4256, oracle=1.0),
}
"""Scores by the rules of 1.0.2."""


class MineSweeper(BatchedEnv):
    """Uncover the safe cells of a board; what is seen is how many mines are around the last one.

    | | |
    |---|---|
    | observation | Discrete(min(m + 1, 10)): mines in the 3x3 block around the last cell and on it; 0 at first |
    | action | MultiDiscrete([n, n]): row and column of a cell |
    | reward | new safe cell 1/s; safe cell seen before -0.5/(s - 2); mine -0.5 - 1/s; s = n^2 - m safe cells |
    | end | terminates on a mine and when all safe cells are seen; truncates after s steps if it does not terminate |
    | hidden | `mines` [n, n]: 1 where a mine is |
    | oracle | 1, seeing the mines |
    | full state | Box [2 n^2 + 1]: mines, then cells seen, then the share of steps taken |
    | action_mask | cells that were not seen before |

    m mines lie anywhere with the same chance. n and m are 4 and 2 (easy), 6 and 6 (medium), 8 and 10 (hard).

    Rules of popgym 1.0.7. Those of 1.0.2, which published results come from, truncate one step later, and also an
    episode that terminates then.

    difficulty: n and m
    rules: the version of popgym
    cells: one action for each cell, Discrete(n^2), row by row; masks imply it, since no pair of masks for row and
        column could say which cells are left
    action_mask: see `BatchedEnv`
    """

    tests = "memory of the cells seen, and inference from their counts"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-np.inf, 1.0)
    levels = {name: {"difficulty": name} for name in SIZES}
    known = {  # random: exact, from the chances of k cells seen after t steps; memoryless: 2,000,000 episodes
        "easy": Scores(random=-0.2311, memoryless=-0.1864, oracle=1.0),
        "medium": Scores(random=-0.4009, memoryless=-0.3866, oracle=1.0),
        "hard": Scores(random=-0.4323, memoryless=-0.4250, oracle=1.0),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        difficulty: Literal["easy", "medium", "hard"] = "easy",
        rules: Literal["1.0.7", "1.0.2"] = "1.0.7",
        cells: bool = False,
        action_mask: bool = False,
        **kwargs: Any,
    ):
        n, mines = SIZES[difficulty]
        params = {"difficulty": difficulty, "rules": rules}
        self._by_cell = cells or action_mask
        actions = Discrete(n * n) if self._by_cell else MultiDiscrete([n, n])
        more: dict[str, Any] = {"action_mask": action_mask, "full_space": Box(0, 1, (2 * n * n + 1,), np.float32)}
        super().__init__(num_envs, Discrete(min(mines + 1, 10)), actions, params, **more, **kwargs)
        self._n, self._mines, self._safe = n, mines, n * n - mines
        self._base, self._strides = self._all * n * n, np.array([n, 1])
        self._pay = np.array([1 / self._safe, -0.5 - 1 / self._safe, -0.5 / (self._safe - 2)])
        play = np.array([int(letter) if letter != "." else 3 for letter in PLAY[difficulty].replace(" ", "")])
        self._play, self._number = play.argsort(kind="stable"), np.bincount(play, minlength=3)
        self._first = self._number.cumsum() - self._number
        self._turned = np.array([VIEWED, MINE, VIEWED], np.uint8)
        self.tiles = np.zeros((num_envs, n * n), np.uint8)
        self.counts = np.zeros((num_envs, n * n), np.int8)  # mines in the block around each cell
        self.left = np.zeros(num_envs, np.int64)  # safe cells not seen yet
        self.count = np.zeros(num_envs, np.int64)

    def _draw(self, who: Who) -> Facts:
        mines = np.zeros((len(who), self._n**2), np.uint8)
        places = self.draws.permutation(who, self._n**2)[:, : self._mines]
        mines.put(places + np.arange(len(who))[:, None] * self._n**2, 1)
        return {"mines": mines.reshape(-1, self._n, self._n)}

    def _begin(self, who: Who, facts: Facts) -> None:
        n, mines = self._n, facts["mines"] != 0
        self.tiles[who] = mines.reshape(-1, n * n)
        padded = np.zeros((len(who), n + 2, n + 2), np.int8)
        padded[:, 1:-1, 1:-1] = mines
        rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
        self.counts[who] = (rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]).reshape(-1, n * n)
        self.left[who] = self._safe
        self.count[who] = 0

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        at = actions.copy() if self._by_cell else actions.dot(self._strides)
        at += self._base
        tiles = self.tiles.take(at)
        self.tiles.put(at, self._turned.take(tiles))
        self.left -= tiles == CLEAR
        self.count = self.counts.take(at).astype(np.int64)
        terminated = (tiles == MINE) | (self.left == 0)
        if self.params["rules"] == "1.0.2":
            truncated = self.t >= self._safe
        else:
            truncated = (self.t >= self._safe - 1) & ~terminated
        return self._pay.take(tiles), terminated, truncated

    def _observe(self) -> NDArray[Any]:
        return self.count.copy()

    def oracle(self) -> NDArray[Any]:
        return self._cells((self.tiles == CLEAR).argmax(1))

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """One of the cells that `PLAY` has for the count in view."""
        count = np.minimum(self._observe(), 2)
        number = (rng.random(self.num_envs) * self._number.take(count)).astype(np.intp)
        return self._cells(self._play.take(self._first.take(count) + number))

    def _full_state(self) -> NDArray[np.float32]:
        share = self.t / (self._safe + 1)
        return np.column_stack([self.tiles == MINE, self.tiles == VIEWED, share]).astype(np.float32)

    def _allowed(self) -> NDArray[np.bool_]:
        return self.tiles != VIEWED

    def _cells(self, cells: NDArray[np.intp]) -> NDArray[Any]:
        return cells if self._by_cell else np.stack(np.divmod(cells, self._n), -1)

    def episode_steps(self) -> tuple[int, int]:
        return 1, self._safe + (self.params["rules"] == "1.0.2")

    def scores(self) -> Scores:
        if self.max_episode_steps is not None:
            return UNKNOWN
        return (self.known if self.params["rules"] == "1.0.7" else OLDER)[self.params["difficulty"]]

    def text(self, i: int) -> str:
        """Counts of the cells seen; * are mines, shown once the episode is over."""
        hidden = {CLEAR: ".", MINE: "*" if self.over[i] else "."}
        letters = [hidden.get(tile, str(count)) for tile, count in zip(self.tiles[i], self.counts[i], strict=True)]
        return "\n".join(" ".join(row) for row in np.reshape(letters, (self._n, self._n)))
