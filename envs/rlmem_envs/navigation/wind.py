"""Wind: steer to a known goal against an unknown, constant wind."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Observe, Scores, Who
from rlmem_envs.navigation.tasks import PUBLISHED, STEP, Navigation, Split, with_splits

GOAL = (0.0, 1.0)


class Wind(Navigation):
    """Steer from the origin to (0, 1) and stay there, while a constant wind blows that is never seen.

        p <- p + 0.1 clip(a, -1, 1) + w

    | | |
    |---|---|
    | observation | Box [2]: p; with several trials [3]: also 1 where a trial ends, else 0 |
    | action | Box [2] in -1 .. 1, clipped |
    | reward | 1 if p is then within goal_radius of (0, 1), else 0 |
    | end | terminates after episode_steps * episodes_per_task steps; a trial, from (0, 0), takes episode_steps |
    | hidden | `wind` [2]; `goal` [2]; `start_pos` [trials, 2]; `task_index`: row of the table of winds |
    | success | the goal was reached in some step |
    | oracle | knows the wind, takes the fastest way and stays |
    | full state | Box [8]: p, from which the next step goes; goal; wind; shares of the trial's and of all steps |

    The observation that ends a trial is where it ended; the new start is seen from its first step on. Two successive
    positions tell the wind. A memoryless player can only lean against the wind where the goal is not: steered with a
    gain k towards the goal, p comes to rest at w / k beside it, and with k >= 2 it does not come to rest. There may be
    better play that keeps what it knows in the low digits of p.

    The learner of the papers stores "is in the goal now" as its terminal flag, though the episode goes on: values there
    do not count later rewards. Here no step but the last is terminal.

    num_tasks: winds in the table, uniform on a square
    num_train: the first of them are to train on, the others to test on
    split: all, train or test: the winds that episodes are drawn from, each as likely as the others
    goal_radius: how close is in the goal
    wind_range: of a wind along each axis, in either direction
    episode_steps: steps of a trial
    episodes_per_task: trials of an episode, all in the same wind
    task_seed: of the table; 1337 is the papers' own
    observe: see `BatchedEnv`
    """

    tests = "finding out a constant from one's own motion; play in tasks never trained on"
    source = "POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038); SHM (Le et al. 2025, arXiv:2410.10132)"
    levels = with_splits(
        {
            "pomdp_baselines": {
                "num_tasks": 60,
                "num_train": 40,
                "goal_radius": 0.03,
                "wind_range": 0.08,
                "episode_steps": 75,
                "episodes_per_task": 1,
                "task_seed": PUBLISHED,
            },
            "shm": {
                "num_tasks": 200,
                "num_train": 50,
                "goal_radius": 0.01,
                "wind_range": 0.1,
                "episode_steps": 100,
                "episodes_per_task": 1,
                "task_seed": PUBLISHED,
            },
        }
    )
    known = {  # the oracle's exactly, as it plays every wind alike; the others' over 500,000 episodes and more
        "pomdp_baselines": Scores(random=0.0081, memoryless=35.116, oracle=63.2333),
        "pomdp_baselines_train": Scores(random=0.0094, memoryless=36.909, oracle=63.5250),
        "pomdp_baselines_test": Scores(random=0.0052, memoryless=31.581, oracle=62.6500),
        "shm": Scores(random=0.0006, memoryless=7.516, oracle=81.5150),
        "shm_train": Scores(random=0.0007, memoryless=8.803, oracle=84.5200),
        "shm_test": Scores(random=0.0006, memoryless=7.081, oracle=80.5133),
    }
    varies = "wind"

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_tasks: Annotated[int, Gt(0), Le(1_000_000)] = 60,
        num_train: Annotated[int, Gt(0)] = 40,
        split: Split = "all",
        goal_radius: Annotated[float, Gt(0)] = 0.03,
        wind_range: Annotated[float, Ge(0)] = 0.08,
        episode_steps: Annotated[int, Gt(0)] = 75,
        episodes_per_task: Annotated[int, Gt(0)] = 1,
        task_seed: Annotated[int, Ge(0)] = PUBLISHED,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        params = {
            "num_tasks": num_tasks,
            "num_train": num_train,
            "split": split,
            "goal_radius": goal_radius,
            "wind_range": wind_range,
            "episode_steps": episode_steps,
            "episodes_per_task": episodes_per_task,
            "task_seed": task_seed,
        }
        winds = np.random.RandomState(task_seed).uniform(-wind_range, wind_range, (num_tasks, 2))
        trials = goal_radius, episode_steps, episodes_per_task
        super().__init__(num_envs, winds, num_train, split, *trials, params, observe=observe, **kwargs)

    def _starts(self, who: Who) -> NDArray[np.float64]:
        return np.zeros((len(who), self._trials, 2))

    def _facts(self, tasks: NDArray[np.float64]) -> Facts:
        return {"goal": np.tile(GOAL, (len(tasks), 1)), "wind": tasks}

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """A gain on the way to the goal. Outside it is random: p then wanders around where it would come to rest."""
        way = np.subtract(GOAL, self._observe()[:, :2])
        inside = np.sqrt((way**2).sum(1)) <= self._radius
        gain = np.where(inside, 1.95, rng.uniform(1.3, 2.6, self.num_envs))
        return (gain[:, None] * way / STEP).astype(np.float32)

    def _landmarks(self) -> list[tuple[float, float, str]]:
        return [(*GOAL, "o")]
