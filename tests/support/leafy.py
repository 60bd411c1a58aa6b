"""Environments with observations and action masks of every kind, which hold agents to their masks."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
DISCRETE, MULTI = spaces.Discrete(5, start=2), spaces.MultiDiscrete([3, 4])
SPACES: dict[str, Any] = {
    "box": BOX,
    "image": IMAGE,
    "discrete": DISCRETE,
    "multi": MULTI,
    "dict": spaces.Dict(
        {
            "box": BOX,
            "camera": IMAGE,
            "discrete": DISCRETE,
            "multi": MULTI,
            "bits": spaces.MultiBinary(3),
            "number": spaces.Box(0, 1, (), np.float64),
        }
    ),
    "nested": spaces.Tuple(
        (
            spaces.Dict({"arm": BOX, "eyes": spaces.Tuple((spaces.Discrete(3), IMAGE))}),
            spaces.Box(0, 1, (2, 2), np.float32),
        )
    ),
}
SPACES["text"] = spaces.Dict({**SPACES["dict"].spaces, "mission": spaces.Text(5)})
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "multi": spaces.MultiDiscrete([2, 3]),
    "continuous": spaces.Box(-1, 1, (2,), np.float32),
}


class Leafy(gym.Env):
    """Random observations of `kind`, and in episodes of 3 to 8 steps a reward for large actions.

    mask: where random action masks are: leaf, info, method or tuple (a method that returns a mask for each component);
        None: there are none. A final observation allows nothing
    empty: the step whose mask allows nothing
    strict: whether an action that the mask forbids fails the test
    """

    def __init__(
        self,
        kind: str = "dict",
        actions: str = "discrete",
        mask: str | None = None,
        empty: int | None = None,
        strict: bool = True,
    ):
        self.own, self.action_space, self.mask, self.empty = SPACES[kind], ACTIONS[actions], mask, empty
        self.strict = strict
        self.sizes = {"discrete": [4], "multi": [2, 3], "continuous": []}[actions]
        self.observation_space = self.own
        if mask == "leaf":
            parts = self.own.spaces if isinstance(self.own, spaces.Dict) else {"observation": self.own}
            leaf = spaces.MultiBinary(sum(self.sizes) or 2)
            self.observation_space = spaces.Dict({**parts, "action_mask": leaf})
        if mask in ("method", "tuple"):
            self.action_masks = lambda: self.masks if mask == "tuple" else np.concatenate(self.masks)

    def _look(self, allow: bool = True) -> tuple[Any, dict[str, Any]]:
        self.own.seed(int(self.np_random.integers(2**31)))
        obs = self.own.sample()
        self.masks = tuple(self._mask(n, allow and self.t != self.empty) for n in self.sizes)
        whole = np.concatenate(self.masks) if self.masks else np.ones(2, np.int8)
        if self.mask == "leaf":
            obs = {**(obs if isinstance(obs, dict) else {"observation": obs}), "action_mask": whole}
        return obs, ({"action_mask": whole} if self.mask == "info" and allow else {})

    def _mask(self, n: int, allow: bool) -> np.ndarray:
        mask = (self.np_random.random(n) < 0.5).astype(np.int8)
        mask[self.np_random.integers(n)] = 1
        return mask * np.int8(allow)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(3, 9))
        return self._look()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.mask and self.sizes and self.strict:
            chosen = zip(self.masks, np.ravel(action).tolist(), strict=True)
            assert all(mask[part] for mask, part in chosen), f"{action} is forbidden by {self.masks}"
        self.t += 1
        over = self.t >= self.length
        obs, info = self._look(not over)
        return obs, float(np.sum(action) > 1), over and self.t % 2 == 0, over and self.t % 2 == 1, info


gym.register("Leafy-v0", entry_point="leafy:Leafy", disable_env_checker=True)
