"""What the open-loop tasks with dials share: their pay, guessing, and streams for supervised learning."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, Scores
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.core.open_loop import OpenLoopEnv
from rlmem_envs.dials.stream import ScriptStream


class Dialled(OpenLoopEnv):
    """A task that asks for what it has shown, with three dials that have the same names in every task.

    items: how much is held at once
    delay: how long it is held, beyond what `items` takes
    rewrites: how often it is replaced in an episode

    The rule card of a task says what each dial counts. A right answer earns 1/n of the n that are asked for and a wrong
    one nothing, so the return is the share of right answers. What is asked for is independent of what is seen
    when it is asked for, unless the task says so: guessing is the best that a player without memory can do.

    The full state is the answer that is due now, one-hot, what must be held for later answers, as the task writes it in
    `_held()` [N, held], and the share of steps taken.

    num_envs, observation_space, params: as in `OpenLoopEnv`
    answers: how many there are to choose from
    asked: whether an answer is asked for [T]
    held: how many numbers `_held` has
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: Space,
        answers: int,
        params: Mapping[str, Any],
        asked: NDArray[np.bool_],
        held: int,
        **kwargs: Any,
    ):
        pay = asked / asked.sum()
        self._rules = {**params, **kwargs}
        full_space = Box(0, 1, (answers + held + 1,), np.float32)
        more: dict[str, Any] = {"right": pay, "wrong": 0 * pay, "full_space": full_space}
        super().__init__(num_envs, observation_space, Discrete(answers), params, **more, **kwargs)
        self._choices = answers

    def _held(self) -> NDArray[Any]:
        """What must be held after the present observation [N, ...], `held` numbers for each, from 0 to 1."""
        raise NotImplementedError

    def _full_state(self) -> NDArray[np.float32]:
        due = one_hot(self.answers[self._present()], self._choices)
        return features(due, self._held(), self.t / self._steps)

    def _seen(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        """What slots [N, k] of the episode have shown [N, k, ...]; -1 where they have not come yet, or never will."""
        shown = self.tape[slots.clip(0, self._steps), self._all[:, None]].astype(np.int64)
        come = (slots >= 0) & (slots <= self.t[:, None]) & (slots < self._steps)
        return np.where(come.reshape(*come.shape, *[1] * (shown.ndim - 2)), shown, -1)

    def stream(self, batch_size: int, window: int, seed: int) -> ScriptStream:
        """`batch_size` rows of episodes that nobody has read yet, with their answers."""
        return ScriptStream(type(self)(batch_size, **self._rules), window, seed)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """It always names the same answer, as good a guess as any."""
        return np.zeros(self.num_envs, np.int64)

    def scores(self) -> Scores:
        if self.max_episode_steps is not None:
            return UNKNOWN
        return Scores(random=1 / self._choices, memoryless=1 / self._choices, oracle=1.0)
