"""AssociativeRecall: which value goes with a key, after some of them were replaced."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Horizons, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.core.open_loop import Script
from rlmem_envs.dials.dialled import Dialled


class AssociativeRecall(Dialled):
    """Keys are shown with their values, some of them later with another one; then name the last value of every key.

    | | |
    |---|---|
    | observation | MultiDiscrete([K + 1, V + 1]): a key, of K = `items`, and a value, of V = `values`; K and V: none |
    | action | Discrete(V): a value; does not matter until a key comes without a value |
    | reward | 1/K for a right answer, of the K that are asked for |
    | end | terminates after 2 items + rewrites + delay steps |
    | recall | delay + 1 to 2 items + rewrites + delay - 1 slots back |
    | hidden | `order`, `queries` [items]: the keys in the order in which they are shown and asked for; |
    | | `replaced` [rewrites]: the keys that come again; `pairs` [items + rewrites]: the values, as they are shown |
    | oracle | 1, naming what it has seen |
    | full state | Box [V + K V + K + 1]: the due answer, the last value of every key, which keys were asked for, the \
share of steps taken |

    Keys come once each, in any order; then `rewrites` times any key with another drawn value, which replaces the one
    before; then nothing for `delay` slots; then every key alone, in any order. Values are independent and uniformly
    distributed, so a guess is right with a chance of 1/V.

    items: K, pairs that are held at once
    delay: empty slots between the last pair and the first question
    rewrites: pairs that replace one before
    values: V
    """

    tests = "binding values to keys, and replacing some without the others"
    source = "of this project, after associative recall of Graves et al. (2014) and of Arora et al. (2023)"
    returns = (0.0, 1.0)
    levels = {
        "four": {"items": 4, "delay": 0, "rewrites": 0, "values": 4},
        "interference": {"items": 4, "delay": 0, "rewrites": 16, "values": 4},
        "late": {"items": 4, "delay": 64, "rewrites": 0, "values": 4},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        items: Annotated[int, Gt(0), Le(10_000)] = 4,
        delay: Annotated[int, Ge(0), Le(1_000_000)] = 0,
        rewrites: Annotated[int, Ge(0), Le(100_000)] = 0,
        values: Annotated[int, Ge(2), Le(10_000)] = 4,
        **kwargs: Any,
    ):
        self._items, self._pairs, self._values, self._delay = items, items + rewrites, values, delay
        self._ranges = {"replaced": (0, items - 1), "pairs": (0, values - 1)}
        params = {"items": items, "delay": delay, "rewrites": rewrites, "values": values}
        asked = np.arange(2 * items + rewrites + delay) >= items + rewrites + delay
        space = MultiDiscrete([items + 1, values + 1])
        super().__init__(num_envs, space, values, params, asked, items * (values + 1), **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {
            "order": self.draws.permutation(who, self._items),
            "queries": self.draws.permutation(who, self._items),
            "replaced": self.draws.integers(who, self._items, self._pairs - self._items),
            "pairs": self.draws.integers(who, self._values, self._pairs),
        }

    def _problem(self, facts: Facts) -> str | None:
        for name in ("order", "queries"):
            if not (np.sort(facts[name], axis=-1) == np.arange(self._items)).all():
                return f"`{name}` is no order of the keys 0 .. {self._items - 1}"
        return super()._problem(facts)

    def _script(self, facts: Facts) -> Script:
        keys, values = np.concatenate([facts["order"], facts["replaced"]], axis=1), facts["pairs"]
        n, queries = len(keys), facts["queries"]
        observations = np.full((n, self._steps + 1, 2), [self._items, self._values])
        observations[:, : self._pairs, 0], observations[:, : self._pairs, 1] = keys, values
        observations[:, self._steps - self._items : -1, 0] = queries
        last = np.empty((n, self._items), np.int64)
        for pair in range(self._pairs):  # in their order, so that the last value of a key stays
            last[np.arange(n), keys[:, pair]] = values[:, pair]
        answers = np.full((n, self._steps), -1)
        answers[:, -self._items :] = np.take_along_axis(last, queries, 1)
        return Script(observations, answers)

    def _held(self) -> NDArray[np.float32]:
        """The value of every key so far, and which keys were asked for."""
        values, asked = np.full((self.num_envs, self._items), -1), np.zeros((self.num_envs, self._items), bool)
        shown = self._seen(np.arange(self._steps)[None].repeat(self.num_envs, 0))
        for slot in range(min(self._steps, int(self.t.max()) + 1)):
            key, value = shown[:, slot].T
            there = (key >= 0) & (key < self._items)
            pair = there & (value < self._values)
            values[pair, key[pair]] = value[pair]
            asked[there & ~pair, key[there & ~pair]] = True
        return features(one_hot(values, self._values), asked)

    def _horizons(self) -> Horizons:
        """The last pair may be asked for first, and the first one last, unless it is always replaced."""
        replaced = self._items == 1 and self._pairs > 1
        return Horizons(self._delay + 1, self._delay + 1 if replaced else self._steps - 1)

    def text(self, i: int) -> str:
        key, value = self._observe()[i]
        if key == self._items:
            return "."
        return f"{key} = {value if value < self._values else '?'}"
