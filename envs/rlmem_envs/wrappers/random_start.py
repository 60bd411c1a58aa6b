"""RandomStart: episodes that begin after some random actions."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import Who
from rlmem_envs.wrappers.timing import TimeLayer, put_infos, put_rows


class RandomStart(TimeLayer):
    """Episodes begin after 0 to `steps` uniform random actions, each number as likely as the others.

    | | |
    |---|---|
    | observation | the first one is that after the random actions |
    | reward | those of the random actions are not seen |
    | end | a time limit of the environment counts the random actions; an episode that ends in them begins anew |
    | hidden | the number of random actions, and the actions |

    Single environments alone can do that: `env=gym`. It comes before all other wrappers.

    steps: the most random actions
    """

    def __init__(self, env: VectorEnv, steps: Annotated[int, Ge(0)] = 30):
        super().__init__(env)
        self._steps = steps
        space = env.single_action_space
        bounded = isinstance(space, Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all()
        if not bounded and not isinstance(space, Discrete | MultiDiscrete):
            raise ValueError(
                f"RandomStart draws actions from a Box with bounds, a Discrete or a MultiDiscrete, not {space}"
            )

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        begins = self.over
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if begins.any():
            who = np.flatnonzero(begins)
            self.draws.next_episode(who)
            obs, infos = self._led(who, obs, infos)
        self.over = np.logical_or(terminated, truncated)
        return obs, rewards, terminated, truncated, infos

    def step_rows(self, rows: NDArray[np.bool_], actions: Any) -> tuple[Any, ...]:
        result: tuple[Any, ...] = self.env.step_rows(rows, actions)  # type: ignore[attr-defined]
        self.over = np.where(rows, np.logical_or(result[2], result[3]), self.over)
        return result

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        obs, infos = super().reset(seed=seed, options=options)
        return self._led(self._all if mask is None else np.flatnonzero(mask), obs, infos, options)

    def _led(self, who: Who, obs: Any, infos: dict[str, Any], options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Observations and infos after the random actions of the episodes that begin in `who`, reset with `options`."""
        left = np.zeros(self.num_envs, np.int64)
        left[who] = self.draws.integers(who, self._steps + 1)
        while (rows := left > 0).any():
            taken = self._actions(np.flatnonzero(rows))
            seen, _, terminated, truncated, news = self.env.step_rows(rows, taken)  # type: ignore[attr-defined]
            obs, infos = put_rows(rows, obs, seen, self.single_observation_space), put_infos(rows, infos, news)
            left -= rows
            if (ended := rows & (terminated | truncated)).any():
                seen, news = self.env.reset(options={**(options or {}), "reset_mask": ended})
                obs, infos = put_rows(ended, obs, seen, self.single_observation_space), put_infos(ended, infos, news)
                left[ended] = 0
        return obs, infos

    def _actions(self, who: Who) -> NDArray[Any]:
        """Actions [N, ...], uniform in environments `who`."""
        space = self.single_action_space
        actions = np.zeros(self.action_space.shape or (), space.dtype)
        if isinstance(space, Box):
            share, whole = self.draws.uniform(who, *space.shape), np.dtype(space.dtype).kind != "f"
            low, high = space.low.astype(np.longdouble), space.high.astype(np.longdouble)  # no span is too large
            drawn = np.minimum(low + (np.floor(share * (high - low + 1)) if whole else share * (high - low)), high)
        elif isinstance(space, MultiDiscrete):
            drawn = space.start + self.draws.integers(who, space.nvec, *space.nvec.shape)
        else:
            drawn = space.start + self.draws.integers(who, int(space.n))  # type: ignore[attr-defined]
        actions[who] = drawn
        return actions
