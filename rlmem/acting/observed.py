"""Action masks from any vector of environments, and observations of several parts as dictionaries of leaves."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from rlmem.core.spaces import ACTION_MASK, OBSERVATION, by_path, component_sizes, is_tree, leaves

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
        masks = obs[ACTION_MASK]
    elif source == "info":
        masks = infos.get(ACTION_MASK, [None] * env.num_envs)
        if (known := infos.get(f"_{ACTION_MASK}")) is not None and not np.all(known):
            masks = [mask if here else None for mask, here in zip(masks, known, strict=True)]
    else:
        masks = asked.action_masks() if source == "vector" else asked.unwrapped.call("action_masks")
    if masks is None:
        masks = [None] * env.num_envs
    whole = isinstance(masks, np.ndarray) and masks.dtype != object
    return masks.reshape(env.num_envs, -1) if whole else [flat_mask(mask) for mask in masks]


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


def observed(env: VectorEnv, read: Callable[[Sequence[str]], Collection[str]]) -> VectorEnv:
    """`env` itself if its observations are one part and it has no action masks, else an `Observed` of it.

    read: which of the leaves, by their paths, anything reads; the others are left out. Raises what it raises, and
        ValueError for a leaf that is no mask of the actions, and for a vector whose `action_masks()` cannot be asked
        about final observations
    """
    source, space = mask_source(env), env.single_observation_space
    if source == "leaf":
        mask, size = space[ACTION_MASK], sum(component_sizes(env.single_action_space))  # type: ignore[index]
        if mask.shape != (size,):
            raise ValueError(f"its `{ACTION_MASK}` is {mask}; expected one array of {size}, a number for every action")
        source = None
    if source in ("vector", "each") and _reset_mode(env) is AutoresetMode.SAME_STEP:
        problem = "resets in the same step, so action_masks() says nothing of a final observation"
        raise ValueError(f"{type(env.unwrapped).__name__} {problem}; expected a leaf `{ACTION_MASK}`, or NEXT_STEP")
    if source is None and not is_tree(space):
        return env
    parts = leaves(space) if is_tree(space) else {OBSERVATION: space}
    if source is not None:
        parts[ACTION_MASK] = spaces.MultiBinary(sum(component_sizes(env.single_action_space)))
    wanted = {*read(list(parts)), ACTION_MASK}
    return Observed(env, {name: part for name, part in parts.items() if name in wanted}, source)


class Observed(Transparent):
    """Observations as a dictionary from the paths of leaves to arrays [N, ...], with action masks as a leaf.

    Masks are a leaf `action_mask` of the environment's own observations, or are added (`given_masks`).
    An observation of one part is then the leaf `observation`. All other attributes are those of `env`.

    env: the environments
    parts: spaces of the leaves that are kept, by their paths
    source: where masks come from; None: they are a leaf already, or there are none
    """

    def __init__(self, env: VectorEnv, parts: Mapping[str, Any], source: MaskSource | None):
        super().__init__(env)
        self.single_observation_space: spaces.Dict = spaces.Dict(dict(parts))
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.source, self.whole = source, env.single_observation_space

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._seen(obs, info), info

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        return self._seen(obs, info), reward, terminated, truncated, info

    def _seen(self, obs: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        parts = by_path(obs, self.whole) if is_tree(self.whole) else {OBSERVATION: obs}
        if self.source is not None:
            parts[ACTION_MASK] = self._masks(info)
        return {name: leaf for name, leaf in parts.items() if name in self.single_observation_space.spaces}

    def _masks(self, info: Mapping[str, Any]) -> np.ndarray:
        rows = given_masks(self.env, cast(MaskSource, self.source), None, info)
        if isinstance(rows, np.ndarray):
            return rows
        nothing = np.zeros(sum(component_sizes(self.single_action_space)), bool)
        masks = [nothing if mask is None else mask for mask in rows]
        if wrong := [mask for mask in masks if mask.shape != nothing.shape]:
            expected = f"{nothing.size}, one for every action"
            raise ValueError(f"an action mask of {wrong[0].size} numbers; expected {expected}")
        return np.stack(masks)


def _reset_mode(env: VectorEnv | None) -> AutoresetMode:
    """The mode in which a vector resets itself, below the layout that agents see (`rlmem.acting.autoreset.Slotted`)."""
    while env is not None:
        if isinstance(mode := vars(env).get("mode"), AutoresetMode):
            return mode
        env = env.env if isinstance(env, VectorWrapper) else None
    return AutoresetMode.NEXT_STEP
