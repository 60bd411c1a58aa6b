"""Steps per second of the native environments, beside one of the packages that they reproduce."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv
from rlmem_envs.popgym import package
from rlmem_envs.registration import ROBOTS, TASKS, make, task_class

from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, check_names, progress, quotient, verdict
from rlmem.evidence.bench.timing import Run
from rlmem.scan import native

STEPS = 100  # the least number of vector steps in a turn
LONGEST = 2_000_000  # the greatest number of environment steps in a turn of more than one vector step
ROBOT_ENVS = 64
ROBOT_NAMES = tuple(arguments["robot"] for arguments in ROBOTS.values())
BACKENDS = {"robots": "pybullet", "mujoco": "mujoco"}
"""Part of the numbers -> the physics whose robots it has."""
GYMNASIUM = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1"}
"""Task whose reference package is Gymnasium -> its id there."""
POPGYM = {task: module for task, module in TASKS.items() if module.startswith("popgym.")}
GAMES = {task for task, module in POPGYM.items() if "_only_" not in module} - {"MultiarmedBandit"}
"""The card and grid games of POPGym."""
GOALS = {64: 10.0, 1024: 50.0}
"""Number of environments -> the speedup over one environment of the package that each of GAMES must reach."""
ROBOT_GOAL = ("ant", 1.7)


@dataclass
class EnvBench(Bench):
    """Steps per second of `tasks` with each number of environments in `sizes`, and of the robots among them."""

    name = "env"
    refused = frozenset({"threads", "device"})
    tasks: Sequence[str] = (*TASKS, *ROBOT_NAMES)
    sizes: Sequence[int] = (1, 64, 1024, 8192)

    def measure(self, result: Numbers) -> Iterator[None]:
        check_names("--tasks ", "task", self.tasks, (*TASKS, *ROBOT_NAMES))
        native.missing()  # sets the allocator as in a process that trains
        result["setting"]["robot_envs"] = ROBOT_ENVS
        result |= {"tasks": {}, "robots": {}, "mujoco": {}}
        for task in progress(self.tasks, "environments"):
            if task in ROBOT_NAMES:
                for part, backend in BACKENDS.items():
                    if (rates := self.robot(task, backend)) is not None:
                        result[part][task] = {"steps_per_second": rates}
            else:
                level = next(iter(task_class(task).levels))
                turns = {str(n): batched(make(task, n, level)) for n in self.sizes}
                if (single := reference(task, level)) is not None:
                    turns["package"] = stepping(single, 2000)
                result["tasks"][task] = {"level": level, "steps_per_second": self.rates(turns)}
            yield

    def rates(self, turns: dict[str, tuple[Run, int]]) -> dict[str, float]:
        """Environment steps per second of contestants, each given as its turn and the number of steps in it."""
        times = self.turns({name: turn for name, (turn, _) in turns.items()}, at_least=0.01)
        if failed := [f"{name}: {time.note}" for name, time in times.items() if time.median is None]:
            raise RuntimeError("; ".join(failed))
        return {name: turns[name][1] / time.median for name, time in times.items() if time.median}

    def robot(self, name: str, backend: str) -> dict[str, float] | None:
        """Steps per second of one environment of the package, and of worker processes on all cores.

        None if the physics does not have the robot, or is not installed.
        """
        from rlmem_envs.occlusion import robots

        if name not in robots.ROBOTS[backend]:
            return None
        try:
            vector = robots.ROBOTS[backend][name](ROBOT_ENVS)
        except ImportError:
            return None
        single = gym.wrappers.TimeLimit(vector.package(), 1000)
        with closing(single), closing(vector):
            return self.rates({"one": stepping(single, 500), "workers": stepping(vector, STEPS)})

    def tables(self, result: Numbers) -> Iterator[PlottedTable]:
        thousands, times = "thousand steps per second", "times the package's"
        sizes = {str(n): f"N = {n:,}" for n in self.sizes}
        if tasks := rates_of(result["tasks"]):
            columns = dict.fromkeys(("package", *sizes.values()), thousands)
            columns |= dict.fromkeys((f"{size} / package" for size in sizes.values()), times)
            rows: list[Any] = []
            for task, rates in tasks.items():
                speeds = [quotient(rates.get(name), 1e3) for name in ("package", *sizes)]
                rows.append((task, *speeds, *(quotient(rates[n], rates.get("package")) for n in sizes)))
            title = "in thousands, and in terms of one environment of the reference package"
            yield PlottedTable(f"environment steps per second, {title}", ["task"], columns, rows)
        rows = [
            (name, backend, r["one"] / 1e3, r["workers"] / 1e3, r["workers"] / r["one"])
            for part, backend in BACKENDS.items()
            for name, r in rates_of(result.get(part, {})).items()  # files of before have no MuJoCo
        ]
        if rows:
            title = f"robots, {ROBOT_ENVS} environments on {result['machine']['cores']} cores"
            yield PlottedTable(
                title, ["robot", "backend"], {"one": thousands, "workers": thousands, "times": times}, rows
            )

    def verdicts(self, result: Numbers) -> Iterator[str]:
        """The worst ratio of the card and grid games, and the ratio of the robot."""
        tasks, robots = rates_of(result["tasks"]), rates_of(result["robots"])
        for n, goal in GOALS.items():
            ratios = {task: quotient(r.get(str(n)), r.get("package")) for task, r in tasks.items() if task in GAMES}
            if known := [(ratio, task) for task, ratio in ratios.items() if ratio]:
                worst, task = min(known)
                yield verdict(f"card and grid games, N = {n}: at least", worst, goal, ".0f", f"{task}; ")
        name, goal = ROBOT_GOAL
        if name in robots:
            yield verdict(f"{name}, workers:", robots[name]["workers"] / robots[name]["one"], goal, ".2f")


def batched(env: VectorEnv) -> tuple[Run, int]:
    """A turn of a native environment, in whole episodes if all have the same length, and its environment steps."""
    least, most = env.episode_steps()  # type: ignore[attr-defined]
    whole = most + 1 if least == most else 1  # a whole episode and the reset after it
    turn, steps = stepping(env, min(ceil(STEPS / whole) * whole, max(1, LONGEST // env.num_envs)))
    turn()
    return turn, steps


def stepping(env: gym.Env | VectorEnv, steps: int) -> tuple[Run, int]:
    """A turn of `steps` steps, with a reset after each episode of a single environment, and its environment steps."""
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(16)]
    env.reset(seed=0)
    single = not isinstance(env, VectorEnv)

    def turn() -> None:
        for t in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[t % 16])
            if single and (terminated or truncated):
                env.reset()

    return turn, steps * getattr(env, "num_envs", 1)


def reference(task: str, level: str) -> gym.Env | None:
    """One environment of the package that a task reproduces; None where no package can be installed."""
    if task in GYMNASIUM:
        return gym.make(GYMNASIUM[task], max_episode_steps=200)
    try:
        return package.game_class(task, level)() if task in POPGYM else None
    except ImportError:  # the labyrinths need another package
        return None


def rates_of(rows: dict[str, Numbers]) -> dict[str, dict[str, float]]:
    return {name: row["steps_per_second"] for name, row in rows.items()}
