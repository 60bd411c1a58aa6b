"""Environments whose exact state can be saved without knowing what is inside them."""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate

from rlmem_envs.interface import InterfaceError, begun, blame, raised, stepped, told


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed the global generators of `random` and numpy, and give them back as they were.

    Some games of popgym draw their boards from the global generators (CountRecall, the labyrinths).
    """
    python, array = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)


class ReplayableEnv(gym.Wrapper):
    """Make every episode a function of (seed, episode number, actions), so that it can be replayed.

    Episode k of an environment reset with `seed` is seeded with a hash of (seed, k). What has happened so far is
    then told by k and the actions taken since: `state` and `restore` need no help from the environment, and a
    checkpoint needs no pickle of it. Environments that draw from global generators while stepping are not covered.

    What the environment returns is held to Gymnasium's interface (`InterfaceError`), and whatever is raised says which
    environment it comes from.

    `repeats` may be set to the number of an earlier episode before a reset: the next one is seeded as that was, and its
    `np_random` is then another. So what `reset` draws is that of the earlier one, and what steps draw is new.

    index: its place in a vector
    """

    def __init__(self, env: gym.Env, index: int = 0):
        super().__init__(env)
        self.index = index
        self.seed = 0
        self.episode = -1
        self.repeats: int | None = None  # the episode that the next one repeats
        self.task = -1  # the episode that this one is seeded as
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.actions = []
        self.task, self.repeats = self.episode if self.repeats is None else self.repeats, None
        episode_seed = int(np.random.SeedSequence([self.seed, self.task]).generate_state(1)[0])
        try:
            with global_seed(episode_seed):
                result = begun(self.env.reset(seed=episode_seed, options=options), self.env.observation_space)
            if self.task != self.episode:
                self.env.unwrapped.np_random = np.random.default_rng([self.seed, self.task, self.episode])
            return result
        except (Exception, SystemExit) as error:  # a script's sys.exit() must not end a run as if it were done
            blame(error, self.index)
            raise

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.actions.append(action)
        try:
            return stepped(self.env.step(action), self.env.observation_space)
        except (Exception, SystemExit) as error:
            blame(error, self.index)
            raise

    def state(self) -> dict[str, Any]:
        repeats = {} if self.task == self.episode else {"task": self.task}
        actions = [np.asarray(action).tolist() for action in self.actions]
        return {"seed": self.seed, "episode": self.episode, "actions": actions, **repeats}

    def restore(self, state: dict[str, Any]) -> None:
        self.seed, self.episode, self.repeats = state["seed"], state["episode"] - 1, state.get("task")
        self.reset()
        dtype = self.env.action_space.dtype
        for action in state["actions"]:
            self.step(np.asarray(action, dtype=dtype)[()])


class ReplayableVectorEnv(SyncVectorEnv):
    """N environments stepped in one process, with NEXT_STEP autoreset and an exact state without pickles.

    Environment i reset with seed s is seeded with s + i, so its episodes do not depend on N.

    masks_in_info: whether agents follow the action masks in `info["action_mask"]`
    """

    masks_in_info = False

    envs: tuple[ReplayableEnv, ...]  # type: ignore[assignment]

    def __init__(self, make_envs: Sequence[Callable[[], gym.Env]]):
        replayable = [partial(_replayable, make, index) for index, make in enumerate(make_envs)]
        super().__init__(replayable, autoreset_mode=AutoresetMode.NEXT_STEP)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """First observations.

        options: `reset_mask` [N]: which environments begin an episode; `task` [N]: numbers of earlier episodes that
            theirs repeat, -1: none. The rest is passed on to every environment
        """
        rest = dict(options or {})
        task = rest.pop("task", None)
        if task is not None:
            for i in np.flatnonzero(rest.get("reset_mask", np.ones(self.num_envs, bool))):
                self.envs[i].repeats = int(task[i]) if task[i] >= 0 else None
        return super().reset(seed=seed, options=rest or None)

    @property
    def episode_number(self) -> np.ndarray:
        """The number of each environment's episode since it was seeded [N]."""
        return np.array([env.episode for env in self.envs])

    def step_rows(
        self, rows: np.ndarray, actions: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """`step` where `rows` [N] is true, and no episode is over; the rows of the others mean nothing."""
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(rows):
            result = self.envs[i].step(actions[i])
            self._env_obs[i], self._rewards[i], self._terminations[i], self._truncations[i], info = result
            infos = self._add_info(infos, info, int(i))
        ended = self._terminations | self._truncations
        self._autoreset_envs[rows] = ended[rows]
        self._observations = concatenate(self.single_observation_space, self._env_obs, self._observations)
        flags = self._terminations & rows, self._truncations & rows
        return deepcopy(self._observations), np.where(rows, self._rewards, 0.0), *flags, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; what one raises then is said, and changes nothing that has been done."""
        for env in self.envs:
            try:
                env.close()
            except (Exception, SystemExit) as error:
                warnings.warn(f"environment {env.index}: close() {raised(error)}", stacklevel=2)

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        try:
            return super()._add_info(vector_infos, env_info, env_num)
        except Exception as error:  # of values that cannot stand in one array with those before
            problem = InterfaceError(f"info {told(env_info)}; expected values of the same kinds in every step")
            blame(problem, env_num)
            raise problem from error

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here, as ints and lists."""
        return {"envs": [env.state() for env in self.envs], "autoreset": self._autoreset_envs.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a fresh vector to a saved `state`; the caller keeps the last observations."""
        self.reset(seed=0)
        for env, saved in zip(self.envs, state["envs"], strict=True):
            env.restore(saved)
        self._autoreset_envs[:] = state["autoreset"]


def _replayable(make: Callable[[], gym.Env], index: int) -> gym.Env:
    return ReplayableEnv(make(), index)
