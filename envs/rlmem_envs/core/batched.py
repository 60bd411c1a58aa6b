"""The base of native environments: N of them, stepped by array operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from annotated_types import Gt
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlmem_envs.core.actions import ActionCheck
from rlmem_envs.core.columns import Full
from rlmem_envs.core.draws import Draws
from rlmem_envs.core.parameters import checked, unknown_parameter

Facts = dict[str, NDArray[Any]]
"""Hidden facts of n episodes by name, each [n, ...]."""

Who = NDArray[np.intp]
"""Indices of environments."""

Observe = Literal["partial", "full"]
"""Whether a game is shown as it is, or its fully observed twin."""

ONE = np.array(1)
"""An array, which numpy adds twice as fast as a number."""


@dataclass(frozen=True)
class Scores:
    """Mean returns of an episode; NaN where nobody knows.

    random: uniform random actions
    memoryless: the best known play that sees the current observation only
    oracle: perfect play with perfect memory, or with the hidden facts where the class says so
    """

    random: float
    memoryless: float
    oracle: float


UNKNOWN = Scores(np.nan, np.nan, np.nan)


class Horizons(NamedTuple):
    """Correlation horizons: how far back the observations lie that the best play depends on, beside the present one.

    An agent whose context holds `most` slots before the present one can do without any memory beyond it (Cherepanov et
    al. 2024, arXiv:2412.06531).

    least, most: the fewest and the most slots back; 0 and 0 where nothing need be recalled
    """

    least: int
    most: int


NOTHING = Horizons(0, 0)


class BatchedEnv(VectorEnv):
    """N copies of one task, stepped together by array operations, with NEXT_STEP autoreset and an exact state.

    A task fills in:

    - `_draw(who)`: the hidden facts of new episodes
    - `_begin(who, facts)`: write the state of new episodes
    - `_advance(actions)`: act everywhere; returns rewards [N], terminated [N], truncated [N]. `self.t` still counts
      the steps before this one. An episode that is over is advanced once more before it begins anew, and what comes
      out is dropped, so `_advance` must only not fail there.
    - `_observe()`: the observations [N, ...], an array that nothing writes to later
    - `oracle()` and `memoryless(rng)`: the actions [N] of the two players whose returns `scores` tells
    - `demand()`, if it is known: the observations that the best action depends on
    - `_horizons()`: how far back what must be recalled lies, where that is known

    Array attributes without a leading underscore are the state of the episodes: they are saved and restored.
    Whatever is constant, or follows from the state, begins with an underscore.

    Environment i of a vector reset with seed s plays the same episodes for every N. Hidden facts can be given:
    `reset(options={"hidden": {name: array [N, ...]}})` replaces those of the next episode; names that `_draw` does not
    return but `per_step` lists are given with one entry for each step, [N, T, ...]. `options={"reset_mask": [N] bool}`
    resets some of the environments. `options={"task": [N] int}` has their next episodes repeat the task of earlier
    ones, by `episode_number`; -1: a task of their own.

    A task says what its full state has beside what is seen: it passes the space of that, `full_space`, and fills in
    `_full_state()`. Both together are a Markov state, so that an agent that sees both needs no memory. Chance that is
    yet to come, such as the cards that nobody has turned up, is not a part of it. With observe="full", the task is its
    own twin: the same episodes, step by step, whose observation is what is seen (discrete values one-hot, pixels from 0
    to 1) and then the full state, as one vector. What the players `oracle` and `memoryless` do, and what `scores` says
    of them, does not change.

    A task may also offer what no player without help sees, as parts of the observation beside the leaf `observation`,
    which is then a Dict. Both are off by default.

    - `privileged`: the full state, that a critic may read
    - `action_mask`: the actions that make sense, in `_allowed()`; others are still played as the rules say

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
    tests: ClassVar[str] = ""
    """What an agent needs for this task, in a few words."""
    source: ClassVar[str] = ""
    """Paper and code that the rules come from."""
    levels: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named parameters."""
    known: ClassVar[Mapping[str, Scores]] = {}
    """Scores of the named parameters."""
    keys: ClassVar[Mapping[str, int]] = {}
    """Keyboard keys of the discrete actions; without them the actions are typed as numbers."""
    per_step: Mapping[str, tuple[int, ...]] = {}
    """Hidden facts (floats) that are drawn at every step, not when an episode begins, and their shapes in a step."""
    task_facts: ClassVar[tuple[str, ...] | None] = None
    """Hidden facts that stay as they are while episodes repeat a task; None: all of them."""
    _ranges: Mapping[str, tuple[float, float]] = {}
    """Least and greatest value of hidden facts."""

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
        self._space = observation_space  # of what `_observe` returns
        self._full: Full | None = None  # what a twin shows
        if observe == "full":
            if full_space is None:
                raise ValueError(f"observe=full: {type(self).__name__} declares no full state; expected partial")
            self._full = Full(observation_space, full_space)
            observation_space = self._full.space
        self._beside = self._parts_beside(action_space, privileged, action_mask, full_space)
        if self._beside:
            beside = {name: space for name, (space, _) in self._beside.items()}
            observation_space = Dict({"observation": observation_space, **beside})
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.params = dict(params)
        self.max_episode_steps = max_episode_steps
        self.render_mode = render_mode
        self.draws = Draws(num_envs)
        self.t = np.zeros(num_envs, np.int64)  # steps of the running episode
        self.over = np.zeros(num_envs, bool)  # the episode has ended, the next step begins another
        self.given: Facts = {}  # facts of single steps [N, T, ...] given for the running episodes; NaN: drawn
        self._all = np.arange(num_envs)
        self._check = ActionCheck(action_space, num_envs)
        self._in_step = True  # whether all environments are at the same step of their episodes
        self._seeded = False
        self._task: NDArray[np.int64] | None = None  # while `reset` begins episodes of earlier tasks

    # ---- what a task fills in

    def _draw(self, who: Who) -> Facts:
        raise NotImplementedError

    def _problem(self, facts: Facts) -> str | None:
        """What is wrong with facts [n, ...] that were given, where no episode can have them."""
        for name, (low, high) in self._ranges.items():
            if name in facts and not ((facts[name] >= low) & (facts[name] <= high)).all():
                return f"`{name}` is not within {low} .. {high}"
        return None

    def _begin(self, who: Who, facts: Facts) -> None:
        raise NotImplementedError

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        raise NotImplementedError

    def _observe(self) -> NDArray[Any]:
        raise NotImplementedError

    def _full_state(self) -> NDArray[np.float32]:
        """The full states [N, D] of `full_space`, in a new array."""
        raise NotImplementedError

    def _allowed(self) -> NDArray[np.bool_]:
        """The actions that make sense, [N, A]; those of an episode that is over are not asked for, and may be none."""
        raise NotImplementedError

    def full_state(self) -> NDArray[Any]:
        """The full states [N, ...], for whoever looks on. NotImplementedError where a task offers none."""
        return self._full_state()

    def demand(self) -> NDArray[np.bool_]:
        """The memory demand: whether the best action at slot t depends on the observation at slot i, [T, T] by t and i.

        It is the same in all episodes. NotImplementedError where nobody has written it down, or where it is not.
        """
        raise NotImplementedError

    def oracle(self) -> NDArray[Any]:
        """Actions [N] of the best play, with everything hidden in view. NotImplementedError where nobody knows it."""
        raise NotImplementedError

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Actions [N] of the best known play that sees the current observation only; NotImplementedError likewise."""
        raise NotImplementedError

    def episode_steps(self) -> tuple[int, int]:
        """The fewest and the most steps of an episode."""
        raise NotImplementedError

    def _horizons(self) -> Horizons | None:
        """The correlation horizons of the rules, without regard to max_episode_steps; None: nobody knows."""
        return None

    def _first_use(self) -> int:
        """The first slot of an episode at which something may have to be recalled."""
        return 0

    def _success(self) -> NDArray[np.bool_] | None:
        """Whether the episodes that end now were won [N], for tasks that speak of success."""
        return None

    def text(self, i: int) -> str:
        """What environment i shows, for a terminal."""
        return str(self._observe()[i])

    def horizons(self) -> Horizons | None:
        """The correlation horizons of the task as it is set up; None: nobody knows."""
        found = NOTHING if self._full is not None else self._horizons()
        if found is None or self.max_episode_steps is None:
            return found
        last = self.max_episode_steps - 1
        reached = found.least <= last and self._first_use() <= last
        return Horizons(found.least, min(found.most, last)) if reached else NOTHING

    def scores(self) -> Scores:
        """Known mean returns of the task as it is set up."""
        named = [name for name, params in self.levels.items() if dict(params) == self.params]
        return self.known.get(named[0], UNKNOWN) if named and self.max_episode_steps is None else UNKNOWN

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
        return self._seen_by_agents(), {}

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
        return self._seen_by_agents(), rewards, terminated, truncated, infos

    def _parts_beside(
        self, action_space: gym.Space, privileged: bool, action_mask: bool, full_space: Box | None
    ) -> dict[str, tuple[gym.Space, Callable[[], NDArray[Any]]]]:
        """What observations have beside themselves: by name, the space and what gives it."""
        found: dict[str, tuple[gym.Space, Callable[[], NDArray[Any]]]] = {}
        if privileged:
            if full_space is None:
                raise ValueError(f"privileged=True: {type(self).__name__} offers no full state; expected False")
            found["privileged"] = full_space, self._full_state
        if action_mask:
            if type(self)._allowed is BatchedEnv._allowed:
                raise ValueError(f"action_mask=True: {type(self).__name__} has no action masks; expected False")
            size = action_space.n if isinstance(action_space, Discrete) else sum(action_space.nvec)  # type: ignore[attr-defined]
            found["action_mask"] = MultiBinary(int(size)), self._allowed
        return found

    def _seen_by_agents(self) -> Any:
        """What agents see, [N, ...] or a dictionary of such."""
        obs = self._observe() if self._full is None else self._full.join(self._observe(), self._full_state())
        return {"observation": obs, **{n: look() for n, (_, look) in self._beside.items()}} if self._beside else obs

    def _start(self, who: Who, hidden: Mapping[str, Any]) -> None:
        """Begin new episodes in environments `who`."""
        self.draws.next_episode(who)
        facts = self._draw(who)
        if self._task is not None:
            self._repeat(facts, who, self._task[who])
        tables = self._replace(facts, hidden, who) if hidden else {}
        if self.given:
            self._forget_given(who)
        for name, table in tables.items():
            self._give(name, table, who)
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

    @property
    def episode_number(self) -> NDArray[np.int64]:
        """The number of each environment's episode since it was seeded [N]."""
        return self.draws.episode.copy()

    def _is_in_step(self) -> bool:
        return bool((self.t == self.t[0]).all())

    def _present(self) -> Any:
        """Index of every environment's present row in arrays [T, N, ...]: one number while all are at the same step."""
        return int(self.t[0]) if self._in_step else (self.t, self._all)

    def _replace(self, facts: Facts, hidden: Mapping[str, Any], who: Who) -> Facts:
        """Put what was given in the place of what was drawn; returns the tables [N, T, ...] of single steps."""
        tables = {}
        for name, values in hidden.items():
            array = np.asarray(values)
            if name in facts:
                drawn = facts[name]
                if array.shape != (expected := (self.num_envs, *drawn.shape[1:])):
                    raise ValueError(f"hidden fact `{name}` has shape {array.shape}, expected {expected}")
                with np.errstate(invalid="ignore"):
                    facts[name] = array[who].astype(drawn.dtype)
                if not np.array_equal(facts[name], array[who]):
                    raise ValueError(f"hidden fact `{name}` has values that are not of its type, {drawn.dtype}")
            elif name in self.per_step:
                shape = self.per_step[name]
                if array.dtype.kind not in "fiu" or array.shape[:1] + array.shape[2:] != (self.num_envs, *shape):
                    expected = (self.num_envs, "T", *shape)
                    raise ValueError(f"hidden fact `{name}` has shape {array.shape}, expected numbers {expected}")
                tables[name] = array
            else:
                names = ", ".join([*facts, *self.per_step])
                raise ValueError(f"`{name}` is no hidden fact of {type(self).__name__}; it has: {names}")
        if problem := self._problem(facts):
            raise ValueError(f"hidden fact {problem}")
        return tables

    def _give(self, name: str, array: NDArray[Any], who: Who) -> None:
        """Keep `array` [N, T, ...] for environments `who`; what the others were given stays."""
        old = self.given.get(name, array[:, :0])
        table = np.full((self.num_envs, max(old.shape[1], array.shape[1]), *array.shape[2:]), np.nan)
        table[:, : old.shape[1]] = old
        table[who, : array.shape[1]] = array[who]
        self.given[name] = table

    def _forget_given(self, who: Who) -> None:
        """New episodes begin in environments `who`."""
        for name, table in list(self.given.items()):
            table[who] = np.nan
            if np.isnan(table).all():
                del self.given[name]

    def _or_given(self, name: str, drawn: NDArray[Any], who: Who, t: NDArray[np.int64]) -> NDArray[Any]:
        """`drawn` [n, ...] for step t [n] of environments `who`, or what `reset` was given for it."""
        if name in self.given:
            table = self.given[name]
            rows = np.flatnonzero(t < table.shape[1])
            values = table[who[rows], t[rows]]
            drawn[rows] = np.where(np.isnan(values), drawn[rows], values)
        return drawn

    # ---- the exact state

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here: arrays, by name."""
        arrays = {name: value.copy() for name, value in self._state_arrays().items()}
        return {
            "arrays": arrays,
            "draws": self.draws.state(),
            "given": {name: table.copy() for name, table in self.given.items()},
        }

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
        self.given = {name: np.array(table) for name, table in state["given"].items()}
        self._seeded = True

    def _state_arrays(self) -> dict[str, NDArray[Any]]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_") and isinstance(v, np.ndarray)}

    # ---- looking at it

    def render(self) -> tuple[Any, ...] | None:
        """One picture for each environment: text (ansi) or an array [height, width, 3] (rgb_array)."""
        if self.render_mode is None:
            return None
        show = self.text if self.render_mode == "ansi" else self.picture
        return tuple(show(i) for i in range(self.num_envs))

    def picture(self, i: int) -> NDArray[np.uint8]:
        """Environment i as an image [height, width, 3]: its text, unless the task draws itself."""
        from rlmem_envs.core.pictures import text_picture

        return text_picture(self.text(i))

    def close_extras(self, **kwargs: Any) -> None:
        """Nothing to close."""
