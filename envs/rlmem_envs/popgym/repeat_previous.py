"""RepeatPrevious of POPGym."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Demand, Facts, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.core.open_loop import OpenLoopEnv, Script
from rlmem_envs.popgym import cards


class RepeatPrevious(OpenLoopEnv):
    """Cards are shown one by one; name the suit of the card k - 1 before the present one.

    | | |
    |---|---|
    | observation | Discrete(4): suit of the present card |
    | action | Discrete(4): a suit |
    | reward | once k cards are seen +1/(n - k) if right, else -1/(n - k), where n = 52 num_decks |
    | end | terminates after n - 1 steps |
    | recall | k - 1 slots back |
    | hidden | `deck` [n]: the cards in the order in which they are dealt |
    | oracle | 1, naming the suit that it has seen |
    | full state | Box [4 k + 1]: the last k suits one-hot, the present one first, and the share of cards dealt |

    Rules of popgym 1.0.7, also of 1.0.2.

    num_decks: decks shuffled into one
    k: which card, the present one being k = 1
    """

    tests = "recall of the input k - 1 steps back"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-1.0, 1.0)
    levels = {
        "easy": {"num_decks": 1, "k": 4},
        "medium": {"num_decks": 2, "k": 32},
        "hard": {"num_decks": 3, "k": 64},
    }
    known = {  # memoryless: any other suit than the present one, 13d of the 52d - 1 other cards
        level: Scores(random=-0.5, memoryless=26 * decks / (52 * decks - 1) - 1, oracle=1.0)
        for level, decks in {"easy": 1, "medium": 2, "hard": 3}.items()
    }
    keys = cards.SUIT_KEYS

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_decks: Annotated[int, Gt(0), Le(1000)] = 1,
        k: Annotated[int, Ge(1)] = 4,
        **kwargs: Any,
    ):
        n = cards.DECK * num_decks
        if k >= n:
            raise ValueError(f"k={k}: expected less than the {n} cards of num_decks={num_decks}")
        self._n, self._k = n, k
        pay = np.where(np.arange(n - 1) >= k - 1, 1 / (n - k), 0.0)
        suits = Discrete(cards.SUITS)
        params, full = {"num_decks": num_decks, "k": k}, Box(0, 1, (cards.SUITS * k + 1,), np.float32)
        super().__init__(num_envs, suits, suits, params, right=pay, wrong=-pay, full_space=full, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"deck": self.draws.permutation(who, self._n)}

    def _script(self, facts: Facts) -> Script:
        suits = cards.suit(facts["deck"])
        answers = np.full((len(suits), self._n - 1), -1, np.int8)
        answers[:, self._k - 1 :] = suits[:, : self._n - self._k]
        return Script(suits, answers)

    def _full_state(self) -> NDArray[np.float32]:
        ago = self.t[:, None] - np.arange(self._k)  # [N, k]
        suit = np.where(ago >= 0, self.tape[np.maximum(ago, 0), self._all[:, None]], -1)
        return features(one_hot(suit, cards.SUITS), self.t / self._n)

    def _demand(self) -> Demand:
        return Demand(slot=np.arange(self._k - 1, self._steps), back=np.array([self._k - 1]))

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return (self._observe() + 1) % cards.SUITS

    def text(self, i: int) -> str:
        return cards.SUIT_NAMES[self._observe()[i]]
