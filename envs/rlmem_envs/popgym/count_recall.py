"""CountRecall of POPGym."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Horizons, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.core.open_loop import OpenLoopEnv, Script
from rlmem_envs.popgym import cards


class CountRecall(OpenLoopEnv):
    """Two decks are dealt card by card; say how many cards of the second deck's kind the first has shown.

    | | |
    |---|---|
    | observation | MultiDiscrete([K, K]): kind of the present card, kind that is asked for; K = 2, 4 or 13 kinds |
    | action | Discrete(m + 1): a count, where m = n/K cards are of one kind |
    | reward | +1/(n - 1) if it counts the cards of that kind shown so far, the present one too; else -1/(n - 1) |
    | end | terminates after n - 1 steps, where n = 52 num_decks |
    | recall | 1 to n - 2 slots back |
    | hidden | `values`, `queries` [n]: the cards of both decks in the order in which they are dealt |
    | oracle | 1, counting what it has seen |
    | full state | Box [K (m + 1) + 1]: how many cards of each kind were shown, one-hot; the share of steps taken |

    Rules of popgym 1.0.7. Those of 1.0.2, which published results come from, have Discrete(m) actions: once all cards
    of a kind are out, no answer is right.

    num_decks: decks shuffled into one, for values and queries each
    deck_type: colors | suits | ranks, what cards are told apart by
    rules: the version of popgym
    """

    tests = "counting several kinds of input"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-1.0, 1.0)
    levels = {
        "easy": {"num_decks": 1, "deck_type": "colors"},
        "medium": {"num_decks": 2, "deck_type": "suits"},
        "hard": {"num_decks": 4, "deck_type": "ranks"},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_decks: Annotated[int, Gt(0), Le(1000)] = 1,
        deck_type: cards.DeckType = "colors",
        rules: Literal["1.0.7", "1.0.2"] = "1.0.7",
        **kwargs: Any,
    ):
        self._n = n = cards.DECK * num_decks
        self._kind = cards.KINDS[deck_type]
        self._most = n // self._kind.count
        pay = np.full(n - 1, 1 / (n - 1))
        params = {"num_decks": num_decks, "deck_type": deck_type, "rules": rules}
        observation = MultiDiscrete([self._kind.count] * 2)
        action = Discrete(self._most + (rules == "1.0.7"))
        full = Box(0, 1, (self._kind.count * (self._most + 1) + 1,), np.float32)
        super().__init__(num_envs, observation, action, params, right=pay, wrong=-pay, full_space=full, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {name: self.draws.permutation(who, self._n) for name in ("values", "queries")}

    def _script(self, facts: Facts) -> Script:
        values, queries = (self._kind.of(facts[name]) for name in ("values", "queries"))
        row = np.arange(len(values)) * self._kind.count
        counts = np.zeros(len(values) * self._kind.count, np.int64)
        answers = np.empty((self._n - 1, len(values)), np.int64)
        for t, (value, query) in enumerate(zip(values.T[:-1] + row, queries.T[:-1] + row, strict=True)):
            counts[value] += 1
            answers[t] = counts[query]
        return Script(np.stack([values, queries], axis=-1), answers.T)

    def _full_state(self) -> NDArray[np.float32]:
        shown = np.where(np.arange(self._n)[:, None] <= self.t, self.tape[..., 0], -1)  # [n, N]
        counts = np.stack([(shown == kind).sum(0) for kind in range(self._kind.count)], 1)
        return features(one_hot(counts, self._most + 1), self.t / self._steps)

    def oracle(self) -> NDArray[Any]:
        return np.minimum(super().oracle(), self.single_action_space.n - 1)  # type: ignore[attr-defined]

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return np.ones(self.num_envs, np.int64)

    def scores(self) -> Scores:
        """Exact scores, from how often a count is the right one.

        Over all n cards, each count 1 .. m is right once, on average, when present and queried kind are the same, and
        each count 0 .. m is right (n - m)/(m + 1) times when they differ. The last card, which nobody is asked about,
        takes a count of m. So 1 is as good as any fixed answer. Rules 1.0.2 leave no answer for a count of m.
        """
        if self.max_episode_steps is not None:
            return super().scores()
        steps, m = self._n - 1, self._most
        each = (self._n - m) / (m + 1)
        unanswerable = each / steps if self.params["rules"] == "1.0.2" else 0.0
        chance = (1 - unanswerable) / self.single_action_space.n  # type: ignore[attr-defined]
        return Scores(random=2 * chance - 1, memoryless=2 * (1 + each) / steps - 1, oracle=1 - 2 * unanswerable)

    def _horizons(self) -> Horizons:
        return Horizons(1, self._n - 2)

    def text(self, i: int) -> str:
        value, query = (self._kind.names[kind] for kind in self._observe()[i])
        return f"{value}\nhow many {query} so far?"
