"""MemoryDemand: a process whose right answer depends on a chosen set of earlier observations, and on no other."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, Demand, Facts, Scores, Who
from rlmem_envs.core.columns import one_hot
from rlmem_envs.core.open_loop import Script
from rlmem_envs.dials.dialled import Dialled


class MemoryDemand(Dialled):
    """Letters are shown one by one; name the sum, modulo S, of those that lie `lags` slots back.

    | | |
    |---|---|
    | observation | Discrete(S): a letter, of S = `symbols` |
    | action | Discrete(S): the sum modulo S; does not matter in the first max(lags) slots |
    | reward | 1/n for a right answer, of the n = rewrites + 1 that are asked for |
    | end | terminates after max(lags) + rewrites + 1 steps |
    | recall | the lags, as slots back |
    | hidden | `letters` [max(lags) + rewrites + 2] |
    | oracle | 1, adding what it has seen |
    | full state | Box [S + max(lags) S + 1]: the due answer, the last letters, newest first, the share of steps taken |

    Letters are independent and uniformly distributed, and every one of those that are added changes the sum whatever
    the others are. So the observations that acting well at slot t depends on are those at t - lags: all of
    them, and no other. `demand` has them as a matrix. The answer is independent of any set of observations that
    lacks one of them, and a guess is right with a chance of 1/S.

    items: how many letters are added
    delay: how many slots back the newest of them lies; the others lie before it, lags = delay .. delay + items - 1
    rewrites: answers after the first one
    symbols: S
    lags: other lags, in the place of `items` and `delay`, which stay as they are by default; None: none
    """

    tests = "recall of a chosen set of inputs: which, and how far back"
    source = "of this project, after memory demand structures of Wang et al. (arXiv:2508.04282)"
    levels = {
        "one": {"items": 1, "delay": 3, "rewrites": 29, "symbols": 2, "lags": None},
        "two": {"items": 2, "delay": 3, "rewrites": 29, "symbols": 2, "lags": None},
        "apart": {"rewrites": 29, "symbols": 2, "lags": (1, 8)},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        items: Annotated[int, Gt(0), Le(10_000)] = 2,
        delay: Annotated[int, Ge(0), Le(1_000_000)] = 3,
        rewrites: Annotated[int, Ge(0), Le(100_000)] = 29,
        symbols: Annotated[int, Ge(2), Le(10_000)] = 2,
        lags: Sequence[Annotated[int, Ge(0)]] | None = None,
        **kwargs: Any,
    ):
        if lags is not None and (not lags or len(set(lags)) < len(lags) or min(lags) < 0):
            raise ValueError(f"lags={list(lags)}: expected different numbers of at least 0; e.g. lags=[1, 8]")
        if lags is not None and (items, delay) != (2, 3):
            raise ValueError(f"items={items}, delay={delay}: expected without lags, which say it all; e.g. lags=None")
        chosen = range(delay, delay + items) if lags is None else lags
        self._lags, self._symbols = np.sort(np.array(chosen)), symbols
        self._last = max(int(self._lags[-1]), 1)  # letters that are held
        self._ranges = {"letters": (0, symbols - 1)}
        asked = np.arange(self._lags[-1] + rewrites + 1) >= self._lags[-1]
        which = {"items": items, "delay": delay, "lags": None} if lags is None else {"lags": tuple(lags)}
        params: dict[str, Any] = {"rewrites": rewrites, "symbols": symbols, **which}
        super().__init__(num_envs, Discrete(symbols), symbols, params, asked, self._last * symbols, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"letters": self.draws.integers(who, self._symbols, self._steps + 1)}

    def _script(self, facts: Facts) -> Script:
        letters, most = facts["letters"], int(self._lags[-1])
        answers = np.full((len(letters), self._steps), -1)
        answers[:, most:] = sum(letters[:, most - lag : self._steps - lag] for lag in self._lags) % self._symbols
        return Script(letters, answers)

    def _held(self) -> NDArray[np.bool_]:
        return one_hot(self._seen(self.t[:, None] - np.arange(self._last)), self._symbols)

    def _demand(self) -> Demand:
        return Demand(slot=np.arange(self._lags[-1], self._steps)[:, None], back=self._lags)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return self._observe()

    def scores(self) -> Scores:
        if self.max_episode_steps is not None:
            return UNKNOWN
        guess = 1 / self._symbols
        return Scores(random=guess, memoryless=1.0 if self._lags[-1] == 0 else guess, oracle=1.0)
