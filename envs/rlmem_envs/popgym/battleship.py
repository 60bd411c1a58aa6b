"""Battleship of POPGym."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Scores, Who

SHIPS = (2, 3, 3, 4)
TRIES, ROUNDS = 4, 250
"""Places that are tried at once for a ship, and how often before the board counts as full."""

SHIP, SHOT = 1, 2
"""Bits of a tile."""


class Battleship(BatchedEnv):
    """Shoot at the cells of a board that hides ships; only the last shot's result is seen.

    | | |
    |---|---|
    | observation | Discrete(2): 1 if the last shot hit a ship where nothing was shot before, else 0; 0 at first |
    | action | MultiDiscrete([n, n]): row and column of a shot, n = board_size |
    | reward | hit 1/s, s = sum(ship_sizes) cells of ships; else, also on a cell once hit, -1/(n^2 - s) |
    | end | terminates with the last cell of a ship; truncates after n^2 steps, both flags together if both |
    | hidden | `board` [n, n]: 1 where a ship is |
    | oracle | 1, seeing the board |
    | full state | Box [2 n^2 + 1]: ships, then cells shot at, then the share of steps taken |
    | action_mask | cells that were not shot at before |

    Ships are straight and do not overlap; they may touch. One after the other, each takes any of its free places with
    the same chance. Rules of popgym 1.0.7, also of 1.0.2.

    board_size: n
    ship_sizes: cells of every ship
    cells: one action for each cell, Discrete(n^2), row by row; masks imply it, since no pair of masks for row and
        column could say which cells are left
    action_mask: see `BatchedEnv`
    """

    tests = "memory of one's own shots and what they hit"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-np.inf, 1.0)
    levels = {
        "easy": {"board_size": 8, "ship_sizes": SHIPS},
        "medium": {"board_size": 10, "ship_sizes": SHIPS},
        "hard": {"board_size": 12, "ship_sizes": SHIPS},
    }
    known = {  # random: exact, from the chances of h hits after t shots; memoryless: measured over 800,000 episodes
        "easy": Scores(random=-0.4489, memoryless=-0.4364, oracle=1.0),
        "medium": Scores(random=-0.4155, memoryless=-0.4042, oracle=1.0),
        "hard": Scores(random=-0.3995, memoryless=-0.3892, oracle=1.0),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        board_size: Annotated[int, Gt(0), Le(1000)] = 10,
        ship_sizes: Sequence[Annotated[int, Gt(0)]] = SHIPS,
        cells: bool = False,
        action_mask: bool = False,
        **kwargs: Any,
    ):
        self._by_cell = cells or action_mask
        n, total = board_size, sum(ship_sizes)
        if not ship_sizes or not all(0 < size <= n for size in ship_sizes):
            raise ValueError(f"ship_sizes={list(ship_sizes)}: expected sizes of 1 to board_size={n} cells")
        if total >= n * n:
            raise ValueError(f"ship_sizes={list(ship_sizes)}: expected less than the {n * n} cells of board_size={n}")
        params = {"board_size": n, "ship_sizes": tuple(ship_sizes)}
        actions = Discrete(n * n) if self._by_cell else MultiDiscrete([n, n])
        more: dict[str, Any] = {"action_mask": action_mask, "full_space": Box(0, 1, (2 * n * n + 1,), np.float32)}
        super().__init__(num_envs, Discrete(2), actions, params, **more, **kwargs)
        self._n, self._cells, self._ship_sizes = n, total, tuple(ship_sizes)
        self._places = {size: _places(n, size) for size in self._ship_sizes}
        self._base, self._strides = self._all * n * n, np.array([n, 1])
        self._pay = np.array([-1 / (n * n - total), 1 / total])
        self._shares = np.cumsum(_shares(n, [self._places[size] for size in self._ship_sizes]))
        self.tiles = np.zeros((num_envs, n * n), np.uint8)  # SHIP and SHOT bits
        self.left = np.zeros(num_envs, np.int64)  # cells of ships that are still to be hit
        self.hit = np.zeros(num_envs, np.int64)

    def _draw(self, who: Who) -> Facts:
        board = np.zeros((len(who), self._n**2), np.uint8)
        chances = self.draws.uniform(who, len(self._ship_sizes), TRIES)
        for ship, size in enumerate(self._ship_sizes):
            self._place(board, self._places[size], who, chances[:, ship])
        return {"board": board.reshape(-1, self._n, self._n)}

    def _place(self, board: NDArray[np.uint8], places: NDArray[np.intp], who: Who, chances: NDArray[Any]) -> None:
        """Add a ship to `board` [m, n * n], at the first free one of random `places`; chances: [m, TRIES] in [0, 1)."""
        rows = np.arange(len(who))
        for _ in range(ROUNDS):
            cells = places.take((chances * len(places)).astype(np.intp), axis=0) + rows[:, None, None] * self._n**2
            free = ~board.take(cells).any(-1)  # [m, TRIES]
            first = free.argmax(1) + np.arange(0, free.size, TRIES)
            placed = free.take(first)
            board.put(cells.reshape(-1, cells.shape[-1])[first[placed]], 1)
            if placed.all():
                return
            rows = rows[~placed]
            chances = self.draws.uniform(who[rows], TRIES)
        raise ValueError(f"ship_sizes={list(self._ship_sizes)}: no place left on a board of board_size={self._n}")

    def _begin(self, who: Who, facts: Facts) -> None:
        self.tiles[who] = facts["board"].reshape(-1, self._n**2) != 0
        self.left[who] = self.tiles[who].sum(1)
        self.hit[who] = 0

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        at = actions.copy() if self._by_cell else actions.dot(self._strides)
        at += self._base
        tiles = self.tiles.take(at)
        hit = tiles == SHIP
        self.tiles.put(at, tiles | SHOT)
        self.left -= hit
        self.hit = hit.astype(np.int64)
        return self._pay.take(self.hit), self.left == 0, self.t >= self._n**2 - 1

    def _observe(self) -> NDArray[Any]:
        return self.hit.copy()

    def oracle(self) -> NDArray[Any]:
        return self._shots((self.tiles == SHIP).argmax(1))

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Random shots, more of them where a ship is more likely."""
        return self._shots(self._shares[:-1].searchsorted(rng.random(self.num_envs), side="right"))

    def _full_state(self) -> NDArray[np.float32]:
        share = self.t / self._n**2
        return np.column_stack([self.tiles & SHIP, self.tiles & SHOT > 0, share]).astype(np.float32)

    def _allowed(self) -> NDArray[np.bool_]:
        return self.tiles & SHOT == 0

    def _shots(self, cells: NDArray[np.intp]) -> NDArray[Any]:
        return cells if self._by_cell else np.stack(np.divmod(cells, self._n), -1)

    def episode_steps(self) -> tuple[int, int]:
        return self._cells, self._n**2

    def text(self, i: int) -> str:
        """X hits, o misses; s are ships, shown once the episode is over."""
        letters = ".soX" if self.over[i] else "..oX"
        return "\n".join(" ".join(letters[tile] for tile in row) for row in self.tiles[i].reshape(self._n, self._n))


def _places(n: int, size: int) -> NDArray[np.intp]:
    """Cells of every straight ship of `size` cells that fits on a board of n x n: [places, size]."""
    across = np.arange(n * n).reshape(n, n)[:, : n - size + 1].reshape(-1, 1) + np.arange(size)
    rows, columns = np.divmod(across, n)
    return np.concatenate([across, columns * n + rows])


def _shares(n: int, ships: list[NDArray[np.intp]]) -> NDArray[np.float64]:
    """Shares of n * n random shots that each cell should get, when ships are as likely at each of their places.

    A cell that holds a ship with chance w and gets a share p of n^2 shots adds w (1 - (1 - p)^(n^2)) hits, nearly
    w (1 - exp(-n^2 p)). Their sum is largest where w exp(-n^2 p) is the same for all cells.
    """
    chance = sum(np.bincount(places.ravel(), minlength=n * n) / len(places) for places in ships)
    logs = np.log(chance)
    shares = np.maximum(1 + logs - logs.mean(), 0)
    return np.asarray(shares / shares.sum())
