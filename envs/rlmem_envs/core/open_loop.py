"""Tasks whose observations do not depend on the actions: the whole episode is written when it begins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete, MultiDiscrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who


@dataclass
class Script:
    """n whole episodes.

    observations: [n, T + 1, ...]
    answers: [n, T], the action that is right at each step; -1 where no action is
    """

    observations: NDArray[Any]
    answers: NDArray[np.integer[Any]]


class OpenLoopEnv(BatchedEnv):
    """A task that shows what it will and pays for naming the answer of each step.

    Subclasses write `_script(facts)`. Where the answer is -1, no action earns anything.

    Episodes of every environment take the same T steps. While all are at the same one, a step reads one row of the
    tapes, which lie time first.

    right, wrong: [T], what the answer of each step earns, and what any other action does
    """

    def __init__(self, num_envs: int, *spaces_and_params: Any, right: NDArray[Any], wrong: NDArray[Any], **kwargs: Any):
        super().__init__(num_envs, *spaces_and_params, **kwargs)
        self._steps = len(right)
        self._pay = np.append(np.stack([wrong, right], axis=-1), [[0.0, 0.0]], axis=0)  # as long as `answers`
        space = self._space
        self._dtype = space.dtype
        self.tape = np.zeros((self._steps + 1, num_envs, *(space.shape or ())), _smallest(space))
        self.answers = np.full((self._steps + 1, num_envs), -1, np.int64)  # one more for the step after the last
        self.unpaid = np.ones(self._steps + 1, bool)  # whether some environment may have no answer at a step

    def _script(self, facts: Facts) -> Script:
        raise NotImplementedError

    def _begin(self, who: Who, facts: Facts) -> None:
        script = self._script(facts)
        unpaid = (script.answers < 0).any(0)
        everywhere = len(who) == self.num_envs
        at: Any = slice(None) if everywhere else who
        self.tape[:, at] = np.moveaxis(script.observations, 1, 0)
        self.answers[:-1, at] = script.answers.T
        self.unpaid[:-1] = unpaid if everywhere else unpaid | self.unpaid[:-1]

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        now = self._present()
        t: Any = now if self._in_step else self.t
        answers = self.answers[now]
        right = (actions == answers).view(np.int8)
        rewards = self._pay[t][right] if self._in_step else self._pay[t, right]
        if not self._in_step or self.unpaid[t]:
            rewards[answers < 0] = 0
        return rewards, self.t == self._steps - 1, np.zeros(self.num_envs, bool)

    def _observe(self) -> NDArray[Any]:
        return self.tape[self._present()].astype(self._dtype)

    def asked(self) -> NDArray[np.bool_]:
        """Whether an answer is asked for at the present observation [N]."""
        return self.answers[self._present()] >= 0

    def _first_use(self) -> int:
        return int((self._pay[:, 0] != self._pay[:, 1]).argmax())

    def oracle(self) -> NDArray[Any]:
        return np.maximum(self.answers[self._present()], 0)

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps


def _smallest(space: Space) -> Any:
    """A dtype for tapes of observations: writing them is most of the work."""
    sizes = space.n if isinstance(space, Discrete) else space.nvec if isinstance(space, MultiDiscrete) else np.inf
    return np.int8 if np.max(sizes) <= 128 else space.dtype
