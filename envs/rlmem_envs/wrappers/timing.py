"""The base of wrappers that step some environments while the others wait."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import Layer


class TimeLayer(Layer):
    """A wrapper that needs `step_rows(rows, actions)` of what it wraps, which single environments have (`env=gym`).

    Such wrappers come first, next to the environment, and the others see what they leave.
    """

    def __init__(self, env: VectorEnv):
        super().__init__(env)
        if not hasattr(type(env), "step_rows"):  # of its own, not that of what is in it
            name = type(env).__name__
            problem = f"{type(self).__name__} steps some environments while others wait, which {name} cannot"
            example = (
                "name it first among the wrappers, and a task of rlmem as a single one: env=gym env.id=rlmem/...-v0"
            )
            raise ValueError(f"{problem}; e.g. {example}")
        if _has_masks(env):
            problem = f"{type(self).__name__} plays steps of its own, which follow no action masks, and {env} has some"
            raise ValueError(f"{problem}; expected an environment without")

    def step_rows(self, rows: NDArray[np.bool_], actions: Any) -> tuple[Any, ...]:
        """`step` where `rows` [N] is true, and no episode is over; the rows of the others mean nothing."""
        raise NotImplementedError


def _has_masks(env: VectorEnv) -> bool:
    """Whether agents are told which actions are allowed: in observations, in infos, or by a method."""
    space, inner = env.single_observation_space, env.unwrapped
    if not isinstance(env.single_action_space, Discrete | MultiDiscrete):
        return False
    one = next(iter(getattr(inner, "envs", ())), None)
    by_method = hasattr(env, "action_masks") or (one is not None and one.has_wrapper_attr("action_masks"))
    in_space = isinstance(space, Dict) and "action_mask" in space.spaces
    return by_method or in_space or bool(getattr(inner, "masks_in_info", False))


def put_rows(rows: NDArray[np.bool_], old: Any, new: Any, space: Any = None) -> Any:
    """Arrays [N, ...], dictionaries of such, or with a Tuple as `space` tuples of such, with the `rows` of `new`.

    Any other tuple has an entry for each environment, such as texts.
    """
    if isinstance(old, dict):
        return {
            name: put_rows(rows, value, new[name], None if space is None else space[name])
            for name, value in old.items()
        }
    if isinstance(space, Tuple):
        return tuple(put_rows(rows, *parts) for parts in zip(old, new, space, strict=True))
    if isinstance(old, tuple):
        return tuple(b if row else a for row, a, b in zip(rows, old, new, strict=True))
    old = np.array(old)
    old[rows] = np.asarray(new)[rows]
    return old


def put_infos(rows: NDArray[np.bool_], infos: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Infos of a vector with what is `new` in `rows`; what is known of other environments stays."""
    merged = dict(infos)
    for name in [name for name in new if f"_{name}" in new]:
        known = rows & new[f"_{name}"]
        old = merged.get(name)
        merged[name] = new[name] if old is None or isinstance(old, Mapping) else put_rows(known, old, new[name])
        merged[f"_{name}"] = merged.get(f"_{name}", False) | known
    return merged
