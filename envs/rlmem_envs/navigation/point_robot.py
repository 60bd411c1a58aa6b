"""Point Robot: find a goal somewhere on a semicircle, then return to it."""

from functools import cached_property
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Observe, Scores, Who
from rlmem_envs.navigation.tasks import PUBLISHED, STEP, Navigation, Split, with_splits


class PointRobot(Navigation):
    """Search the upper unit semicircle for a goal that only the reward tells; the next trial has the same goal.

        p <- p + 0.1 clip(a, -1, 1)

    | | |
    |---|---|
    | observation | Box [3]: p, and 1 where a trial ends, else 0; with one trial Box [2]: p |
    | action | Box [2] in -1 .. 1, clipped |
    | reward | 1 if p is then within goal_radius of the goal, else 0 |
    | end | terminates after episode_steps * episodes_per_task steps; a trial takes episode_steps |
    | hidden | `goal` [2]; `start_pos` [trials, 2]; `wind` [2], none; `task_index`: row of the table of goals |
    | success | the goal was reached in some step |
    | oracle | knows the goal, takes the fastest way and stays |
    | full state | Box [8]: p, from which the next step goes; goal; wind; shares of the trial's and of all steps |

    A trial begins anywhere in -1.5 .. 1.5 x -0.5 .. 1.5. The observation that ends one is where it ended; the new start
    is seen from its first step on. The reward is no part of the observation: an agent needs it as an input.

    The learner of the papers stores "is in the goal now" as its terminal flag, though the episode goes on: values there
    do not count later rewards. Here no step but the last is terminal.

    num_tasks: goals in the table, at angles uniform on 0 .. pi
    num_train: the first of them are to train on, the others to test on
    split: all, train or test: the goals that episodes are drawn from, each as likely as the others
    goal_radius: how close is in the goal
    episode_steps: steps of a trial
    episodes_per_task: trials of an episode, all with the same goal
    task_seed: of the table; 1337 is SHM's own (POMDP-Baselines draw theirs in the same way from the seed of the run)
    observe: see `BatchedEnv`
    """

    tests = "search that avoids where it has been, and return to what it found; tasks never trained on"
    source = "POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038); SHM (Le et al. 2025, arXiv:2410.10132)"
    levels = with_splits(
        {
            "pomdp_baselines": {
                "num_tasks": 100,
                "num_train": 80,
                "goal_radius": 0.2,
                "episode_steps": 60,
                "episodes_per_task": 2,
                "task_seed": PUBLISHED,
            },
            "shm": {
                "num_tasks": 200,
                "num_train": 50,
                "goal_radius": 0.05,
                "episode_steps": 100,
                "episodes_per_task": 2,
                "task_seed": PUBLISHED,
            },
        }
    )
    known = {  # the oracle's integrated over starts, the others' over 500,000 episodes and more
        "pomdp_baselines": Scores(random=2.391, memoryless=33.010, oracle=103.494),
        "pomdp_baselines_train": Scores(random=2.391, memoryless=33.997, oracle=103.474),
        "pomdp_baselines_test": Scores(random=2.397, memoryless=35.969, oracle=103.575),
        "shm": Scores(random=0.2358, memoryless=11.724, oracle=180.729),
        "shm_train": Scores(random=0.2354, memoryless=18.105, oracle=180.734),
        "shm_test": Scores(random=0.2358, memoryless=10.817, oracle=180.727),
    }
    varies = "goal"

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_tasks: Annotated[int, Gt(0), Le(1_000_000)] = 100,
        num_train: Annotated[int, Gt(0)] = 80,
        split: Split = "all",
        goal_radius: Annotated[float, Gt(0)] = 0.2,
        episode_steps: Annotated[int, Gt(0)] = 60,
        episodes_per_task: Annotated[int, Gt(0)] = 2,
        task_seed: Annotated[int, Ge(0)] = PUBLISHED,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        params = {
            "num_tasks": num_tasks,
            "num_train": num_train,
            "split": split,
            "goal_radius": goal_radius,
            "episode_steps": episode_steps,
            "episodes_per_task": episodes_per_task,
            "task_seed": task_seed,
        }
        goals = semicircle(num_tasks, task_seed)
        trials = goal_radius, episode_steps, episodes_per_task
        super().__init__(num_envs, goals, num_train, split, *trials, params, observe=observe, **kwargs)

    def _starts(self, who: Who) -> NDArray[np.float64]:
        return self.draws.uniform(who, self._trials, 2) * (3.0, 2.0) - (1.5, 0.5)

    def _facts(self, tasks: NDArray[np.float64]) -> Facts:
        return {"goal": tasks, "wind": np.zeros((len(tasks), 2))}

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """It stays where the most goals of the table are in reach, and sees no reward there or elsewhere."""
        return ((self._best_place - self._observe()[:, :2]) / STEP).astype(np.float32)

    @cached_property
    def _best_place(self) -> NDArray[np.float64]:
        """The point that is in the most goals, of a fine grid on the circle where a disc cuts off most of the arc."""
        angle = np.linspace(0, np.pi, 2001)[:, None]
        places = np.sqrt(max(0.0, 1 - self._radius**2)) * np.hstack([np.cos(angle), np.sin(angle)])
        goals = self._tasks[self._first : self._end]
        near = ((places[:, None] - goals) ** 2).sum(-1) <= self._radius**2
        return places[near.sum(1).argmax()]

    def _landmarks(self) -> list[tuple[float, float, str]]:
        return [(np.cos(angle), np.sin(angle), ".") for angle in np.linspace(0, np.pi, 61)]


def semicircle(num_tasks: int, seed: int) -> NDArray[np.float64]:
    """Goals on the upper unit semicircle [n, 2], with the numbers in the order in which the papers' code draws them."""
    stream = np.random.RandomState(seed)
    stream.uniform(size=2 * num_tasks + 2)  # goals and a start, replaced at once
    angle = stream.uniform(0, np.pi, num_tasks)
    goals = np.stack([np.cos(angle), np.sin(angle)], 1)
    stream.shuffle(goals)
    return goals
