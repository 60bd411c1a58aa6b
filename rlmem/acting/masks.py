"""Where environments by any author show action masks, and the masks themselves."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, VectorEnv

from rlmem.spaces import ACTION_MASK

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
