"""Concentration of POPGym."""

import math
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.popgym import cards

NO_CARD = -1


class Concentration(BatchedEnv):
    """Cards lie face down; turn two of them up, and they stay if they match.

    | | |
    |---|---|
    | observation | MultiDiscrete([K + 1] * n): kind of the card at each of n = 52 num_decks places, K if face down |
    | action | Discrete(n): a place |
    | reward | a pair +2/n; two cards that do not match, or the same card twice, -2/L; a card that is up for good \
-1/L, and -2/L as the second card of a turn |
    | end | terminates when all cards are up, truncates after L = ceil(2n - n/(2n - 1)) steps |
    | hidden | `deck` [n]: the card at each place |
    | oracle | remembers every card seen: completes a pair when it can, else turns up a new card |
    | full state | Box [(K + 2) n + 1]: kinds of the cards that were seen, one-hot; the place of the first card of a \
turn; the cards that are up for good; the share of steps taken |

    Both cards of a turn are in sight after its second action, whatever they are. A card that is up for good ends the
    turn; the first card, if there was one, is turned back.

    Rules of popgym 1.0.7, also of 1.0.2.

    num_decks: decks laid out
    deck_type: colors | ranks, what makes a pair
    """

    tests = "remembering what lies where"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-np.inf, 1.0)
    levels = {
        "easy": {"num_decks": 1, "deck_type": "colors"},
        "medium": {"num_decks": 2, "deck_type": "colors"},
        "hard": {"num_decks": 1, "deck_type": "ranks"},
    }
    known = {  # measured over 40,960 episodes: standard errors up to 0.0009
        "easy": Scores(random=-0.1910, memoryless=0.4502, oracle=0.8137),
        "medium": Scores(random=-0.1851, memoryless=0.4684, oracle=0.8131),
        "hard": Scores(random=-0.8346, memoryless=-0.8202, oracle=0.6980),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_decks: Annotated[int, Gt(0), Le(1000)] = 1,
        deck_type: Literal["colors", "ranks"] = "ranks",
        **kwargs: Any,
    ):
        self._n = n = cards.DECK * num_decks
        self._kind = cards.KINDS[deck_type]
        self._down = self._kind.count
        self._steps = math.ceil(2 * n - n / (2 * n - 1))
        params = {"num_decks": num_decks, "deck_type": deck_type}
        full = Box(0, 1, ((self._down + 2) * n + 1,), np.float32)
        spaces = MultiDiscrete([self._down + 1] * n), Discrete(n)
        super().__init__(num_envs, *spaces, params, full_space=full, **kwargs)
        self._row = self._all * n
        self._nowhere = num_envs * n
        self._pay = _payments(n, self._steps)
        # places of all tables in one row, and one more place where no card lies
        self.kinds = np.full(num_envs * n + 1, NO_CARD, np.int8)
        self.table = np.full(num_envs * n + 1, self._down, np.int8)  # the cards that are up for good
        self.seen = np.zeros(num_envs * n + 1, bool)
        self.first = np.full(num_envs, self._nowhere)  # place of the first card of the running turn
        self.shown = np.full((2, num_envs), self._nowhere)  # places of the cards of the turn that are in sight
        self.pairs = np.zeros(num_envs, np.int64)

    def _draw(self, who: Who) -> Facts:
        return {"deck": self.draws.permutation(who, self._n)}

    def _begin(self, who: Who, facts: Facts) -> None:
        self._tables(self.kinds)[who] = self._kind.of(facts["deck"])
        self._tables(self.table)[who] = self._down
        self._tables(self.seen)[who] = False
        self.first[who] = self._nowhere
        self.shown[:, who] = self._nowhere
        self.pairs[who] = 0

    def _tables(self, places: NDArray[Any]) -> NDArray[Any]:
        """[N, n]: the places of each environment, without the one where no card lies."""
        return places[:-1].reshape(self.num_envs, self._n)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        first, second = self.first, self._row + actions
        is_second = first != self._nowhere
        is_up = self.table.take(second) != self._down
        kind = self.kinds.take(second)
        match = (self.kinds.take(first) == kind) & (first != second) & ~is_up
        rewards = self._pay.take(4 * is_second + 2 * is_up + match)
        self.seen.put(second, True)
        self.shown = np.stack([first, second])
        self.first = np.where(is_second | is_up, self._nowhere, second)
        if match.any():
            pair = self.shown[:, match]
            self.table.put(pair, kind[match])
            self.pairs += match
        return rewards, self.pairs == self._n // 2, self.t >= self._steps - 1

    def _observe(self) -> NDArray[Any]:
        places = self.table.copy()
        places.put(self.shown, self.kinds.take(self.shown))
        return self._tables(places).astype(np.int64)

    def _full_state(self) -> NDArray[np.float32]:
        known = np.where(self._tables(self.seen), self._tables(self.kinds), NO_CARD)
        first = one_hot(self.first - self._row, self._n)
        up = self._tables(self.table) != self._down
        return features(one_hot(known, self._down), first, up, self.t / self._steps)

    def oracle(self) -> NDArray[Any]:
        kinds, down = self._tables(self.kinds), self._tables(self.table) == self._down
        known = self._tables(self.seen) & down
        cell = self._all[:, None] * self._down + kinds
        counts = np.bincount(cell[known], minlength=self.num_envs * self._down).reshape(self.num_envs, self._down)
        paired = np.where(counts.max(1) >= 2, counts.argmax(1), NO_CARD)
        wanted = np.where(self.first == self._nowhere, paired, self.kinds.take(self.first))
        value = np.zeros(len(self.table))
        self._tables(value)[:] = 2 * (known & (kinds == wanted[:, None])) + (down & ~known)
        value.put(self.first, -1)
        return self._tables(value).argmax(1)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Any card that is face down. What is face up could serve as a memory for a cleverer code; this uses none."""
        down = self._observe() == self._down
        return (rng.random(down.shape) * down).argmax(1)

    def episode_steps(self) -> tuple[int, int]:
        return self._n, self._steps

    def text(self, i: int) -> str:
        names = [*(name[0] if self._down == 2 else name for name in self._kind.names), "."]
        rows = self._observe()[i].reshape(-1, cards.RANKS)
        return "\n".join(" ".join(f"{names[kind]:>2}" for kind in row) for row in rows)


def _payments(n: int, steps: int) -> NDArray[np.float64]:
    """Rewards, flat, of [2, 2, 2]: second card of the turn, card is up for good, cards match."""
    pay = np.zeros((2, 2, 2))
    pay[0, 1] = -1 / steps
    pay[1] = -2 / steps
    pay[1, 0, 1] = 2 / n
    return pay.ravel()
