"""RL2: several episodes of one task as one."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.popgym.wrappers import Columns
from rlmem_envs.wrappers.layer import Layer, Who, as_box
from rlmem_envs.wrappers.timing import put_infos

Input = Literal["action", "reward", "done"]
BEFORE = "before"
"""The part of observations that holds what is seen of the step before, where they are no vectors."""


class RL2(Layer):
    """A trial of `episodes` episodes of one task is one episode here, so a memory is carried from one to the next.

    As in RL^2 (Duan et al. 2016, arXiv:1611.02779; Wang et al. 2016, arXiv:1611.05763): play in the first episodes
    finds out what the later ones can use. Nothing else says which task it is.

    | | |
    |---|---|
    | observation | Box: the environment's (discrete ones one-hot), then of the step before: the action (one-hot if \
discrete), the reward, and 1 if it ended an episode of the trial; zeros at first. Images, and observations of several \
parts, are a Dict that has the step before as a part of its own, `before` |
    | action, reward | as of the environment |
    | end | terminates with the last episode of the trial, however that ends |
    | hidden | the task: of a task of rlmem its hidden facts, as far as they are the task (`task_facts`), of a single \
Gymnasium environment all that `reset(seed)` draws |

    The step that ends an episode inside of a trial returns the first observation of the next one; that episode's final
    observation is not seen. What steps draw at random is new in every episode; vectors of others (`Slotted`) seed their
    episodes as a whole, so theirs are alike in that, too.

    episodes: episodes of a trial
    inputs: what is seen of the step before; with none of them the observation stays as it is
    """

    def __init__(
        self,
        env: VectorEnv,
        episodes: Annotated[int, Gt(0)] = 2,
        inputs: Sequence[Input] = ("action", "reward", "done"),
    ):
        super().__init__(env)
        if not hasattr(env, "episode_number"):
            problem = "does not number its episodes, by which one is repeated"
            raise ValueError(f"RL2: {type(env.unwrapped).__name__} {problem}; expected a task of rlmem, or env=gym")
        if wrong := [name for name in inputs if name not in ("action", "reward", "done")]:
            raise ValueError(f"inputs: {wrong[0]!r} is none of action, reward and done")
        self._episodes = episodes
        self.ended = np.zeros(env.num_envs, np.int64)  # episodes of the trial
        self.task = np.zeros(env.num_envs, np.int64)  # the number of its first one
        old = as_box(env.single_observation_space)
        spaces = {
            "action": env.single_action_space,
            "reward": Box(-np.inf, np.inf, (1,), np.float32),
            "done": Box(0, 1, (1,), np.float32),
        }
        self._inputs = {name: Columns(spaces[name], True) for name in inputs}
        bits = isinstance(env.single_observation_space, MultiBinary)
        flat = bits or isinstance(old, Discrete | MultiDiscrete) or (isinstance(old, Box) and len(old.shape) == 1)
        self._old = Columns(old, True) if flat else None
        if not inputs:
            return
        dtype = old.dtype if isinstance(old, Box) and np.dtype(old.dtype).kind == "f" else np.float32
        columns = [*([self._old] if self._old else []), *self._inputs.values()]
        low, high = (
            np.concatenate(ends).astype(dtype) for ends in zip(*[part.bounds for part in columns], strict=True)
        )
        self._row = Box(low, high, dtype=dtype)
        if flat:
            self._set_space(self._row)
            return
        parts = dict(old.spaces) if isinstance(old, Dict) else {"observation": old}
        if BEFORE in parts:
            raise ValueError(f"RL2: observations have a part `{BEFORE}` already; e.g. inputs=[]")
        self._set_space(Dict({**parts, BEFORE: self._row}))

    def _begin(self, who: Who, obs: Any) -> None:
        self.ended[who] = 0
        self.task[who] = self.env.episode_number[who]  # type: ignore[attr-defined]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, infos = super().reset(seed=seed, options=options)
        return self._joined(obs, None, None, None, np.ones(self.num_envs, bool)), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        begins = self.over
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if begins.any():
            self._started(np.flatnonzero(begins), obs)
        done = np.logical_or(terminated, truncated)
        self.ended += done
        self.over = done & (self.ended == self._episodes)
        if (again := done & ~self.over).any():
            obs, begun = self.env.reset(options={"reset_mask": again, "task": self.task.copy()})
            infos = put_infos(again, infos, begun)  # such as the actions that are allowed now
        obs = self._joined(obs, actions, rewards, done, begins)
        return obs, rewards, self.over.copy(), np.zeros_like(done), infos

    def _joined(self, obs: Any, actions: Any, rewards: Any, done: Any, first: NDArray[np.bool_]) -> Any:
        """Observations with what is seen of the step before, of which there is none in `first`."""
        if not self._inputs:
            return obs
        before = {"action": actions, "reward": rewards, "done": done}
        row, at = np.zeros((self.num_envs, *self._row.shape), self._row.dtype), 0
        if self._old is not None:
            at = self._old.width
            self._old.write(np.asarray(obs) - _start(self.env.single_observation_space), row[:, :at])
        for name, part in self._inputs.items():
            if before[name] is not None:
                first_value = _start(self.single_action_space) if name == "action" else 0
                part.write(np.asarray(before[name]) - first_value, row[:, at : at + part.width])
                row[first, at : at + part.width] = 0
            at += part.width
        if self._old is not None:
            return row
        return {**(obs if isinstance(obs, dict) else {"observation": obs}), BEFORE: row}


def _start(space: Any) -> Any:
    """The least value of a discrete space, 0 for others."""
    return getattr(space, "start", 0)
