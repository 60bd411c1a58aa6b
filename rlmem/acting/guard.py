"""Checks of everything that a vector of environments returns, before an agent learns from it."""

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv

from rlmem.acting.workers import death_of_worker, raised, watch_workers
from rlmem.core.errors import Fault, UserError, lacks_memory, printable
from rlmem.core.spaces import ACTION_MASK, is_tree, readable_type

T = TypeVar("T")

LARGEST = float(np.finfo(np.float32).max)

HUGE = 1e9
"""Size of a reward or an observation from which on `Guard.remark` names it."""

NUMBERS = "biuf"
"""The kinds of numpy's types that are real numbers."""


class UnreadableObservation(ValueError):
    """Observations that no agent can read.

    where: true for the numbers at fault [N, ...]; None: all of them
    """

    def __init__(self, where: np.ndarray | None, line: str):
        super().__init__(line)
        self.where = where


class ObservationCheck:
    """Check of a space's observations, and their cast to the type that agents read (`rlmem.core.spaces.readable_type`).

    space: of one environment, or of one leaf of it, whose `name` is its path

    An agent reads real numbers that are finite in float32 and that their space's type can hold, and of a discrete space
    its values. The bounds of a Box are often wrong, and are not checked.
    """

    def __init__(self, space: Space, name: str = ""):
        self.space, self.dtype = space, readable_type(space)
        self.said = f"observations `{name}`" if name else "observations"
        self.whole = self.dtype.kind in "iub"
        self.casts = [np.dtype(space.dtype), self.dtype] if self.whole else [self.dtype]
        self.bounds: tuple[Any, Any] | None = None
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            count = space.n if isinstance(space, spaces.Discrete) else space.nvec
            self.bounds = space.start, space.start + count - 1

    def read(self, obs: np.ndarray) -> np.ndarray:
        """A copy of observations [N, ...] in the type that agents read. Raises UnreadableObservation."""
        if obs.dtype.kind not in NUMBERS or (self.whole and obs.dtype.kind == "f"):
            raise UnreadableObservation(None, f"observations of type {obs.dtype}; expected {self.space.dtype}")
        typed = obs.copy()
        with np.errstate(over="ignore"):
            for dtype in self.casts:
                if typed.dtype != dtype:
                    before, typed = typed, typed.astype(dtype)
                    if self.whole and np.count_nonzero(same := typed == before) < same.size:
                        raise UnreadableObservation(~same, f"observation {before[~same][0]}; expected {dtype}")
            if not self.whole:
                self._require_finite(typed.astype(np.float32, copy=False), obs)
        if self.bounds is not None and any_of(outside := (typed < self.bounds[0]) | (typed > self.bounds[1])):
            excerpt = _excerpt(typed[np.argwhere(outside)[0, 0]].tolist())
            raise UnreadableObservation(outside, f"observation {excerpt}; expected one of {self.space}")
        return typed

    def _require_finite(self, typed: np.ndarray, obs: np.ndarray) -> None:
        """Raise UnreadableObservation unless a network of float32 reads finite numbers; obs: as they came."""
        if np.count_nonzero(finite := np.isfinite(typed)) == finite.size:
            return
        value = obs[~finite][0]
        if not np.isfinite(value):
            raise UnreadableObservation(~finite, f"observation with {value}; expected finite numbers")
        kind = min(self.dtype, typed.dtype, key=lambda dtype: dtype.itemsize)
        raise UnreadableObservation(~finite, f"observation {value}; expected a finite number of {kind}")


class Folder:
    """The current folder of one vector of environments, which they may change; that of rlmem stays."""

    def __init__(self) -> None:
        self.path: str | None = None
        """None: that of rlmem."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A context for calls of the environments."""
        ours = _current_folder()
        if self.path is not None:
            with suppress(OSError):
                os.chdir(self.path)
        try:
            yield
        finally:
            there = _current_folder()
            self.path = None if there == ours else there
            if ours is not None and there != ours:
                os.chdir(ours)


def folder_of(env: Any, first: Folder | None = None) -> Folder:
    """The folder of a vector, whatever wraps it; `first` if it has none yet."""
    return vars(getattr(env, "unwrapped", env)).setdefault("_current_folder", first or Folder())


def _current_folder() -> str | None:
    """The current folder; None if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


class Guard:
    """Steps a vector of environments. What it raises, and what no agent can learn from, becomes a Fault of one line.

    The line names the environment and the step, and the Fault has the traceback of what the environment's author
    wrote. An exception may say more, in an attribute `blame`: the index of its environment, a line in the place of
    the exception's own, and a traceback of another process.

    It checks shapes, kinds of numbers, numbers that are not finite or too large for their type, observations outside a
    discrete space, action masks that allow nothing where the agent must act, and episodes that end before anything
    acted in them. The arrays that it returns are copies in the types that agents read, and masks are booleans.
    Observations of several parts have their leaves by their paths.

    masks_ignored: whether infos have action masks that nothing reads
    remark: the largest reward or number of an observation so far, if it is HUGE, for messages about losses that are not
        finite
    """

    def __init__(self, env: VectorEnv):
        self.env, self.folder = env, folder_of(env)
        watch_workers(env)
        self.steps = 0
        self.remark, self.largest = "", HUGE
        self.lengths = np.zeros(env.num_envs, np.int64)
        self.begins = np.ones(env.num_envs, bool)
        space: Any = env.single_observation_space
        self.masks_ignored, self.has_parts = False, is_tree(space)
        leaves = space.items() if self.has_parts else [("", space)]
        self.checks = {name: ObservationCheck(leaf, name) for name, leaf in leaves}
        action = env.single_action_space
        sizes = action.nvec if isinstance(action, spaces.MultiDiscrete) else [0]
        self.components: Any = np.cumsum(sizes)[:-1]  # where the mask of the next component begins

    def reset(self, seed: int | None = None, steps: int = 0) -> Any:
        """Begin an episode everywhere; the observations [N, ...]. steps: environment steps that were counted so far."""
        self.steps, self.begins = steps, np.ones_like(self.begins)
        result = self.call(lambda: self.env.reset() if seed is None else self.env.reset(seed=seed))
        if not isinstance(result, tuple) or len(result) != 2:
            self._refuse(None, f"reset() returned {_form(result)}; expected (observations, infos)")
        obs = self._observations(result[0])
        if ACTION_MASK in self.checks:
            self._require_choice(obs, None)
        infos = result[1] if isinstance(result[1], Mapping) else {}
        self.masks_ignored = ACTION_MASK in infos and ACTION_MASK not in self.checks
        return obs

    def step(
        self, actions: np.ndarray, begins: np.ndarray, steps: int, lengths: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Mapping[str, Any]]:
        """Observations [N, ...], rewards [N] (float32), terminated [N], truncated [N] and infos.

        begins: [N], where this step ignores the action and begins an episode
        steps: environment steps that were counted so far
        lengths: [N], environment steps of the running episodes
        """
        self.steps, self.begins, self.lengths = steps, begins, lengths
        result = self.call(lambda: self.env.step(actions))
        if not isinstance(result, tuple) or len(result) != 5:
            expected = "(observations, rewards, terminated, truncated, infos)"
            self._refuse(None, f"step() returned {_form(result)}; expected {expected}")
        obs, reward, terminated, truncated, infos = result
        obs, reward = self._observations(obs), self._rewards(reward)
        terminated = self._row("terminated", as_flags(terminated), "b", "of True or False")
        truncated = self._row("truncated", as_flags(truncated), "b", "of True or False")
        if ACTION_MASK in self.checks:
            self._require_choice(obs, terminated | truncated)
        if any_of(begins) and any_of(empty := (terminated | truncated) & begins):
            self._refuse(empty, "the episode ended in the step that began it; expected one action at least")
        if not isinstance(infos, Mapping):
            self._refuse(None, f"infos {_excerpt(infos)}; expected a dictionary")
        for name in ("success", "_success"):
            if name in infos and np.shape(infos[name]) != self.begins.shape:
                self._refuse(None, f"infos[{name!r}] {_excerpt(infos[name])}; expected {len(self.begins)} values")
        return obs, reward, terminated, truncated, infos

    def call(self, ask: Callable[[], T], plain: tuple[type[Exception], ...] = ()) -> T:
        """The result of `ask`, which calls the environments; what it raises becomes a Fault.

        plain: exceptions that are raised as they are if no environment is to blame
        """
        try:
            with self.folder.entered():
                return ask()
        except (UserError, Fault, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # third-party code, which may even call sys.exit()
            if lacks_memory(error) or (isinstance(error, plain) and not hasattr(error, "blame")):
                raise
            source = death_of_worker(self.env, error) or error
            environment, line, trace = getattr(source, "blame", (None, None, None))
            where = f"step {self.steps}" if line and environment is None else self._where(environment)
            trace = "".join(traceback.format_exception(error)) if trace is None else trace
            raise Fault(f"{where}: {line or raised(error)}", trace) from error

    def _observations(self, raw_obs: Any) -> Any:
        if not self.has_parts:
            return self._part(self.checks[""], raw_obs)
        if not isinstance(raw_obs, Mapping) or (lacking := [name for name in self.checks if name not in raw_obs]):
            problem = f"lack `{lacking[0]}`" if isinstance(raw_obs, Mapping) else _excerpt(raw_obs)
            self._refuse(None, f"observations {problem}; expected a dictionary of {', '.join(self.checks)}")
        obs = {name: self._part(part, raw_obs[name]) for name, part in self.checks.items()}
        if ACTION_MASK in obs:
            obs[ACTION_MASK] = obs[ACTION_MASK] != 0
        return obs

    def _part(self, part: ObservationCheck, values: Any) -> np.ndarray:
        shape = len(self.begins), *(part.space.shape or ())
        try:
            obs = np.asarray(values)
        except (ValueError, TypeError):
            self._refuse(None, f"{part.said} {_excerpt(values)}; expected an array of shape {shape}")
        if obs.shape != shape:
            self._refuse(None, f"{part.said} of shape {obs.shape}; expected {shape}")
        try:
            obs = part.read(obs)
        except UnreadableObservation as problem:
            self._refuse(problem.where, str(problem))
        if obs.dtype.itemsize >= 4 and part.bounds is None:
            self._note(f"an observation{part.said.removeprefix('observations')}", np.abs(obs))
        return obs

    def _require_choice(self, obs: Any, ended: np.ndarray | None) -> None:
        """Refuse action masks that allow nothing. Where no action follows, such a mask allows everything.

        ended: [N], where no action follows; None: nowhere
        """
        for component in np.split(obs[ACTION_MASK], self.components, axis=-1):  # views
            empty: Any = ~component.any(-1)
            if any_of(wrong := empty if ended is None else empty & ~ended):
                self._refuse(wrong, "its action mask allows no action; expected one at least")
            component[empty] = True

    def _rewards(self, values: Any) -> np.ndarray:
        rewards = self._row("rewards", np.asarray(values), NUMBERS, "numbers")
        sizes = np.abs(rewards)
        fits = sizes <= LARGEST  # false for NaN
        if np.count_nonzero(fits) < len(fits):
            reward = rewards[fits.argmin()]
            self._refuse(~fits, f"reward {reward}; expected a finite number{' of float32' * bool(np.isfinite(reward))}")
        self._note("a reward", sizes)
        return rewards.astype(np.float32)

    def _note(self, name: str, sizes: np.ndarray) -> None:
        """Keep the largest of the absolute values [N, ...] of what environments gave."""
        if sizes.size and (largest := sizes.max()) > self.largest:
            environment = np.argwhere(sizes == largest)[0, 0]
            self.largest = largest
            self.remark = f"environment {environment} gave {name} of size {largest:.3g} at step {self.steps}"

    def _row(self, name: str, values: np.ndarray, kinds: str, expected: str) -> np.ndarray:
        """The values themselves; refuses all but one of these kinds for each environment."""
        if values.shape != self.begins.shape or values.dtype.kind not in kinds:
            problem = f"{name} of shape {values.shape} and type {values.dtype}"
            self._refuse(None, f"{problem}; expected {len(self.begins)} {expected}")
        return values

    def _refuse(self, wrong: np.ndarray | None, line: str) -> NoReturn:
        """Raise a Fault. wrong: [N, ...], true for environments at fault; None: the vector as a whole."""
        where = self._where(None if wrong is None else int(np.argwhere(wrong)[0, 0]))
        raise Fault(f"{where}: {line}; nothing of this step is kept; correct the environment before resuming")

    def _where(self, environment: int | None) -> str:
        if environment is None:
            return f"step {self.steps}: the environments"
        within = f"step {self.lengths[environment] + 1} of its episode"
        when = "beginning an episode" if self.begins[environment] else within
        return f"step {self.steps}: environment {environment}, {when}"


def as_flags(values: Any) -> np.ndarray:
    """A copy as an array, of booleans if all of it is 0, 1, True or False."""
    flags = np.array(values)
    return flags.astype(bool) if flags.dtype.kind in "iu" and ((flags == 0) | (flags == 1)).all() else flags


def any_of(mask: np.ndarray) -> bool:
    """`mask.any()`, ten times as fast on small arrays."""
    return bool(np.count_nonzero(mask))


def _form(result: Any) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else _excerpt(result)


def _excerpt(value: Any, most: int = 60) -> str:
    text = printable(" ".join(repr(value).split()))
    return f"{text if len(text) <= most else text[: most - 3] + '...'} ({type(value).__name__})"
