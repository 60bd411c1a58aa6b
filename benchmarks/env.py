"""Steps per second of the native environments, beside one of the packages that they reproduce."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv
from rlmem_envs.popgym import package
from rlmem_envs.registration import TASKS, make, task_class

from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, check_names, progress, quotient, verdict
from rlmem.evidence.bench.timing import Run
from rlmem.scan import native

STEPS = 100  # the least number of vector steps in a turn
LONGEST = 2_000_000  # the greatest number of environment steps in a turn of more than one vector step
GYMNASIUM = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1"}
"""Task whose reference package is Gymnasium -> its id there."""
POPGYM = {task: module for task, module in TASKS.items() if module.startswith("popgym.")}
GAMES = {task for task, module in POPGYM.items() if "_only_" not in module} - {"MultiarmedBandit"}
"""The card and grid games of POPGym."""
GOALS = {64: 10.0, 1024: 50.0}
"""Number of environments -> the speedup over one environment of the package that each of GAMES must reach."""


@dataclass
class EnvBench(Bench):
    """Steps per second of `tasks` with each number of environments in `sizes`."""

    name = "env"
    refused = frozenset({"threads", "device"})
    tasks: Sequence[str] = tuple(TASKS)
    sizes: Sequence[int] = (1, 64, 1024, 8192)

    def measure(self, result: Numbers) -> Iterator[None]:
        check_names("--tasks ", "task", self.tasks, TASKS)
        native.missing()  # sets the allocator as in a process that trains
        result["tasks"] = {}
        for task in progress(self.tasks, "environments"):
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

    def tables(self, result: Numbers) -> Iterator[PlottedTable]:
        sizes = {str(n): f"N = {n:,}" for n in self.sizes}
        columns = dict.fromkeys(("package", *sizes.values()), "thousand steps per second")
        columns |= dict.fromkeys((f"{size} / package" for size in sizes.values()), "times the package's")
        rows: list[Any] = []
        for task, rates in rates_of(result).items():
            speeds = [quotient(rates.get(name), 1e3) for name in ("package", *sizes)]
            rows.append((task, *speeds, *(quotient(rates[n], rates.get("package")) for n in sizes)))
        title = "in thousands, and in terms of one environment of the reference package"
        yield PlottedTable(f"environment steps per second, {title}", ["task"], columns, rows)

    def verdicts(self, result: Numbers) -> Iterator[str]:
        """The worst ratio of the card and grid games."""
        games = {task: rates for task, rates in rates_of(result).items() if task in GAMES}
        for n, goal in GOALS.items():
            ratios = {task: quotient(rates.get(str(n)), rates.get("package")) for task, rates in games.items()}
            if known := [(ratio, task) for task, ratio in ratios.items() if ratio]:
                worst, task = min(known)
                yield verdict(f"card and grid games, N = {n}: at least", worst, goal, ".0f", f"{task}; ")


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


def rates_of(result: Numbers) -> dict[str, dict[str, float]]:
    """Task -> contestant -> environment steps per second."""
    return {task: row["steps_per_second"] for task, row in result["tasks"].items()}
