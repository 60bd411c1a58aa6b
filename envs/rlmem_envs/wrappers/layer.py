"""The base of wrappers: streams of their own, and an exact state, on any vector with NEXT_STEP autoreset."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, MultiBinary, Tuple
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlmem_envs.core.draws import Draws
from rlmem_envs.core.parameters import checked

Who = NDArray[np.intp]
"""Indices of environments."""


class Layer(VectorWrapper):
    """A wrapper of N environments with NEXT_STEP autoreset and an exact state.

    Array attributes without a leading underscore are its state, as in `BatchedEnv`, beside that of the environments.
    What it draws comes from streams of its own: they depend on the seed, the wrapper's class and its place among the
    wrappers, and not on N. Masked resets (`options["reset_mask"]`) and all other attributes are those of `env`.

    env: the vector of environments
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, env: VectorEnv):
        super().__init__(env)
        self.draws = Draws(env.num_envs)
        self.over = np.zeros(env.num_envs, bool)
        self._all = np.arange(env.num_envs)
        self._depth: int = env._depth + 1 if isinstance(env, Layer) else 0
        self._seeded = False

    def _begin(self, who: Who, obs: Any) -> None:
        """Episodes begin in environments `who`; obs: the first observations of all environments."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        who = self._all if mask is None or not self._seeded else np.flatnonzero(mask)
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if seed is not None or not self._seeded:
            self.draws.seed(seed, who)
            self.draws.stream[who] ^= np.uint64(zlib.crc32(f"{type(self).__name__} {self._depth}".encode()) << 32)
        self._seeded = True
        self.over[who] = False
        return self._started(who, obs), infos

    def _started(self, who: Who, obs: Any) -> Any:
        """What is seen of first observations in environments `who`."""
        self.draws.next_episode(who)
        self._begin(who, obs)
        return obs

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here."""
        arrays = {name: value.copy() for name, value in self._state_arrays().items()}
        return {"env": self.env.state(), "arrays": arrays, "draws": self.draws.state()}  # type: ignore[attr-defined]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Bring a vector of the same size and wrappers to a saved `state`."""
        self.env.restore(state["env"])  # type: ignore[attr-defined]
        for name, value in state["arrays"].items():
            setattr(self, name, np.array(value))
        self.draws.restore(state["draws"])
        self._seeded = True

    def _state_arrays(self) -> dict[str, NDArray[Any]]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_") and isinstance(v, np.ndarray)}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def _set_space(self, space: Space) -> None:
        self.single_observation_space = space
        self.observation_space = batch_space(space, self.num_envs)


class ObservationLayer(Layer):
    """A wrapper that changes what is seen, one slot after the other.

    A subclass makes the space in its constructor, and fills in `_see(obs, who)`: what is shown of the observations
    [n, ...] of environments `who`. `_first(who, obs)` [n, ...] prepares for those of new episodes, if need be.

    leaf: the path of the part of a Dict or Tuple that is changed, such as `camera` or `arm/0`; None: the observation is
        a Box by itself
    """

    def __init__(self, env: VectorEnv, leaf: str | None = None):
        super().__init__(env)
        whole = env.single_observation_space
        parts = dict(_parts(whole))
        if leaf is not None and leaf not in parts:
            named = ", ".join(parts) or "none, as there are no parts"
            raise ValueError(f"leaf={leaf!r}: expected {named}, got {whole}")
        self._path: tuple[Any, ...] = () if leaf is None else parts[leaf]
        box = as_box(_at(whole, self._path))
        if not isinstance(box, Box):
            boxes = [name for name, path in parts.items() if isinstance(_at(whole, path), Box)]
            example = f"; e.g. leaf={boxes[0]}" if boxes else ""
            raise ValueError(f"{self._name()} reads observations in a Box, not {box}{example}")
        self._box = box
        self._kept: Any = None

    def _see(self, obs: NDArray[Any], who: Who) -> NDArray[Any]:
        raise NotImplementedError

    def _first(self, who: Who, obs: NDArray[Any]) -> None:
        """Episodes with these first observations begin in environments `who`."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        begins = self.over
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if np.count_nonzero(begins):
            self._next(np.flatnonzero(begins), obs)
        self.over = np.logical_or(terminated, truncated)
        self._kept = self._see(self._part(obs), self._all)
        return self._with(obs, self._kept), rewards, terminated, truncated, infos

    def _next(self, who: Who, obs: Any) -> None:
        self.draws.next_episode(who)
        self._first(who, self._part(obs)[who])

    def _started(self, who: Who, obs: Any) -> Any:
        self._next(who, obs)
        seen = self._see(self._part(obs)[who], who)
        shown = np.zeros((self.num_envs, *seen.shape[1:]), seen.dtype) if self._kept is None else self._kept.copy()
        shown[who] = seen
        self._kept = shown
        return self._with(obs, shown)

    def _part(self, obs: Any) -> NDArray[Any]:
        return np.asarray(_at(obs, self._path))

    def _with(self, obs: Any, part: Any) -> Any:
        return _put(obs, self._path, part)

    def _shows(self, low: Any, high: Any, dtype: Any = None) -> None:
        """The bounds of what is seen, and its type if that changes."""
        box = Box(np.asarray(low), np.asarray(high), dtype=dtype or self._box.dtype)
        self._set_space(self._with(self.env.single_observation_space, box))

    def _indices(self, indices: Sequence[int]) -> list[int]:
        """Places of a vector, one at least. Raises ValueError for others, and for images."""
        if len(self._box.shape) != 1:
            raise ValueError(f"{self._name()} reads vectors, not {self._box}")
        size = self._box.shape[0]
        if not len(indices):
            raise ValueError(f"indices=[]: expected one place at least, of 0 .. {size - 1}; e.g. indices=[0]")
        if wrong := [index for index in indices if not 0 <= index < size]:
            raise ValueError(
                f"indices={list(indices)}: {wrong[0]} is not in 0 .. {size - 1}, the places of {self._box}"
            )
        return list(indices)

    @classmethod
    def _name(cls) -> str:
        return cls.__name__


def as_box(space: Space) -> Space:
    """`space`, or of a MultiBinary the Box of the same numbers."""
    return Box(0, 1, space.shape, np.int8) if isinstance(space, MultiBinary) else space


def beside(rows: NDArray[np.bool_], obs: NDArray[Any]) -> NDArray[np.bool_]:
    """Flags [n] in a shape that broadcasts to observations [n, ...]."""
    return rows.reshape(-1, *[1] * (obs.ndim - 1))


def _parts(space: Space, name: str = "", path: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The names of the parts of a Dict or Tuple that have no parts themselves, such as `arm/0`, and their keys."""
    if not isinstance(space, Dict | Tuple):
        if path:
            yield name, path
        return
    for key, part in space.items() if isinstance(space, Dict) else enumerate(space):
        yield from _parts(part, f"{name}/{key}" if path else str(key), (*path, key))


def _at(tree: Any, path: Sequence[Any]) -> Any:
    """The part of spaces, or of observations in them, at some keys."""
    for key in path:
        tree = tree[key]
    return tree


def _put(tree: Any, path: Sequence[Any], part: Any) -> Any:
    """Spaces, or observations in them, with another part at some keys."""
    if not path:
        return part
    key, *rest = path
    parts: dict[Any, Any] = dict(tree.items() if isinstance(tree, Mapping | Dict) else enumerate(tree))
    parts[key] = _put(parts[key], rest, part)
    if isinstance(tree, Mapping | Dict):
        return Dict(parts) if isinstance(tree, Dict) else parts
    return Tuple(parts.values()) if isinstance(tree, Tuple) else tuple(parts.values())
