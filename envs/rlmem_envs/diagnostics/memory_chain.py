"""MemoryChain: bsuite's memory_len and memory_size."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Gt
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, Facts, Horizons, Observe, Scores, Who
from rlmem_envs.core.columns import features
from rlmem_envs.core.open_loop import OpenLoopEnv, Script


class MemoryChain(OpenLoopEnv):
    """Bits are shown at the beginning, one of them is asked for at the end.

    | | |
    |---|---|
    | observation | Box [num_bits + 2]: time left, from 1 to 0; the number of the bit that is asked for, in slot \
memory_length, else 0; the bits as 1 and -1, in the first two slots, else 0 |
    | action | Discrete(2): the bit; all but the last have no effect |
    | reward | 1 if the last action is the bit that was asked for, else -1 |
    | end | terminates after memory_length + 1 steps |
    | recall | memory_length - 1 slots back |
    | hidden | `bits` [num_bits]; `query`: the number of the bit that is asked for |
    | full state | Box [num_bits + 1]: the bits as 1 and -1; the share of steps taken |

    The rules are those of the package bsuite, which shows after a step what was to be seen before it; so the bits are
    seen twice, and with memory_length=1 they are still in view when they are asked for.

    memory_length: slots between the first slot and the last action
    num_bits: bits to remember
    observe: see `BatchedEnv`
    """

    tests = "keeping bits for a while (memory_len), keeping many bits (memory_size)"
    source = "bsuite (Osband et al. 2020, arXiv:1908.03568)"
    levels = {"len": {"memory_length": 30, "num_bits": 1}, "size": {"memory_length": 2, "num_bits": 10}}

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        memory_length: Annotated[int, Gt(0)] = 30,
        num_bits: Annotated[int, Gt(0)] = 1,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        self._length, self._bits = memory_length, num_bits
        low = np.array([0, 0, *[-1] * num_bits], np.float32)
        high = np.array([1, num_bits - 1, *[1] * num_bits], np.float32)
        params = {"memory_length": memory_length, "num_bits": num_bits}
        pay = np.append(np.zeros(memory_length), 1.0)
        more: dict[str, Any] = {"observe": observe, "full_space": Box(-1, 1, (num_bits + 1,), np.float32)}
        super().__init__(num_envs, Box(low, high), Discrete(2), params, right=pay, wrong=-pay, **more, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"bits": self.draws.integers(who, 2, self._bits), "query": self.draws.integers(who, self._bits)}

    def _problem(self, facts: Facts) -> str | None:
        if not np.isin(facts["bits"], (0, 1)).all():
            return "`bits` are not all 0 or 1"
        inside = (facts["query"] >= 0) & (facts["query"] < self._bits)
        return None if inside.all() else f"`query` is not within 0 .. {self._bits - 1}"

    def _script(self, facts: Facts) -> Script:
        n, L = len(facts["query"]), self._length
        times = np.array([0, *range(L + 1)])  # slot 1 shows what slot 0 did
        seen = np.zeros((n, L + 2, self._bits + 2), np.float32)
        seen[..., 0] = 1 - times / L
        seen[:, times == L - 1, 1] = facts["query"][:, None]
        seen[:, times == 0, 2:] = 2 * facts["bits"][:, None] - 1
        answers = np.full((n, L + 1), -1)
        answers[:, -1] = np.take_along_axis(facts["bits"], facts["query"][:, None], 1)[:, 0]
        return Script(seen, answers)

    def _full_state(self) -> NDArray[np.float32]:
        return features(self.tape[0, :, 2:], self.t / self._steps)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """The bit if it is in view, which it is at the end of memory_length=1 alone; a guess otherwise."""
        obs = self._observe()
        asked = np.take_along_axis(obs[:, 2:], obs[:, 1:2].astype(np.int64), 1)[:, 0]
        return np.where(asked == 0, rng.integers(2, size=self.num_envs), (asked > 0).astype(np.int64))

    def scores(self) -> Scores:
        if self.max_episode_steps is not None:
            return UNKNOWN
        return Scores(random=0.0, memoryless=float(self._length == 1), oracle=1.0)

    def _horizons(self) -> Horizons:
        """From the second slot, which shows the bits for the last time, to the last action."""
        return Horizons(self._length - 1, self._length - 1)
