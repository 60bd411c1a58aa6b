"""Points that are steered through the plane, in one of many tasks that differ in something hidden."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who
from rlmem_envs.core.columns import features

Split = Literal["all", "train", "test"]

PUBLISHED = 1337
"""The seed of the published tables of tasks."""

STEP = np.float32(0.1)
"""The greatest displacement along an axis."""


def with_splits(levels: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every level with all its tasks, with those to train on and with those to test on."""
    splits = {"": "all", "_train": "train", "_test": "test"}
    return {
        f"{name}{end}": {**params, "split": split} for name, params in levels.items() for end, split in splits.items()
    }


class Navigation(BatchedEnv):
    """p <- p + 0.1 clip(a, -1, 1) + wind, and a reward wherever p is close to the goal.

    An episode is one task, drawn from a table, and `episodes_per_task` trials of `episode_steps` steps in it. A trial
    does not end at the goal. After a trial, p begins anew; the observation, however, is still where the trial ended,
    with its last number 1, and the new start is seen from its first step on.

    Displacements are float32 and positions float64, as in the code of the papers.

    Subclasses say what varies: `varies` is the name of the hidden fact that a task brings along.
    """

    task_facts = ("task_index", "goal", "wind")
    varies: ClassVar[str]

    def __init__(
        self,
        num_envs: int,
        tasks: NDArray[np.float64],
        num_train: int,
        split: Split,
        goal_radius: float,
        episode_steps: int,
        episodes_per_task: int,
        params: Mapping[str, Any],
        **kwargs: Any,
    ):
        self._tasks, self._radius = tasks, goal_radius
        self._first, self._end = _rows(split, num_train, len(tasks))
        self._trial_steps, self._trials = episode_steps, episodes_per_task
        self._steps = episode_steps * episodes_per_task
        low, high = [-np.inf, -np.inf, 0.0], [np.inf, np.inf, 1.0]
        size = 3 if episodes_per_task > 1 else 2
        space = Box(np.array(low[:size], np.float32), np.array(high[:size], np.float32))
        full = Box(np.array([-np.inf] * 6 + [0, 0], np.float32), np.array([np.inf] * 6 + [1, 1], np.float32))
        super().__init__(num_envs, space, Box(-1, 1, (2,)), params, full_space=full, **kwargs)
        self.task_index = np.zeros(num_envs, np.int64)
        self.goal, self.wind = np.zeros((2, num_envs, 2))
        self.start_pos = np.zeros((num_envs, episodes_per_task, 2))
        self.position = np.zeros((num_envs, 2))
        self.seen = np.zeros((num_envs, 2))  # where the last step led, before a new trial began elsewhere
        self.trial_over = np.zeros(num_envs, bool)
        self.in_goal = np.zeros(num_envs, bool)
        self.reached = np.zeros(num_envs, bool)  # the goal, in any step of the episode

    def _starts(self, who: Who) -> NDArray[np.float64]:
        """Where trials begin [n, trials, 2]."""
        raise NotImplementedError

    def _facts(self, tasks: NDArray[np.float64]) -> Facts:
        """`goal` and `wind` of tasks [n, 2]."""
        raise NotImplementedError

    def _draw(self, who: Who) -> Facts:
        index = self._first + self.draws.integers(who, self._end - self._first)
        return {"task_index": index, **self._facts(self._tasks[index]), "start_pos": self._starts(who)}

    def _start(self, who: Who, hidden: Mapping[str, Any]) -> None:
        """As of all tasks; a `task_index` alone brings its goal or wind along."""
        index = np.asarray(hidden.get("task_index", 0))
        if index.shape == (self.num_envs,):
            if not ((index >= 0) & (index < len(self._tasks))).all():
                raise ValueError(f"task_index={index}: expected 0 .. {len(self._tasks) - 1}")
            hidden = {self.varies: self._tasks[index], **hidden}
        super()._start(who, hidden)

    def _begin(self, who: Who, facts: Facts) -> None:
        for name in ("task_index", "goal", "wind", "start_pos"):
            getattr(self, name)[who] = facts[name]
        self.position[who] = self.seen[who] = facts["start_pos"][:, 0]
        self.trial_over[who] = self.in_goal[who] = self.reached[who] = False

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        self.seen = self.position = self.position + displacement(actions) + self.wind
        squares = self.seen - self.goal
        squares *= squares
        self.in_goal = np.sqrt(squares[:, 0] + squares[:, 1]) <= self._radius
        self.reached = self.reached | self.in_goal
        if self._trials > 1:
            self._next_trial()
        return self.in_goal.astype(np.float64), self.t == self._steps - 1, np.zeros(self.num_envs, bool)

    def _next_trial(self) -> None:
        """Put those whose trial is over where the next one begins."""
        self.trial_over = (self.t + 1) % self._trial_steps == 0
        if self.trial_over.any():
            rows = np.flatnonzero(self.trial_over & (self.t < self._steps - 1))
            self.position = self.seen.copy()
            self.position[rows] = self.start_pos[rows, (self.t[rows] + 1) // self._trial_steps]

    def _observe(self) -> NDArray[np.float32]:
        if self._trials == 1:
            return self.seen.astype(np.float32)
        seen = np.empty((self.num_envs, 3), np.float32)
        seen[:, :2] = self.seen
        seen[:, 2] = self.trial_over
        return seen

    def _full_state(self) -> NDArray[np.float32]:
        shares = (self.t % self._trial_steps) / self._trial_steps, self.t / self._steps
        return features(self.position, self.goal, self.wind, *shares)

    def _success(self) -> NDArray[np.bool_]:
        """The goal was reached at some step, in any of the trials."""
        return self.reached

    def oracle(self) -> NDArray[Any]:
        """The fastest way to the goal, and no step out of it.

        In n steps, every point of a square around p + n wind can be reached. It aims at a point of the goal that is in
        the smallest square with one. In winds up to 0.1, all larger squares have one, too: n is found by bisection.
        """
        low, high = np.ones((2, self.num_envs), np.int64)
        high *= self._trial_steps
        for _ in range(self._trial_steps.bit_length()):
            middle = (low + high) // 2
            squares = (self._nearest(middle) - self.goal) ** 2
            # rounding must not lead past the edge
            reached = np.sqrt(squares[:, 0] + squares[:, 1]) <= self._radius * (1 - 1e-4)
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        way = (self._nearest(high) - self.position) / high[:, None]
        return ((way - self.wind) / STEP).astype(np.float32)

    def _nearest(self, n: NDArray[np.int64]) -> NDArray[np.float64]:
        """The point nearest to the goal that can be reached in n steps [N, 2]."""
        centre, most = self.position + n[:, None] * self.wind, n[:, None] * STEP
        return np.minimum(np.maximum(self.goal, centre - most), centre + most)

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps

    def text(self, i: int) -> str:
        columns, rows = 33, 13  # of 0.1 and 0.2, around x = 0 and y = 0.4, so that y = 1 is a row
        board = [[" "] * columns for _ in range(rows)]
        for x, y, letter in [*self._landmarks(), (*self.seen[i], "*" if self.in_goal[i] else "@")]:
            column, row = round(float(x) * 10) + columns // 2, rows // 2 - round((float(y) - 0.4) * 5)
            board[min(max(row, 0), rows - 1)][min(max(column, 0), columns - 1)] = letter
        x, y = self.seen[i]
        where = f"x {x:+.3f}   y {y:+.3f}   in the goal: {'yes' if self.in_goal[i] else 'no'}"
        trial = min(self.t[i] // self._trial_steps, self._trials - 1)
        step = self.t[i] - trial * self._trial_steps
        when = f"step {step} of {self._trial_steps}, trial {trial + 1} of {self._trials}"
        return "\n".join(["".join(row).rstrip() for row in board] + [where, when])

    def _landmarks(self) -> list[tuple[float, float, str]]:
        """What is known about where the goal is: points and their letters."""
        raise NotImplementedError


def _rows(split: Split, num_train: int, num_tasks: int) -> tuple[int, int]:
    """The first row of a split in the table of tasks, and the one after its last."""
    if not 0 < num_train <= num_tasks:
        raise ValueError(f"num_train={num_train}: expected 1 .. {num_tasks}, at most num_tasks={num_tasks}")
    if split == "test" and num_train == num_tasks:
        raise ValueError(f"num_train={num_train}: expected less than num_tasks={num_tasks}, to have some to test")
    rows = {"all": (0, num_tasks), "train": (0, num_train), "test": (num_train, num_tasks)}
    return rows[split]


def displacement(actions: NDArray[Any]) -> NDArray[np.float32]:
    """Actions [N, 2], clipped to -1 .. 1 and scaled to -0.1 .. 0.1, in float32 as the papers' code does it."""
    scaled = np.minimum(np.maximum(actions, -1), 1).astype(np.float32, copy=False)
    scaled += np.float32(1)
    scaled *= STEP
    scaled -= STEP
    return scaled
