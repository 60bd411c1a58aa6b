"""Autoencode of POPGym."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Horizons, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.core.open_loop import OpenLoopEnv, Script
from rlmem_envs.popgym import cards

PLAY, WATCH = 0, 1


class Autoencode(OpenLoopEnv):
    """All cards are shown one by one; then name their suits from the last to the first.

    | | |
    |---|---|
    | observation | MultiDiscrete([2, 4]): 1 while watching, else 0; suit of the present card |
    | action | Discrete(4): a suit |
    | reward | when playing +1/n if right, else -1/n, where n is the number of cards |
    | end | terminates after 2n - 1 steps: n - 1 to watch, n to play |
    | recall | 2 to 2n - 2 slots back |
    | hidden | `deck` [n]: the cards in the order in which they are dealt |
    | oracle | 1, naming the suits that it has seen |
    | full state | Box [4 n + 1]: suits of the cards seen and not yet named, one-hot, the next to be named first; the \
share of steps taken |

    The last card is shown with 0, as the first to be named; all observations after it are (0, 0).

    Rules of popgym 1.0.7, also of 1.0.2.

    num_decks: decks shuffled into one
    num_cards: how many of its cards are dealt, n; None: all
    """

    tests = "recall of the whole episode in reverse order"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-1.0, 1.0)
    levels = {"easy": {"num_decks": 1}, "medium": {"num_decks": 2}, "hard": {"num_decks": 3}}
    keys = cards.SUIT_KEYS

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_decks: Annotated[int, Gt(0), Le(1000)] = 1,
        num_cards: Annotated[int, Gt(1)] | None = None,
        **kwargs: Any,
    ):
        self._deck = cards.DECK * num_decks
        self._n = n = self._deck if num_cards is None else num_cards
        if n > self._deck:
            raise ValueError(f"num_cards is {n}, but {num_decks} deck(s) have {self._deck} cards; e.g. num_cards=12")
        pay = np.where(np.arange(2 * n - 1) < n - 1, 0.0, 1 / n)
        observation = MultiDiscrete([2, cards.SUITS])
        params = {"num_decks": num_decks} | ({} if num_cards is None else {"num_cards": num_cards})
        spaces = observation, Discrete(cards.SUITS)
        full = Box(0, 1, (cards.SUITS * n + 1,), np.float32)
        super().__init__(num_envs, *spaces, params, right=pay, wrong=-pay, full_space=full, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"deck": self.draws.permutation(who, self._deck)[:, : self._n]}

    def _script(self, facts: Facts) -> Script:
        suits, n = cards.suit(facts["deck"]), self._n
        observations = np.zeros((len(suits), 2 * n, 2), np.int8)
        observations[:, : n - 1, 0] = WATCH
        observations[:, :n, 1] = suits
        answers = np.full((len(suits), 2 * n - 1), -1, np.int8)
        answers[:, n - 1 :] = suits[:, ::-1]
        return Script(observations, answers)

    def _full_state(self) -> NDArray[np.float32]:
        last = np.minimum(self.t, 2 * self._n - 2 - self.t)  # of the cards that are still to be named
        place = last[:, None] - np.arange(self._n)  # [N, n]
        suits = np.where(place >= 0, self.tape[np.maximum(place, 0), self._all[:, None], 1], -1)
        return features(one_hot(suits, cards.SUITS), self.t / self._steps)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return self._observe()[:, 1]

    def scores(self) -> Scores:
        """The suit in sight is right at the first step of play, and by chance at the other n - 1."""
        if self.max_episode_steps is not None:
            return super().scores()
        n = self._n
        return Scores(random=-0.5, memoryless=2 * (1 + (n - 1) / 4) / n - 1, oracle=1.0)

    def _horizons(self) -> Horizons:
        return Horizons(2, 2 * self._n - 2)

    def text(self, i: int) -> str:
        mode, suit = self._observe()[i]
        if mode == WATCH:
            return f"watch: {cards.SUIT_NAMES[suit]}"
        return f"play: {cards.SUIT_NAMES[suit]}" if self.t[i] == self._n - 1 else "play"
