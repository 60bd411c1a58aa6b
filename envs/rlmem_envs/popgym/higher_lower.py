"""HigherLower of POPGym."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Horizons, Scores, Who
from rlmem_envs.core.columns import features
from rlmem_envs.core.open_loop import OpenLoopEnv, Script
from rlmem_envs.popgym import cards

HIGHER, LOWER, TIE = 0, 1, -1


class HigherLower(OpenLoopEnv):
    """Cards are shown one by one; guess whether the next one ranks higher or lower.

    | | |
    |---|---|
    | observation | Discrete(13): rank of the present card, ace low |
    | action | Discrete(2): 0 higher, 1 lower |
    | reward | +1/n if right, -1/n if wrong, 0 if the next card ranks the same; n = 52 num_decks |
    | end | terminates after n - 1 steps |
    | recall | 1 to n - 2 slots back |
    | hidden | `deck` [n]: the cards in the order in which they are dealt |
    | oracle | counts the cards: guesses what most of the remaining ones are |
    | full state | Box [14]: cards of each rank that are left, as shares of 4 num_decks; the share of steps taken |

    The oracle has perfect memory but does not know the order of the cards: no player can expect more.

    Rules of popgym 1.0.7, also of 1.0.2.

    num_decks: decks shuffled into one
    """

    tests = "counting all ranks to know what is left"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-1.0, 1.0)
    levels = {"easy": {"num_decks": 1}, "medium": {"num_decks": 2}, "hard": {"num_decks": 3}}
    # memoryless: of n - 1 other cards |12 - 2r| * n/13 more lie on one side of rank r; oracle: the mean difference of
    # both sides among the remaining cards, by the hypergeometric distribution
    known = {
        level: Scores(random=0.0, memoryless=84 / 169, oracle=oracle)
        for level, oracle in {"easy": 0.5276, "medium": 0.5161, "hard": 0.5115}.items()
    }
    keys = {"h": HIGHER, "l": LOWER}

    def __init__(
        self, num_envs: Annotated[int, Gt(0)] = 1, num_decks: Annotated[int, Gt(0), Le(1000)] = 1, **kwargs: Any
    ):
        self._n = n = cards.DECK * num_decks
        pay = np.full(n - 1, 1 / n)
        ranks, params = Discrete(cards.RANKS), {"num_decks": num_decks}
        full = Box(0, 1, (cards.RANKS + 1,), np.float32)
        super().__init__(num_envs, ranks, Discrete(2), params, right=pay, wrong=-pay, full_space=full, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"deck": self.draws.permutation(who, self._n)}

    def _script(self, facts: Facts) -> Script:
        ranks = cards.rank(facts["deck"])
        change = np.sign(np.diff(ranks))
        return Script(ranks, np.array([TIE, HIGHER, LOWER])[change])

    def _full_state(self) -> NDArray[np.float32]:
        left = np.where(np.arange(self._n)[:, None] > self.t, self.tape, -1)  # [n, N]
        counts = np.stack([(left == rank).sum(0) for rank in range(cards.RANKS)], 1)
        return features(counts * cards.RANKS / self._n, self.t / self._steps)

    def oracle(self) -> NDArray[Any]:
        remaining = np.arange(self._n)[:, None] > self.t
        sides = np.sign(self.tape - self._observe())
        return np.where((sides * remaining).sum(0) >= 0, HIGHER, LOWER)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return np.where(self._observe() <= cards.RANKS // 2, HIGHER, LOWER)

    def _horizons(self) -> Horizons:
        return Horizons(1, self._n - 2)

    def text(self, i: int) -> str:
        return cards.RANK_NAMES[self._observe()[i]]
