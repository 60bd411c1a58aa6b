"""RepeatFirst of POPGym."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Demand, Facts, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.core.open_loop import OpenLoopEnv, Script
from rlmem_envs.popgym import cards


class RepeatFirst(OpenLoopEnv):
    """Cards are shown one by one; name the suit of the first card at every step.

    | | |
    |---|---|
    | observation | Discrete(4): suit of the present card |
    | action | Discrete(4): a suit |
    | reward | +1/(n - 1) if right, else -1/(n - 1), where n = 52 num_decks; the first action counts too |
    | end | terminates after n - 1 steps |
    | recall | 1 to n - 2 slots back |
    | hidden | `deck` [n]: the cards in the order in which they are dealt |
    | oracle | 1, naming the suit that it has seen |
    | full state | Box [5]: the suit of the first card one-hot, and the share of cards dealt |

    Rules of popgym 1.0.7, also of 1.0.2.

    num_decks: decks shuffled into one
    """

    tests = "keeping one input for the whole episode"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-1.0, 1.0)
    levels = {"easy": {"num_decks": 1}, "medium": {"num_decks": 8}, "hard": {"num_decks": 16}}
    keys = cards.SUIT_KEYS

    def __init__(
        self, num_envs: Annotated[int, Gt(0)] = 1, num_decks: Annotated[int, Gt(0), Le(1000)] = 1, **kwargs: Any
    ):
        self._n = n = cards.DECK * num_decks
        pay = np.full(n - 1, 1 / (n - 1))
        suits = Discrete(cards.SUITS)
        params, full = {"num_decks": num_decks}, Box(0, 1, (cards.SUITS + 1,), np.float32)
        super().__init__(num_envs, suits, suits, params, right=pay, wrong=-pay, full_space=full, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"deck": self.draws.permutation(who, self._n)}

    def _script(self, facts: Facts) -> Script:
        suits = cards.suit(facts["deck"])
        return Script(suits, np.repeat(suits[:, :1], self._n - 1, axis=1))

    def _full_state(self) -> NDArray[np.float32]:
        return features(one_hot(self.tape[0], cards.SUITS), self.t / self._n)

    def _demand(self) -> Demand:
        slots = np.arange(self._steps)
        return Demand(slot=slots, back=slots)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return self._observe()

    def scores(self) -> Scores:
        """The suit in sight is right at the first step, and afterwards for n/4 - 1 of the n - 1 other cards."""
        if self.max_episode_steps is not None:
            return super().scores()
        n = self._n
        right = 1 + (n - 2) * (n / 4 - 1) / (n - 1)
        return Scores(random=-0.5, memoryless=2 * right / (n - 1) - 1, oracle=1.0)

    def text(self, i: int) -> str:
        return cards.SUIT_NAMES[self._observe()[i]]
