"""Action masks and trees of arrays, as vectors of environments by any author return them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, VectorEnv, VectorWrapper
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.core.spaces import ACTION_MASK

MaskSource = Literal["leaf", "vector", "each", "info"]
"""A leaf `action_mask` of the observation, `action_masks()` of the vector or of each of its environments (sb3-contrib's
habit), or `info["action_mask"]` of vectors that say so (`masks_in_info`)."""


def mask_source(env: VectorEnv) -> MaskSource | None:
    """Where `env` shows action masks; None: nowhere, or its actions cannot be masked."""
    space, inner = env.single_observation_space, env.unwrapped
    if not isinstance(env.single_action_space, spaces.Discrete | spaces.MultiDiscrete):
        return None
    if isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces:
        return "leaf"
    if callable(getattr(env, "action_masks", None)):
        return "vector"
    single = getattr(inner, "envs", None)  # of a vector whose environments are in this process
    if single and single[0].has_wrapper_attr("action_masks"):
        return "each"
    if isinstance(inner, AsyncVectorEnv) and all(inner.call("has_wrapper_attr", "action_masks")):
        return "each"
    return "info" if getattr(inner, "masks_in_info", False) else None


def given_masks(
    env: VectorEnv, source: MaskSource, obs: Any, infos: Mapping[str, Any]
) -> np.ndarray | list[np.ndarray | None]:
    """The action masks of all environments, [N, A], or a list of arrays [A], None where one is not known.

    Those of a MultiDiscrete may be given as a tuple with an array for every component. `infos["_action_mask"]` says for
    which environments `infos["action_mask"]` has one; a final observation may have none.

    obs, infos: what the vector returned last
    """
    asked: Any = env
    if source == "leaf":
        given = obs[ACTION_MASK]
    elif source == "info":
        given = infos.get(ACTION_MASK, [None] * env.num_envs)
        if (known := infos.get(f"_{ACTION_MASK}")) is not None and not np.all(known):
            given = [mask if here else None for mask, here in zip(given, known, strict=True)]
    else:
        given = asked.action_masks() if source == "vector" else asked.unwrapped.call("action_masks")
    if given is None:
        given = [None] * env.num_envs
    whole = isinstance(given, np.ndarray) and given.dtype != object
    return given.reshape(env.num_envs, -1) if whole else [flat_mask(mask) for mask in given]


def flat_mask(mask: Any) -> np.ndarray | None:
    """One environment's mask as one array [A], also if it has an array for every component; None if there is none."""
    if mask is None:
        return None
    several = isinstance(mask, Sequence) and len(mask) and np.ndim(mask[0])
    return np.concatenate([np.ravel(part) for part in mask]) if several else np.ravel(mask)


class Transparent(VectorWrapper):
    """A wrapper that has all public attributes of the vector in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


def put_rows(obs: Any, rows: np.ndarray, other: Any) -> Any:
    """`obs`, a tree of arrays [N, ...], with the `rows` of `other`."""

    def chosen(mine: Any, theirs: Any) -> np.ndarray:
        mine = np.array(mine)
        mine[rows] = np.asarray(theirs)[rows]
        return mine

    return tree_map(chosen, obs, other)


def put_infos(infos: Mapping[str, Any], rows: np.ndarray, other: Mapping[str, Any]) -> dict[str, Any]:
    """Infos in Gymnasium's form, `name` and where it is known, `_name`, whose `rows` are those of `other` alone."""
    found = dict(infos)
    for name in found:
        if name.startswith("_") and isinstance(found[name], np.ndarray):
            found[name] = found[name] & ~rows
    for name, theirs in other.items():
        known = other.get(f"_{name}")
        if name.startswith("_") or known is None:
            continue
        where = rows & known
        if isinstance(theirs, Mapping):
            found[name] = put_infos(found.get(name, {}), rows, theirs)
        elif name in found:
            found[name] = np.where(where.reshape(-1, *[1] * (np.ndim(theirs) - 1)), theirs, found[name])
        else:
            found[name] = theirs
        found[f"_{name}"] = found.get(f"_{name}", np.zeros_like(rows)) | where
    return found


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
