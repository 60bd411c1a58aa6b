"""A pendulum to swing up: the physics and the players of every task that is played on it."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who
from rlmem_envs.core.cartpole import Sight

SECONDS = 0.05
"""Duration of a step."""
GRAVITY = 15.0
"""Angular acceleration of a pendulum that is held level: 3 g / 2 l with g = 10, l = 1."""
MAX_TORQUE = 2.0
MAX_SPEED = 8.0
START = np.array([math.pi, 1.0])
"""The first angle and speed are uniform on +-START."""

SHOWN = {"full": slice(0, 3), "position": slice(0, 2), "velocity": slice(2, 3)}
NAMES = ("cos", "sin", "speed")
ARROWS = "↑↖←↙↓↘→↗"

VELOCITY_TORQUES = np.array([2.1, -0.7, 0.4, 1.3, 0.4, 1.3, 1.9, 1.3, 0.7, 0.1, -1.3, -2.4])
"""Of the best play found that sees the speed only: along the motion, for 12 equal parts of speeds from 0 to 8."""


class PendulumBase(BatchedEnv):
    """Gymnasium's Pendulum-v1: state (angle, speed) in float64, angle 0 upright and counted to the left.

    Cost of a step, before it: angle^2 + 0.1 speed^2 + 0.001 torque^2, angle from -pi to pi. Truncates after
    `most_steps` steps, never terminates.

    sight: the part of (cos angle, sin angle, speed) that is shown
    most_steps: of every episode
    """

    metadata = {**BatchedEnv.metadata, "render_fps": 20}
    _size: ClassVar[int] = 3
    """How many numbers the physical state is shown as."""

    def __init__(self, num_envs: int, sight: Sight, most_steps: int, params: Mapping[str, Any], **kwargs: Any):
        self._sight, self._shown, self._steps = sight, SHOWN[sight], most_steps
        bound = np.array([1.0, 1.0, MAX_SPEED], np.float32)[self._shown]
        torque = Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)
        full = Box(-np.inf, np.inf, (self._size + 1,), np.float32)  # cos, sin, speed and the share of steps taken
        seen = Box(-bound, bound, dtype=np.float32)
        super().__init__(num_envs, seen, torque, params, full_space=full, **kwargs)
        self.angle = np.zeros(num_envs)
        self.speed = np.zeros(num_envs)

    def _draw(self, who: Who) -> Facts:
        return {"start": self.draws.uniform(who, 2) * (2 * START) - START}

    def _begin(self, who: Who, facts: Facts) -> None:
        self.angle[who], self.speed[who] = facts["start"].T

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """As in Gymnasium on NumPy 2, torques are rounded as their dtype rounds: near the top it would show."""
        torque = np.minimum(np.maximum(actions[:, 0], -MAX_TORQUE), MAX_TORQUE)
        cost = centred(self.angle) ** 2 + 0.1 * self.speed**2 + 0.001 * torque**2
        speed = self.speed + (GRAVITY * np.sin(self.angle) + 3.0 * torque) * SECONDS
        self.speed = np.minimum(np.maximum(speed, -MAX_SPEED), MAX_SPEED)
        self.angle = self.angle + self.speed * SECONDS
        return -cost, np.zeros(self.num_envs, bool), self.t >= self._steps - 1

    def _observe(self) -> NDArray[Any]:
        shown = np.empty((self.num_envs, 3), np.float32)
        shown[:, 0], shown[:, 1], shown[:, 2] = np.cos(self.angle), np.sin(self.angle), self.speed
        return shown[:, self._shown]

    def _full_state(self) -> NDArray[np.float32]:
        parts = np.cos(self.angle), np.sin(self.angle), self.speed, self.t / self._steps
        return np.stack(parts, 1).astype(np.float32)

    def oracle(self) -> NDArray[Any]:
        return best_torque(centred(self.angle), self.speed)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Seeing all, the oracle's play; a position alone, a push towards the top; a speed alone, a table."""
        shown = self._observe()
        if self._sight == "full":
            return best_torque(np.arctan2(shown[:, 1], shown[:, 0]), shown[:, 2])
        if self._sight == "position":
            return np.clip(-12 * shown[:, 1:], -MAX_TORQUE, MAX_TORQUE)
        part = np.minimum(np.abs(shown) * len(VELOCITY_TORQUES) / MAX_SPEED, len(VELOCITY_TORQUES) - 1)
        return np.clip(np.sign(shown) * VELOCITY_TORQUES[part.astype(int)], -MAX_TORQUE, MAX_TORQUE)

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps

    def text(self, i: int) -> str:
        """Where the tip points, if that is shown, and the numbers that are."""
        shown = self._observe()[i]
        numbers = "  ".join(f"{name} {value:+.3f}" for name, value in zip(NAMES[self._shown], shown, strict=True))
        if self._sight == "velocity":
            return numbers
        return f"{ARROWS[round(math.atan2(shown[1], shown[0]) / (math.pi / 4)) % 8]}  {numbers}"

    def picture(self, i: int) -> NDArray[np.uint8]:
        """The pendulum [240, 240, 3], whatever part of the state is shown. Needs Pillow."""
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (240, 240), (24, 26, 32))
        draw = ImageDraw.Draw(image)
        tip = (120 - 90 * math.sin(self.angle[i]), 120 - 90 * math.cos(self.angle[i]))
        draw.line((120, 120, *tip), (230, 180, 90), 12)
        for (x, y), radius in ((tip, 6), ((120, 120), 5)):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), (90, 140, 220))
        return np.asarray(image)


def centred(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same angle from -pi to pi."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def best_torque(angle: NDArray[Any], speed: NDArray[Any]) -> NDArray[np.float32]:
    """Torques [N, 1] of nearly optimal play: of the nearest point of `torque_table`."""
    table = torque_table()
    rows, columns = np.array(table.shape) - 1
    row = np.rint((angle + np.pi) / (2 * np.pi) * rows).astype(int)
    column = np.rint((speed + MAX_SPEED) / (2 * MAX_SPEED) * columns).astype(int)
    return table[row, column][:, None]


@cache
def torque_table(angles: int = 181, speeds: int = 121, torques: int = 5, steps: int = 60) -> NDArray[np.float32]:
    """The best torque [angles, speeds] on a grid of states, with `steps` to go, by value iteration; under a second.

    The value between grid points is interpolated. No finer grid was found to play more than 0.5% better.
    """
    angle, speed = np.linspace(-np.pi, np.pi, angles)[:, None], np.linspace(-MAX_SPEED, MAX_SPEED, speeds)
    torque = np.linspace(-MAX_TORQUE, MAX_TORQUE, torques)[:, None, None]
    cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
    speed = np.clip(speed + (GRAVITY * np.sin(angle) + 3 * torque) * SECONDS, -MAX_SPEED, MAX_SPEED)
    across = (centred(angle + speed * SECONDS) + np.pi) / (2 * np.pi) * (angles - 1)
    along = (speed + MAX_SPEED) / (2 * MAX_SPEED) * (speeds - 1)
    row, column = np.minimum(across.astype(int), angles - 2), np.minimum(along.astype(int), speeds - 2)
    corner = row * speeds + column
    across, along = across - row, along - column
    to_go = np.zeros((angles, speeds))
    for _ in range(steps):
        low = to_go.take(corner) * (1 - along) + to_go.take(corner + 1) * along
        high = to_go.take(corner + speeds) * (1 - along) + to_go.take(corner + speeds + 1) * along
        total = cost + low * (1 - across) + high * across
        to_go = total.min(0)
    return np.asarray(torque.ravel()[total.argmin(0)], np.float32)
