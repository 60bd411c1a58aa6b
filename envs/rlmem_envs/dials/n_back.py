"""NBack: say which letter came n letters ago, with distractors in between."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Horizons, Who
from rlmem_envs.core.columns import one_hot
from rlmem_envs.core.open_loop import Script
from rlmem_envs.dials.dialled import Dialled


class NBack(Dialled):
    """Letters are shown one by one, among distractors; at each letter, name the one that came `items` letters before.

    | | |
    |---|---|
    | observation | Discrete(2 S): a letter, of S = `symbols`; from S on, a distractor, one of S |
    | action | Discrete(S): a letter; does not matter at the first `items` letters and at distractors |
    | reward | 1/n for a right answer, of the n = rewrites + 1 that are asked for |
    | end | terminates after (items + rewrites) (delay + 1) + 1 steps, with the last letter |
    | recall | items (delay + 1) slots back |
    | hidden | `letters` [items + rewrites + 1]; `distractors` [(items + rewrites) delay] |
    | oracle | 1, naming what it has seen |
    | full state | Box [S + items S + 1]: the due answer, the last letters, the newest first, the share of steps taken |

    Every letter replaces the oldest one that is held. Letters and distractors are independent and uniformly
    distributed, so a guess is right with a chance of 1/S.

    items: n of n-back, letters that are held at once
    delay: distractors after each letter
    rewrites: letters after the first that is asked about
    symbols: S
    """

    tests = "a window of letters that moves on, through distractors"
    source = "of this project, after the n-back task of Kirchner (1958)"
    returns = (0.0, 1.0)
    levels = {
        "two": {"items": 2, "delay": 0, "rewrites": 29, "symbols": 4},
        "distracted": {"items": 2, "delay": 7, "rewrites": 29, "symbols": 4},
        "eight": {"items": 8, "delay": 0, "rewrites": 29, "symbols": 4},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        items: Annotated[int, Gt(0), Le(10_000)] = 2,
        delay: Annotated[int, Ge(0), Le(100_000)] = 0,
        rewrites: Annotated[int, Ge(0), Le(10_000)] = 29,
        symbols: Annotated[int, Ge(2), Le(10_000)] = 4,
        **kwargs: Any,
    ):
        self._items, self._every, self._symbols = items, delay + 1, symbols
        self._letters = items + rewrites + 1
        self._ranges = {"letters": (0, symbols - 1), "distractors": (0, symbols - 1)}
        params = {"items": items, "delay": delay, "rewrites": rewrites, "symbols": symbols}
        slot = np.arange((self._letters - 1) * self._every + 1)
        asked = (slot % self._every == 0) & (slot >= items * self._every)
        super().__init__(num_envs, Discrete(2 * symbols), symbols, params, asked, items * symbols, **kwargs)

    def _draw(self, who: Who) -> Facts:
        number = (self._letters - 1) * (self._every - 1)
        return {
            "letters": self.draws.integers(who, self._symbols, self._letters),
            "distractors": self.draws.integers(who, self._symbols, number),
        }

    def _script(self, facts: Facts) -> Script:
        letters, n = facts["letters"], len(facts["letters"])
        observations = np.full((n, self._steps + 1), self._symbols)
        observations[:, : self._steps : self._every] = letters
        between = np.flatnonzero(np.arange(self._steps) % self._every)
        observations[:, between] = self._symbols + facts["distractors"]
        answers = np.full((n, self._steps), -1)
        answers[:, self._items * self._every :: self._every] = letters[:, : -self._items]
        return Script(observations, answers)

    def _held(self) -> NDArray[np.bool_]:
        last = np.minimum(self.t // self._every, self._letters - 1)
        return one_hot(self._seen((last[:, None] - np.arange(self._items)) * self._every), self._symbols)

    def _horizons(self) -> Horizons:
        back = self._items * self._every
        return Horizons(back, back)

    def text(self, i: int) -> str:
        seen = int(self._observe()[i])
        return str(seen) if seen < self._symbols else f"({seen - self._symbols})"
