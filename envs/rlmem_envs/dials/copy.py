"""Copy: hold a list of symbols, then name it."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Horizons, Who
from rlmem_envs.core.columns import one_hot
from rlmem_envs.core.open_loop import Script
from rlmem_envs.dials.dialled import Dialled


class Copy(Dialled):
    """Symbols are shown one after another, then nothing for a while; then name them in the same order.

    | | |
    |---|---|
    | observation | Discrete(S + 2): a symbol, of S = `symbols`; S: nothing; S + 1: name the next symbol |
    | action | Discrete(S): a symbol; does not matter until one is asked for |
    | reward | 1/n for a right answer, of the n = items (rewrites + 1) that are asked for |
    | end | terminates after (rewrites + 1) (2 items + delay) steps |
    | recall | items + delay slots back |
    | hidden | `symbols` [rewrites + 1, items] |
    | oracle | 1, naming what it has seen |
    | full state | Box [S + items S + 1]: the due answer, the symbols of the list so far, the share of steps taken |

    An episode is a list, its delay and its answers, `rewrites` + 1 times, each time with other symbols: what was held
    is of no use once it was asked for. Symbols are independent and uniformly distributed, so a guess is right
    with a chance of 1/S.

    items: symbols of a list
    delay: empty slots between a list and its answers
    rewrites: lists after the first
    symbols: S
    """

    tests = "holding a list in order: how much, how long, and replacing it"
    source = "of this project, after the copying problem of Arjovsky et al. 2016 (arXiv:1511.06464)"
    returns = (0.0, 1.0)
    levels = {
        "short": {"items": 4, "delay": 4, "rewrites": 0, "symbols": 4},
        "long": {"items": 4, "delay": 64, "rewrites": 0, "symbols": 4},
        "rewritten": {"items": 4, "delay": 4, "rewrites": 9, "symbols": 4},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        items: Annotated[int, Gt(0), Le(10_000)] = 4,
        delay: Annotated[int, Ge(0), Le(1_000_000)] = 16,
        rewrites: Annotated[int, Ge(0), Le(10_000)] = 0,
        symbols: Annotated[int, Ge(2), Le(10_000)] = 4,
        **kwargs: Any,
    ):
        self._items, self._lists, self._symbols = items, rewrites + 1, symbols
        self._listed, self._until = items, items + delay  # slots of a list, and until it is asked for
        self._ranges = {"symbols": (0, symbols - 1)}
        params = {"items": items, "delay": delay, "rewrites": rewrites, "symbols": symbols}
        asked = np.tile(np.arange(2 * items + delay) >= items + delay, self._lists)
        super().__init__(num_envs, Discrete(symbols + 2), symbols, params, asked, items * symbols, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"symbols": self.draws.integers(who, self._symbols, self._lists, self._items)}

    def _script(self, facts: Facts) -> Script:
        symbols, n, length = facts["symbols"], len(facts["symbols"]), self._until + self._items
        shown = np.full((n, self._lists, length), self._symbols)
        shown[..., : self._items] = symbols
        shown[..., self._until :] = self._symbols + 1
        answers = np.full((n, self._lists, length), -1)
        answers[..., self._until :] = symbols
        observations = np.full((n, self._steps + 1), self._symbols)
        observations[:, :-1] = shown.reshape(n, -1)
        return Script(observations, answers.reshape(n, -1))

    def _held(self) -> NDArray[np.bool_]:
        begin = self.t - self.t % (self._until + self._items)
        return one_hot(self._seen(begin[:, None] + np.arange(self._items)), self._symbols)

    def _horizons(self) -> Horizons:
        return Horizons(self._until, self._until)

    def text(self, i: int) -> str:
        seen = int(self._observe()[i])
        return str(seen) if seen < self._symbols else "." if seen == self._symbols else "?"
