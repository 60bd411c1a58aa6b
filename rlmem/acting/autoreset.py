"""Vectors of environments by any author as the collector needs them: NEXT_STEP autoreset and an exact state."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.acting.observed import Transparent, given_masks, mask_source
from rlmem.acting.workers import WorkerFailed
from rlmem.core.spaces import component_sizes


def slot_layout(env: VectorEnv) -> VectorEnv:
    """`env` itself if it has NEXT_STEP autoreset and tells its state; otherwise a `Slotted` of it.

    Raises ValueError, which names the class, for a vector that does not say how it resets itself.
    """
    named, said = type(env).__name__, env.metadata.get("autoreset_mode")
    try:
        mode = AutoresetMode.__members__.get(str(said)) or AutoresetMode(said)
    except (ValueError, TypeError) as error:
        example = 'metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}'
        problem = f"{named} has the autoreset mode {said!r} in its metadata"
        modes = ", ".join(AutoresetMode.__members__)
        raise ValueError(f"{problem}; expected one of {modes}, as in {example}") from error
    if mode is AutoresetMode.NEXT_STEP and callable(getattr(env, "state", None)):
        return env
    if (
        mode is AutoresetMode.NEXT_STEP
        and isinstance(env.unwrapped, AsyncVectorEnv)
        and not env.unwrapped.shared_memory
    ):
        problem = "does not forget a reset that is due when it is reset (shared_memory=False)"
        raise ValueError(f"{named} with NEXT_STEP autoreset {problem}; expected shared memory, SAME_STEP or DISABLED")
    return Slotted(env, mode)


class CannotTurn(WorkerFailed):
    """A vector whose autoreset mode cannot be turned into the slot layout; no environment of it is to blame."""


class Slotted(Transparent):
    """A vector with any autoreset mode, as one with NEXT_STEP autoreset and an exact state.

    The step after an episode's end ignores the action and returns the first observation of the next episode. What the
    vector did by itself in the meantime is dropped: every episode is begun here, by a masked reset
    (`options["reset_mask"]`) with a seed of its own, which is a hash of the environment's seed and the number of the
    episode. Episodes are therefore the same in all modes, and the same as `env=gym` plays.

    | mode | final observation | in the step that begins the next episode |
    |---|---|---|
    | NEXT_STEP | as returned | the vector resets itself, and is reset again with the seed |
    | SAME_STEP | `infos["final_obs"]` | the episode that it began goes one step, and is then reset |
    | DISABLED | as returned | it is reset so that it can be stepped, goes one step, and is reset again |

    So an episode costs one step or one reset more than it has. The state is seeds, numbers and the actions of the
    running episodes, which `restore` plays again. Where the vector shows action masks (a leaf of a Dict, infos, or
    `action_masks()`), steps that are played for nothing take actions that are allowed.

    What cannot be turned raises CannotTurn, which names the vector: one that takes no reset mask, unless all its
    episodes end together, and one that resets in the same step without telling the final observation.

    env: the vector
    mode: how it resets itself
    """

    def __init__(self, env: VectorEnv, mode: AutoresetMode):
        super().__init__(env)
        self.mode, self.named = mode, type(env.unwrapped).__name__
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        N = env.num_envs
        self.seeds = np.random.SeedSequence().generate_state(1)[0].astype(np.int64) + np.arange(N)
        self.episode = np.full(N, -1)  # the number of the running episode since the seeds were given
        self.drawn = np.full(N, -1)  # the number that its seed was made from
        self.over = np.zeros(N, bool)
        self.taken: list[list[Any]] = [[] for _ in range(N)]  # the actions of the running episodes
        self.raw: Any = None  # the observations that the vector returned last
        self._infos: Mapping[str, Any] = {}  # and what it said beside them, if its masks are there
        self._masks = mask_source(env)

    @property
    def episode_number(self) -> np.ndarray:
        """The number of each environment's episode since it was seeded [N]."""
        return self.episode.copy()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """First observations [N, ...].

        options: `reset_mask` [N] says which environments begin an episode, None: all; `task` [N] whose first
            observation and hidden facts they repeat, as the number of an episode, -1: those of a new one. The rest is
            passed on
        """
        rest = dict(options or {})
        mask, task = rest.pop("reset_mask", None), rest.pop("task", None)
        rows = np.ones(self.num_envs, bool) if mask is None else np.array(mask)
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
            for i in np.flatnonzero(rows):
                if seeds[i] is not None:
                    self.seeds[i], self.episode[i] = seeds[i], -1
        self._number(rows, task)
        obs, infos = self._begin(rows, rest)
        self.over[rows] = False
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act everywhere, except where the episode was over: there the next one begins."""
        begins = self.over
        if begins.any():
            self._number(begins)
        if begins.all():
            obs, infos = self._begin(begins)
            self.over = np.zeros_like(begins)
            return obs, np.zeros(len(begins)), self.over.copy(), self.over.copy(), infos
        if self.mode is AutoresetMode.DISABLED and begins.any():
            self._begin(begins)
        obs, rewards, terminated, truncated, infos = self.env.step(self._allowed(begins, actions))
        obs = arrays(obs, self.single_observation_space)
        for i in np.flatnonzero(~begins):
            self.taken[i].append(np.array(actions[i]))
        rewards, terminated, truncated = (np.array(part) for part in (rewards, terminated, truncated))
        rewards[begins], terminated[begins], truncated[begins] = 0, False, False
        over = (terminated | truncated).astype(bool)
        self.raw = tree_map(np.array, obs) if over.any() or begins.any() else obs  # vectors may reuse their buffers
        self._infos = infos if self._masks == "info" else {}
        if self.mode is AutoresetMode.SAME_STEP:
            obs, infos = self._with_final(obs, infos, over)
        if begins.any():
            first, first_infos = self._begin(begins)
            obs, infos = put_rows(obs, begins, first), put_infos(infos, begins, first_infos)
        self.over = over
        return obs, rewards, terminated, truncated, infos

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here."""
        numbers = {name: getattr(self, name).copy() for name in ("seeds", "episode", "drawn", "over")}
        seen = [leaf.copy() for leaf in numeric_leaves(self.raw)]
        return numbers | {"actions": [np.array(taken).tolist() for taken in self.taken], "seen": seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Bring a vector of the same size to a saved `state`, by playing its episodes again so that all end together.

        Warns if they lead elsewhere, as those of a vector do that does not draw everything from the seeds of resets.
        """
        if len(state["over"]) != self.num_envs:
            raise ValueError(f"a state of {len(state['over'])} environments does not fit {self.num_envs}")
        for name in ("seeds", "episode", "drawn", "over"):
            setattr(self, name, np.array(state[name]))
        dtype = self.single_action_space.dtype
        self.taken = [[np.asarray(action, dtype) for action in taken] for taken in state["actions"]]
        lengths = np.array([len(taken) for taken in self.taken])
        longest = int(lengths.max())
        self.raw = None
        ended, everyone = np.zeros(self.num_envs, bool), np.ones(self.num_envs, bool)
        self._begin(everyone, taken=False)
        for t in range(longest):
            begun = lengths >= longest - t  # the others wait for their turn, and may end in the meantime
            again = ((ended & ~begun) | (lengths == longest - t)) if t else ended
            if again.any():
                self._begin(again, taken=False)
            waiting = self.taken[int(lengths.argmax())][t]
            actions = [taken[t - longest] if ready else waiting for taken, ready in zip(self.taken, begun, strict=True)]
            obs, _, terminated, truncated, infos = self.env.step(self._allowed(~begun, np.array(actions)))
            self.raw = arrays(obs, self.single_observation_space)
            self._infos = infos if self._masks == "info" else {}
            ended = np.logical_or(terminated, truncated)
        if longest and (late := lengths == 0).any():
            self._begin(late, taken=False)
        if not alike(self.raw, state["seen"], ~self.over):
            problem = "other observations than before it was saved: not all of it follows from seeds and actions"
            warnings.warn(f"{self.named}: the running episodes, played again, show {problem}", stacklevel=2)

    def _number(self, rows: np.ndarray, task: Any = None) -> None:
        """Count the episodes that begin in `rows`."""
        self.episode[rows] += 1
        chosen = self.episode if task is None else np.where(np.asarray(task) < 0, self.episode, task)
        self.drawn = np.where(rows, chosen, self.drawn)

    def _begin(self, rows: np.ndarray, options: dict[str, Any] | None = None, taken: bool = True) -> tuple[Any, Any]:
        """Reset `rows` with the seeds of their episodes. Raises CannotTurn if that changes what others see."""
        seeds = [
            int(np.random.SeedSequence([int(seed), int(number)]).generate_state(1)[0]) if row else None
            for seed, number, row in zip(self.seeds, self.drawn, rows, strict=True)
        ]
        everyone, before = rows.all() or self.raw is None, self.raw
        reset_options = dict(options or {}) if everyone else {**(options or {}), "reset_mask": rows.copy()}
        obs, infos = self.env.reset(seed=seeds, options=reset_options or None)  # type: ignore[arg-type]
        obs = arrays(obs, self.single_observation_space)
        if not everyone and not alike(obs, before, ~rows):
            problem = "is reset as a whole: it takes no options['reset_mask'], which its autoreset mode needs here"
            raise CannotTurn(
                None, f"{self.named} ({self.mode.name}) {problem}; expected a masked reset, or NEXT_STEP and state()"
            )
        self.raw = obs
        if self._masks == "info":
            self._infos = infos if everyone else put_infos(self._infos, rows, infos)
        if taken:
            for i in np.flatnonzero(rows):
                self.taken[i] = []
        return obs, infos

    def _allowed(self, rows: np.ndarray, actions: Any) -> Any:
        """`actions`, with others in `rows` that are allowed there, if action masks say which those are."""
        if self._masks is None or not rows.any():
            return actions
        space: Any = self.single_action_space
        allowed, sizes = np.array(actions), component_sizes(space)
        masks = given_masks(self.env, self._masks, self.raw, self._infos)
        for i in np.flatnonzero(rows).tolist():
            if (mask := masks[i]) is None:
                continue
            first = [int(part.argmax()) for part in np.split(mask.astype(bool), np.cumsum(sizes)[:-1])]
            allowed[i] = space.start + (first[0] if isinstance(space, spaces.Discrete) else np.array(first))
        return allowed

    def _with_final(self, obs: Any, infos: Mapping[str, Any], over: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Observations and infos of a vector that has begun the next episode already: those of the end where it ended.

        Raises CannotTurn if a final observation is missing.
        """
        infos = dict(infos)
        final, _, last, _ = (infos.pop(name, None) for name in ("final_obs", "_final_obs", "final_info", "_final_info"))
        if not over.any():
            return obs, infos
        obs = tree_map(np.array, obs)
        for i in np.flatnonzero(over):
            row = None if final is None else final[i]
            if row is None:
                problem = "resets in the same step, and its infos have no `final_obs` of an episode that ended"
                raise CannotTurn(None, f"{self.named} ({self.mode.name}) {problem}; expected infos['final_obs'][{i}]")
            tree_map(partial(_write, int(i)), obs, row)
        return obs, put_infos(infos, over, last or {})


def _write(i: int, array: np.ndarray, row: Any) -> None:
    array[i] = row


def put_rows(obs: Any, rows: np.ndarray, other: Any) -> Any:
    """`obs`, a tree of arrays [N, ...], with the `rows` of `other`."""

    def chosen(mine: Any, theirs: Any) -> np.ndarray:
        mine = np.array(mine)
        mine[rows] = np.asarray(theirs)[rows]
        return mine

    return tree_map(chosen, obs, other)


def put_infos(infos: Mapping[str, Any], rows: np.ndarray, other: Mapping[str, Any]) -> dict[str, Any]:
    """Infos in Gymnasium's form, `name` and where it is known, `_name`, whose `rows` are those of `other` alone."""
    merged = dict(infos)
    for name in merged:
        if name.startswith("_") and isinstance(merged[name], np.ndarray):
            merged[name] = merged[name] & ~rows
    for name, theirs in other.items():
        known = other.get(f"_{name}")
        if name.startswith("_") or known is None:
            continue
        where = rows & known
        if isinstance(theirs, Mapping):
            merged[name] = put_infos(merged.get(name, {}), rows, theirs)
        elif name in merged:
            merged[name] = np.where(where.reshape(-1, *[1] * (np.ndim(theirs) - 1)), theirs, merged[name])
        else:
            merged[name] = theirs
        merged[f"_{name}"] = merged.get(f"_{name}", np.zeros_like(rows)) | where
    return merged


def arrays(obs: Any, space: Any) -> Any:
    """Observations of N environments as a tree of arrays [N, ...]; other leaves, such as texts, as objects [N]."""
    if isinstance(space, spaces.Dict) and isinstance(obs, Mapping):
        return {name: arrays(part, space.spaces.get(name)) for name, part in obs.items()}
    if not isinstance(obs, tuple):
        return obs
    if isinstance(space, spaces.Tuple):
        return tuple(arrays(*pair) for pair in zip(obs, space, strict=True))
    return np.fromiter(obs, object, len(obs))


def numeric_leaves(obs: Any) -> list[np.ndarray]:
    """The leaves of a tree of arrays that hold numbers, not objects."""
    return [leaf for leaf in map(np.asarray, tree_leaves(obs)) if leaf.dtype != object]


def alike(obs: Any, before: Any, rows: np.ndarray) -> bool:
    """True if `rows` of two trees of arrays [N, ...] have equal numbers; an unread NaN equals itself."""
    pairs = zip(numeric_leaves(obs), numeric_leaves(before), strict=True)
    return all(np.array_equal(a[rows], b[rows], equal_nan=a.dtype.kind == "f") for a, b in pairs)
