"""The base of native environments: N of them, stepped by array operations."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
from annotated_types import Gt
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlmem_envs.core.actions import ActionCheck
from rlmem_envs.core.draws import Draws
from rlmem_envs.core.given import Given
from rlmem_envs.core.known import NOTHING, UNKNOWN, Demand, Horizons, Scores
from rlmem_envs.core.parameters import checked, unknown_parameter
from rlmem_envs.core.task import Facts, Observe, Task, Who
from rlmem_envs.core.view import View

__all__ = ["NOTHING", "UNKNOWN", "BatchedEnv", "Demand", "Facts", "Horizons", "Observe", "Scores", "Who"]
"""What a module with a task needs."""

ONE = np.array(1)
"""An array, which numpy adds twice as fast as a number."""


class BatchedEnv(Task):
    """N copies of one task, stepped together by array operations, with NEXT_STEP autoreset and an exact state.

    `Task` says what its author fills in.

    Environment i of a vector reset with seed s plays the same episodes for every N. Hidden facts can be given:
    `reset(options={"hidden": {name: array [N, ...]}})` replaces those of the next episode; names that `_draw` does not
    return but `per_step` lists are given with one entry for each step, [N, T, ...]. `options={"reset_mask": [N] bool}`
    resets some of the environments. `options={"task": [N] int}` has their next episodes repeat the task of earlier
    ones, by `episode_number`; -1: a task of their own.

    num_envs: N, the environments that are stepped together
    max_episode_steps: truncate episodes there, None: where the task ends them
    params: the parameters of the rules, as the constructor takes them
    privileged: whether observations have a leaf `privileged`
    action_mask: whether observations have a leaf `action_mask`
    observe: partial, what the rules show, or full, that and the full state
    """

    metadata: dict[str, Any] = {
        "autoreset_mode": AutoresetMode.NEXT_STEP,
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 5,
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]

    @checked
    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)],
        observation_space: gym.Space,
        action_space: gym.Space,
        params: Mapping[str, Any],
        max_episode_steps: Annotated[int, Gt(0)] | None = None,
        render_mode: Literal["ansi", "rgb_array"] | None = None,
        privileged: bool = False,
        action_mask: bool = False,
        full_space: Box | None = None,
        observe: Observe = "partial",
        **unknown: Any,
    ):
        if unknown:
            raise TypeError(unknown_parameter(next(iter(unknown)), type(self)))
        self.num_envs = num_envs
        self._space, self._full_space = observation_space, full_space  # of what `_observe` and `_full_state` return
        self._twin = observe == "full"
        self.single_action_space = action_space
        self._view = View(self, observe, privileged, action_mask)
        self.single_observation_space = self._view.space
        self.observation_space = batch_space(self._view.space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.params = dict(params)
        self.max_episode_steps = max_episode_steps
        self.render_mode = render_mode
        self.draws = Draws(num_envs)
        self.t = np.zeros(num_envs, np.int64)  # steps of the running episode
        self.over = np.zeros(num_envs, bool)  # the episode has ended, the next step begins another
        self._given = Given()
        self._all = np.arange(num_envs)
        self._check = ActionCheck(action_space, num_envs)
        self._in_step = True  # whether all environments are at the same step of their episodes
        self._seeded = False
        self._task: NDArray[np.int64] | None = None  # while `reset` begins episodes of earlier tasks

    # ---- the interface of Gymnasium

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """First observations [N, ...]. Without a seed the streams go on with their next episodes.

        Raises ValueError, before anything has changed, for hidden facts that the task does not have or that no episode
        can have, and for seeds or a mask of another length.
        """
        options = options or {}
        hidden, mask = options.get("hidden") or {}, options.get("reset_mask")
        who = self._all
        if mask is not None:
            if np.shape(mask) != (self.num_envs,):
                raise ValueError(f"reset_mask has shape {np.shape(mask)}, expected ({self.num_envs},)")
            who = np.flatnonzero(mask)
        if isinstance(seed, Sequence | np.ndarray) and len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
        if not self._seeded:  # nothing has begun yet, so all of them do
            who = self._all
        if len(who):
            before = self.draws.state()
            if seed is not None or not self._seeded:
                self.draws.seed(seed, who)
            self._task = None if options.get("task") is None else np.asarray(options["task"])
            try:
                self._start(who, hidden)
            except ValueError:
                self.draws.restore(before)
                raise
            finally:
                self._task = None
            self._seeded = True
        return self._view(self), {}

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Act everywhere, except where the episode was over: there the action is ignored and the next one begins.

        Raises InvalidAction, before anything has changed, if an action is not in the action space, and ResetNeeded
        before the first reset.
        """
        if not self._seeded:
            raise ResetNeeded("no episode has begun: call reset() before step()")
        over = self.over
        actions = self._check(actions, over)
        rewards, terminated, truncated = self._advance(actions)
        self.t += ONE
        if self.max_episode_steps is not None:
            truncated = truncated | ((self.t >= self.max_episode_steps) & ~terminated)
        if np.count_nonzero(over):  # much quicker than over.any()
            rewards[over], terminated[over], truncated[over] = 0, False, False
            self._start(np.flatnonzero(over), {})
        self.over = terminated | truncated
        infos: dict[str, Any] = {}
        if np.count_nonzero(self.over) and (success := self._success()) is not None:
            infos = {"success": success & self.over, "_success": self.over.copy()}
        return self._view(self), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """One picture for each environment: text (ansi) or an array [height, width, 3] (rgb_array)."""
        if self.render_mode is None:
            return None
        show = self.text if self.render_mode == "ansi" else self.picture
        return tuple(show(i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Nothing to close."""

    # ---- episodes

    @property
    def episode_number(self) -> NDArray[np.int64]:
        """The number of each environment's episode since it was seeded [N]."""
        return self.draws.episode.copy()

    def _start(self, who: Who, hidden: Mapping[str, Any]) -> None:
        """Begin new episodes in environments `who`."""
        self.draws.next_episode(who)
        facts = self._draw(who)
        if self._task is not None:
            self._repeat(facts, who, self._task[who])
        self._given.begin(self, who, facts, hidden)
        self.t[who] = 0
        self.over[who] = False
        self._in_step = self._is_in_step()
        self._begin(who, facts)

    def _repeat(self, facts: Facts, who: Who, task: NDArray[np.int64]) -> None:
        """Put the facts of the tasks of earlier episodes `task` [n] in the place of new ones, where they are not -1."""
        rows = np.flatnonzero(task >= 0)
        with self.draws.as_in(who[rows], task[rows]):
            earlier = self._draw(who[rows])
        for name in facts if self.task_facts is None else self.task_facts:
            facts[name][rows] = earlier[name]

    def _or_given(self, name: str, drawn: NDArray[Any], who: Who, t: NDArray[np.int64]) -> NDArray[Any]:
        """`drawn` [n, ...] for step t [n] of environments `who`, or what `reset` was given for it, written in place."""
        return self._given.override(name, drawn, who, t)

    def _is_in_step(self) -> bool:
        return bool((self.t == self.t[0]).all())

    def _present(self) -> Any:
        """Index of every environment's present row in arrays [T, N, ...]: one number while all are at the same step."""
        return int(self.t[0]) if self._in_step else (self.t, self._all)

    # ---- the exact state

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here: arrays, by name."""
        arrays = {name: value.copy() for name, value in self._state_arrays().items()}
        return {"arrays": arrays, "draws": self.draws.state(), "given": self._given.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a vector of the same size and parameters to a saved `state`. Raises ValueError for another size."""
        if len(state["arrays"]["t"]) != self.num_envs:
            raise ValueError(f"a state of {len(state['arrays']['t'])} environments does not fit {self.num_envs}")
        if state["arrays"].keys() != self._state_arrays().keys():
            raise ValueError(f"a state of {', '.join(state['arrays'])} is none of {type(self).__name__}")
        for name, value in state["arrays"].items():
            setattr(self, name, np.array(value))
        self._in_step = self._is_in_step()
        self.draws.restore(state["draws"])
        self._given.restore(state["given"])
        self._seeded = True

    def _state_arrays(self) -> dict[str, NDArray[Any]]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_") and isinstance(v, np.ndarray)}
