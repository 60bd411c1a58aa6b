"""Repeat: actions that last."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Gt
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.timing import TimeLayer, put_infos, put_rows


class Repeat(TimeLayer):
    """Every action is taken `steps` times, or until the episode ends; what is seen in between is skipped.

    | | |
    |---|---|
    | action | as of the environment, for `steps` of its steps |
    | reward | the sum of those steps |
    | end | as of the environment; a step here is up to `steps` there |
    | observation | the last one |

    Single environments alone can do that: `env=gym`. It comes before all wrappers but `random_start`.

    steps: how often an action is taken
    """

    def __init__(self, env: VectorEnv, steps: Annotated[int, Gt(0)] = 4):
        super().__init__(env)
        self._steps = steps

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        begins = self.over
        result = self._again(~begins, actions, self.env.step(actions))
        self.over = np.logical_or(result[2], result[3])
        return result

    def step_rows(self, rows: NDArray[np.bool_], actions: Any) -> tuple[Any, ...]:
        return self._again(rows, actions, self.env.step_rows(rows, actions))  # type: ignore[attr-defined]

    def _again(self, rows: NDArray[np.bool_], actions: Any, result: tuple[Any, ...]) -> tuple[Any, ...]:
        """What `rows` gave for an action in the end, after one step of it."""
        obs, rewards, terminated, truncated, infos = result
        rewards, terminated, truncated = np.array(rewards), np.array(terminated), np.array(truncated)
        for _ in range(self._steps - 1):
            rows = rows & ~terminated & ~truncated
            if not rows.any():
                break
            seen, reward, *ends, news = self.env.step_rows(rows, actions)  # type: ignore[attr-defined]
            obs, infos = put_rows(rows, obs, seen, self.single_observation_space), put_infos(rows, infos, news)
            rewards[rows] += reward[rows]
            terminated[rows], truncated[rows] = (flags[rows] for flags in ends)
        return obs, rewards, terminated, truncated, infos
