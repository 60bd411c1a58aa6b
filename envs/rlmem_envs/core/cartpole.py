"""A cart that balances a pole: the physics and the players of every task that is played on it."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who

Sight = Literal["full", "position", "velocity"]
"""Which part of a physical state is shown."""

SECONDS = 0.02
"""Duration of a step."""
FORCE = 10.0
GRAVITY = 9.8
POLE_MASS = 0.1
MASS = POLE_MASS + 1.0
"""Of cart and pole together."""
HALF_LENGTH = 0.5
"""Of the pole."""
POLE_MOMENT = POLE_MASS * HALF_LENGTH
X_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * math.pi / 360
LIMITS = np.array([[X_LIMIT], [ANGLE_LIMIT]])
START = 0.05
"""Every number of the first state is uniform on +-START."""

SHOWN = {"full": slice(None), "position": slice(0, None, 2), "velocity": slice(1, None, 2)}
NAMES = ("x", "x'", "angle", "angle'")

GAINS = np.array([0.05, 0.11, 1.0, 0.27])
"""Of the linear feedback that balances for good: push to the side to which GAINS . state points."""
VELOCITY_GAINS = np.array([0.11, 1.0])
"""Of the best linear feedback found that sees x' and angle' only."""
STRIPES = np.array([0.0172, 0.0363, 0.0493, 0.0674, 0.074, 0.0859, 0.1001, 0.1159, 0.1251, 0.1408, 0.1438])
"""Angles at which the best play found that sees x and angle only turns its push round."""


class CartPoleBase(BatchedEnv):
    """Gymnasium's CartPole-v1 (Barto, Sutton and Anderson 1983): state (x, x', angle, angle') in float64, Euler steps.

    The reward is 1 for every step, the last included (but see `_shares`). Terminates when |x| > 2.4 m or |angle| > 12
    degrees; truncates after `most_steps` steps, also where the pole falls with the last of them.

    sight: the part of the state that is shown
    most_steps: of an episode
    """

    metadata = {**BatchedEnv.metadata, "render_fps": 50}
    keys = {"a": 0, "d": 1}
    _size: ClassVar[int] = 4
    """How many numbers the physical state has."""
    _shares: ClassVar[bool] = False
    """Whether the reward of a step is 1/most_steps, so that the longest episode returns 1."""

    def __init__(self, num_envs: int, sight: Sight, most_steps: int, params: Mapping[str, Any], **kwargs: Any):
        self._sight, self._shown, self._steps = sight, SHOWN[sight], most_steps
        self._pay = 1 / most_steps if self._shares else 1.0
        bound = np.array([2 * X_LIMIT, np.inf, 2 * ANGLE_LIMIT, np.inf], np.float32)[self._shown]
        full = Box(-np.inf, np.inf, (self._size + 1,), np.float32)  # x, x', angle, angle' and the share of steps taken
        seen = Box(-bound, bound, dtype=np.float32)
        super().__init__(num_envs, seen, Discrete(2), params, full_space=full, **kwargs)
        self.body = np.zeros((4, num_envs))
        self._rate = np.zeros((4, num_envs))  # of its change

    def _draw(self, who: Who) -> Facts:
        return {"start": self.draws.uniform(who, 4) * (2 * START) - START}

    def _begin(self, who: Who, facts: Facts) -> None:
        self.body[:, who] = facts["start"].T

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """The operations are those of Gymnasium in the same order: the pole is unstable, so rounding would show."""
        _, _, angle, turning = self.body
        sin, cos = np.sin(angle), np.cos(angle)
        push = (actions * (2 * FORCE) - FORCE + POLE_MOMENT * np.square(turning) * sin) / MASS
        leverage = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * np.square(cos) / MASS)
        rate = self._rate
        rate[::2] = self.body[1::2]
        rate[3] = (GRAVITY * sin - cos * push) / leverage
        rate[1] = push - POLE_MOMENT * rate[3] * cos / MASS
        rate *= SECONDS
        self.body += rate
        beyond = np.abs(self.body[::2]) > LIMITS
        return np.full(self.num_envs, self._pay), beyond[0] | beyond[1], self.t >= self._steps - 1

    def _observe(self) -> NDArray[Any]:
        return self.body[self._shown].T.astype(np.float32, order="C")

    def _full_state(self) -> NDArray[np.float32]:
        return np.column_stack([self.body.T, self.t / self._steps]).astype(np.float32)

    def oracle(self) -> NDArray[Any]:
        return (GAINS @ self.body > 0).astype(np.int64)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Linear feedback of what is shown; for positions alone that fails, and stripes of the angle do better.

        Stripes: push under the pole or away from it, turning round at every angle of STRIPES. A step of 20 ms leaps
        over a stripe or does not, which depends on the speed that is not seen.
        """
        shown = self._observe()
        if self._sight == "position":
            angle = shown[:, 1]
            return (np.searchsorted(STRIPES, np.abs(angle)) % 2 == (angle > 0)).astype(np.int64)
        gains = GAINS if self._sight == "full" else VELOCITY_GAINS
        return (shown @ gains > 0).astype(np.int64)

    def episode_steps(self) -> tuple[int, int]:
        return min(8, self._steps), self._steps

    def text(self, i: int) -> str:
        shown = self._observe()[i]
        names = NAMES[self._shown]
        numbers = "  ".join(f"{name} {value:+.3f}" for name, value in zip(names, shown, strict=True))
        if self._sight == "velocity":
            return numbers
        x, angle = (shown[names.index(name)] for name in ("x", "angle"))
        return f"{_sketch(x, angle)}  {numbers}"

    def picture(self, i: int) -> NDArray[np.uint8]:
        """The cart on its track and the pole [160, 480, 3], whatever part of the state is shown. Needs Pillow."""
        from PIL import Image, ImageDraw

        scale, track = 90, 130
        x, _, angle, _ = self.body[:, i]
        image = Image.new("RGB", (480, 160), (24, 26, 32))
        draw = ImageDraw.Draw(image)
        draw.line((240 - scale * X_LIMIT, track, 240 + scale * X_LIMIT, track), (110, 115, 125))
        hinge, length = 240 + scale * x, 2 * HALF_LENGTH * scale
        draw.rectangle((hinge - 22, track - 12, hinge + 22, track + 12), (90, 140, 220))
        tip = (hinge + length * math.sin(angle), track - length * math.cos(angle))
        draw.line((hinge, track, *tip), (230, 180, 90), 6)
        return np.asarray(image)


def _sketch(x: float, angle: float, half: int = 20) -> str:
    """The track from -2.4 m to 2.4 m, the cart and the way its pole leans (upright: below one degree)."""
    pole = "|" if abs(angle) < math.radians(1) else "/" if angle > 0 else "\\"
    cart = round(min(max(x / X_LIMIT, -1), 1) * half) + half
    return f"{'-' * cart}[{pole}]{'-' * (2 * half - cart)}"
