"""What a task is: its rules, as its author writes them, and what is known of it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.core.known import NOTHING, UNKNOWN, Demand, Horizons, Scores

Facts = dict[str, NDArray[Any]]
"""Hidden facts of n episodes by name, each [n, ...]."""

Who = NDArray[np.intp]
"""Indices of environments."""

Observe = Literal["partial", "full"]
"""Whether a game is shown as it is, or its fully observed twin."""


class Task(VectorEnv):
    """The rules of a task in N environments, by array operations. `BatchedEnv` steps them.

    A task must fill in:

    - `episode_steps()`: the fewest and the most steps of an episode
    - `_draw(who)`: the hidden facts of new episodes
    - `_begin(who, facts)`: write the state of new episodes
    - `_advance(actions)`: act everywhere; returns rewards [N], terminated [N], truncated [N]. `self.t` still counts
      the steps before this one. An episode that is over is advanced once more before it begins anew, and what comes
      out is dropped, so `_advance` must only not fail there.
    - `_observe()`: the observations [N, ...], an array that nothing writes to later

    It may fill in, where there is something to say:

    - `_ranges` or `_problem(facts)`: which hidden facts no episode can have; `per_step`: which are drawn at every step
    - `_full_state()`, with `full_space`, and `_allowed()`: see below
    - `_success()`: whether the episodes that end now were won
    - `oracle()` and `memoryless(rng)`: the actions [N] of the two players whose returns `scores` tells
    - `_demand()`, where it is known: the observations that the best action depends on; or, where that is not the same
      in all episodes, `_horizons()`: how far back they lie, and `_first_use()`: the first slot that needs one
    - `levels` with their `known` scores, `tests` and `source`, for the rule card
    - `text(i)`, `picture(i)` and `keys`, for whoever looks on or plays

    `BatchedEnv` has for it: `draws`, the random numbers; `t`, the steps of the episodes; `_all`, the indices of all
    environments; `_present()`, the index of the present rows of arrays [T, N, ...]; and `_or_given()`, through which
    facts that are drawn at every step pass.

    Array attributes without a leading underscore are the state of the episodes: they are saved and restored.
    Whatever is constant, or follows from the state, begins with an underscore.

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
    """

    tests: ClassVar[str] = ""
    """What an agent needs for this task, in a few words."""
    source: ClassVar[str] = ""
    """Paper and code that the rules come from."""
    returns: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    """The least and the greatest return that an episode can have with any parameters; infinite where they decide it."""
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

    params: dict[str, Any]
    """The parameters of the rules, as the constructor takes them."""
    max_episode_steps: int | None
    _space: Space
    """The space of `_observe`."""
    _full_space: Box | None
    """The space of `_full_state`; None: there is none."""
    _twin: bool
    """Whether agents see the full state too."""

    # ---- the rules

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

    def _success(self) -> NDArray[np.bool_] | None:
        """Whether the episodes that end now were won [N], for tasks that speak of success."""
        return None

    def episode_steps(self) -> tuple[int, int]:
        """The fewest and the most steps of an episode."""
        raise NotImplementedError

    # ---- its players

    def oracle(self) -> NDArray[Any] | None:
        """Actions [N] of the best play, with everything hidden in view. None: nobody knows it."""
        return None

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any] | None:
        """Actions [N] of the best known play that sees the current observation only. None: nobody knows one."""
        return None

    def scores(self) -> Scores:
        """Known mean returns of the task as it is set up."""
        named = [name for name, params in self.levels.items() if dict(params) == self.params]
        return self.known.get(named[0], UNKNOWN) if named and self.max_episode_steps is None else UNKNOWN

    # ---- what must be recalled

    def full_state(self) -> NDArray[Any] | None:
        """The full states [N, ...], for whoever looks on. None: the task offers none."""
        return None if self._full_space is None else self._full_state()

    def demand(self) -> NDArray[np.bool_] | None:
        """The memory demand: whether the best action at slot t depends on the observation at slot i, [T, T] by t and i.

        T are the most steps of an episode, at most max_episode_steps. None: nobody has written it down, it is not the
        same in all episodes, or this is a twin, which shows everything at every slot.
        """
        demand = None if self._twin else self._demand()
        if demand is None:
            return None
        steps, most = self.episode_steps()[1], self.max_episode_steps
        return demand.matrix(steps if most is None else min(steps, most))

    def horizons(self) -> Horizons | None:
        """The correlation horizons of the task as it is set up; None: nobody knows."""
        horizons = NOTHING if self._twin else self._horizons()
        if horizons is None or self.max_episode_steps is None:
            return horizons
        last = self.max_episode_steps - 1
        reached = horizons.least <= last and self._first_use() <= last
        return Horizons(horizons.least, min(horizons.most, last)) if reached else NOTHING

    def _demand(self) -> Demand | None:
        """What is demanded by the rules, without regard to max_episode_steps; None: nobody knows, or it varies."""
        return None

    def _horizons(self) -> Horizons | None:
        """The correlation horizons of the rules, without regard to max_episode_steps; None: nobody knows."""
        demand = self._demand()
        return None if demand is None else demand.horizons()

    def _first_use(self) -> int:
        """The first slot of an episode at which something may have to be recalled."""
        return 0

    # ---- looking at it

    def text(self, i: int) -> str:
        """What environment i shows, for a terminal."""
        return str(self._observe()[i])

    def picture(self, i: int) -> NDArray[np.uint8]:
        """Environment i as an image [height, width, 3]: its text, unless the task draws itself."""
        from rlmem_envs.core.pictures import text_picture

        return text_picture(self.text(i))
