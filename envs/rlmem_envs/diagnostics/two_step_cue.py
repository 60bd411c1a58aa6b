"""The smallest task that needs memory."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, Demand, Facts, Observe, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.core.open_loop import OpenLoopEnv, Script


class TwoStepCue(OpenLoopEnv):
    """A cue, then a blank; while the blank is shown, name the cue.

    | | |
    |---|---|
    | observation | Discrete(n + 1): the cue at the first step, then n, a blank |
    | action | Discrete(n): 0 until the last step, there a cue |
    | reward | -1 for another action than 0 before the last step; there 1 for the cue, 0 for another |
    | end | terminates after delay + 1 steps |
    | recall | delay slots back |
    | hidden | `cue`: 0 .. n - 1 |
    | oracle | 1, naming the cue that it has seen |
    | full state | Box [n + 1]: the cue, one-hot; the share of steps taken |

    No player without memory gets more than 1/n, what a guess gets, not even one that sees its previous action and
    reward as well. To tell the cue onwards, it would have to act on it: where it answers, it sees the blank, and all
    episodes in which it always took action 0 look the same to it, so that its answer is right for one cue of them at
    most. In every other episode it lost 1, and the answer brings back no more than that. The return, on average over
    the cues, is thus at most 1/n * 1 + (1 - 1/n) * 0.

    num_cues: n, each as likely as the others
    delay: steps from the cue to the answer
    observe: see `BatchedEnv`
    """

    tests = "one symbol kept for `delay` steps; nothing else"
    source = "of this project"
    returns = (-np.inf, 1.0)
    levels = {
        "two_cues": {"num_cues": 2},
        "four_cues": {"num_cues": 4},
        "late": {"num_cues": 4, "delay": 16},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_cues: Annotated[int, Ge(2), Le(100_000)] = 4,
        delay: Annotated[int, Gt(0)] = 1,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        self._num_cues = num_cues
        right, wrong = np.append(np.zeros(delay), 1.0), np.append(-np.ones(delay), 0.0)
        params = {"num_cues": num_cues, "delay": delay}
        spaces = Discrete(num_cues + 1), Discrete(num_cues)
        more: dict[str, Any] = {"observe": observe, "full_space": Box(0, 1, (num_cues + 1,), np.float32)}
        super().__init__(num_envs, *spaces, params, right=right, wrong=wrong, **more, **kwargs)

    def _draw(self, who: Who) -> Facts:
        return {"cue": self.draws.integers(who, self._num_cues)}

    def _script(self, facts: Facts) -> Script:
        observations = np.full((len(facts["cue"]), self._steps + 1), self._num_cues)
        observations[:, 0] = facts["cue"]
        answers = np.zeros((len(facts["cue"]), self._steps), np.int64)
        answers[:, -1] = facts["cue"]
        return Script(observations, answers)

    def _full_state(self) -> NDArray[np.float32]:
        return features(one_hot(self.answers[self._steps - 1], self._num_cues), self.t / self._steps)

    def _demand(self) -> Demand:
        """Before the last step, action 0 is right whatever was seen."""
        last = np.array([self._steps - 1])
        return Demand(slot=last, back=last)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """It keeps still and names cue 0, as good a guess as any."""
        return np.zeros(self.num_envs, np.int64)

    def scores(self) -> Scores:
        if self.max_episode_steps is not None:
            return UNKNOWN
        chance = 1 / self._num_cues
        return Scores(random=chance - (self._steps - 1) * (1 - chance), memoryless=chance, oracle=1.0)

    def text(self, i: int) -> str:
        seen = int(self._observe()[i])
        return f"cue {seen}" if seen < self._num_cues else "?"
