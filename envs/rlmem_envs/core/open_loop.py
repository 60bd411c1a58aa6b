"""Tasks whose observations do not depend on the actions: the whole episode is written when it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who


@dataclass
class Script:
    """n whole episodes.

    observations: [n, T + 1, ...]
    answers: [n, T], the action that is right at each step; -1 where no action is
    """

    observations: NDArray[Any]
    answers: NDArray[np.int64]


class OpenLoopEnv(BatchedEnv):
    """A task that shows what it will and pays for naming the answer of each step.

    Subclasses write `_script(facts)`, and `_right` and `_wrong` [T]: what the answer of each step earns, and what any
    other action does. Where the answer is -1, no action earns anything.

    Episodes of every environment take the same T steps. While all are at the same one, a step reads one row of the
    tapes, which lie time first.
    """

    def __init__(self, num_envs: int, *spaces_and_params: Any, right: NDArray[Any], wrong: NDArray[Any], **kwargs: Any):
        super().__init__(num_envs, *spaces_and_params, **kwargs)
        self._right, self._wrong = right, wrong
        self._steps = len(right)
        shape, dtype = self.single_observation_space.shape or (), self.single_observation_space.dtype
        self.tape = np.zeros((self._steps + 1, num_envs, *shape), dtype)
        self.answers = np.full((self._steps + 1, num_envs), -1, np.int64)  # one more for the step after the last

    def _script(self, facts: Facts) -> Script:
        raise NotImplementedError

    def _begin(self, who: Who, facts: Facts) -> None:
        script = self._script(facts)
        self.tape[:, who] = np.moveaxis(script.observations, 1, 0)
        self.answers[:-1, who] = script.answers.T

    def _now(self) -> Any:
        """Index of every environment's present row in the tapes."""
        first = int(self.t[0])
        return first if (self.t == first).all() else (self.t, self._all)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        now, t = self._now(), np.minimum(self.t, self._steps - 1)
        answer = self.answers[now]
        rewards = np.where(actions == answer, self._right[t], self._wrong[t])
        rewards[answer < 0] = 0
        return rewards, self.t == self._steps - 1, np.zeros(self.num_envs, bool)

    def _observe(self) -> NDArray[Any]:
        return self.tape[self._now()].copy()

    def oracle(self) -> NDArray[Any]:
        return np.maximum(self.answers[self._now()], 0)

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps
