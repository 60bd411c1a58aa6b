"""What the open-loop tasks with dials share: their pay, guessing, and streams for supervised learning."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, Scores
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

    num_envs, observation_space, answers, params: as in `OpenLoopEnv`; `answers` is how many there are to choose from
    asked: whether an answer is asked for [T]
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: Space,
        answers: int,
        params: Mapping[str, Any],
        asked: NDArray[np.bool_],
        **kwargs: Any,
    ):
        pay = asked / asked.sum()
        self._rules = {**params, **kwargs}
        action_space = Discrete(answers)
        super().__init__(num_envs, observation_space, action_space, params, right=pay, wrong=0 * pay, **kwargs)
        self._asked = asked
        self._choices = answers

    def asked(self) -> NDArray[np.bool_]:
        """Whether an answer is asked for at the present observation [N]."""
        return np.append(self._asked, False)[self.t]

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
