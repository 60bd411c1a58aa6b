"""Counting: how many of each kind came since the last question."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Horizons, Who
from rlmem_envs.core.open_loop import Script
from rlmem_envs.dials.dialled import Dialled


class Counting(Dialled):
    """Tokens of some kinds come now and then; then say of every kind how many there were.

    | | |
    |---|---|
    | observation | Discrete(2 K + 1): a token of kind k, of K = `items`; K + k: how many of kind k? 2 K: nothing |
    | action | Discrete(m + 1), m = `most`: a number; does not matter until one is asked for |
    | reward | 1/n for a right answer, of the n = items (rewrites + 1) that are asked for |
    | end | terminates after (rewrites + 1) (items most + delay + items) steps |
    | recall | 1 to items most + delay + items - 1 slots back |
    | hidden | `counts` [rewrites + 1, items]: how many tokens; `places` [rewrites + 1, items most + delay]: slots in \
which they come, those of kind 0 first; the rest of the slots shows nothing |
    | oracle | 1, counting what it has seen |
    | full state | Box [m + 1 + K + 1]: the due answer, the counts so far as shares of m, the share of steps taken |

    After the questions all counts begin again at zero, `rewrites` times. Counts are independent and uniform on 0 .. m,
    so a guess is right with a chance of 1/(m + 1).

    items: K, counts that are held at once
    delay: slots in which nothing needs to come, beside as many as all counts together may fill
    rewrites: how often all counts begin again
    most: m
    """

    tests = "adding up, of several kinds at once, and starting over"
    source = "of this project, after counter languages (Gers and Schmidhuber 2001)"
    returns = (0.0, 1.0)
    levels = {
        "one": {"items": 1, "delay": 8, "rewrites": 0, "most": 4},
        "four": {"items": 4, "delay": 8, "rewrites": 0, "most": 4},
        "again": {"items": 1, "delay": 8, "rewrites": 9, "most": 4},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        items: Annotated[int, Gt(0), Le(1_000)] = 1,
        delay: Annotated[int, Ge(0), Le(1_000_000)] = 8,
        rewrites: Annotated[int, Ge(0), Le(10_000)] = 0,
        most: Annotated[int, Gt(0), Le(1_000)] = 4,
        **kwargs: Any,
    ):
        self._items, self._rounds, self._most = items, rewrites + 1, most
        self._slots = items * most + delay
        self._ranges = {"counts": (0, most)}
        params = {"items": items, "delay": delay, "rewrites": rewrites, "most": most}
        asked = np.tile(np.arange(self._slots + items) >= self._slots, self._rounds)
        super().__init__(num_envs, Discrete(2 * items + 1), most + 1, params, asked, items, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {
            "counts": self.draws.integers(who, self._most + 1, self._rounds, self._items),
            "places": self.draws.uniform(who, self._rounds, self._slots).argsort(-1),
        }

    def _problem(self, facts: Facts) -> str | None:
        if not (np.sort(facts["places"], axis=-1) == np.arange(self._slots)).all():
            return f"`places` is no order of the slots 0 .. {self._slots - 1}"
        return super()._problem(facts)

    def _script(self, facts: Facts) -> Script:
        counts, n, K = facts["counts"], len(facts["counts"]), self._items
        rank = facts["places"].argsort(-1)  # of every slot, [n, rounds, slots]
        kind = (rank[..., None] >= counts.cumsum(-1)[..., None, :]).sum(-1)  # K: none
        asks = np.broadcast_to(K + np.arange(K), (n, self._rounds, K))
        shown = np.concatenate([np.where(kind == K, 2 * K, kind), asks], axis=-1)
        answers = np.full(shown.shape, -1)
        answers[..., self._slots :] = counts
        observations = np.full((n, self._steps + 1), 2 * K)
        observations[:, :-1] = shown.reshape(n, -1)
        return Script(observations, answers.reshape(n, -1))

    def _held(self) -> NDArray[np.float64]:
        begin = self.t - self.t % (self._slots + self._items)
        shown = self._seen(begin[:, None] + np.arange(self._slots))
        return np.asarray((shown[..., None] == np.arange(self._items)).sum(1) / self._most)

    def _horizons(self) -> Horizons:
        return Horizons(1, self._slots + self._items - 1)

    def text(self, i: int) -> str:
        seen, K = int(self._observe()[i]), self._items
        return str(seen) if seen < K else "." if seen == 2 * K else f"how many {seen - K}?"
