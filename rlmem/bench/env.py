"""`rlmem bench env`: steps per second of the native environments, beside the packages that they are held to.

Random actions, drawn beforehand; resets are part of the time. A turn of a task whose episodes all take T steps is whole
episodes. The peer is one environment of the reference package, stepped and reset by a Python loop, where the reference
can be installed: popgym, Gymnasium, PyBullet. The robots are not batched: theirs is the rate of worker processes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from rich.console import Console
from rlmem_envs.popgym import package
from rlmem_envs.registration import TASKS, make, task_class

from rlmem.bench import output
from rlmem.bench.output import number
from rlmem.bench.timing import in_turns
from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.scan import native

SIZES = (1, 64, 1024, 8192)
STEPS = 100
"""Vector steps of a turn, at least."""
LONGEST = 2_000_000
"""Environment steps of a turn, at most, but one step."""
ROBOTS = ("hopper", "half_cheetah", "walker", "ant")
ROBOT_ENVS = 64
GOALS = {"card and grid games, N = 64": (64, 10.0), "card and grid games, N = 1024": (1024, 50.0)}
GAMES = (
    "Autoencode",
    "RepeatFirst",
    "RepeatPrevious",
    "CountRecall",
    "HigherLower",
    "Concentration",
    "Battleship",
    "MineSweeper",
    "LabyrinthEscape",
    "LabyrinthExplore",
)
ROBOT_GOAL = ("ant", 1.7)


def main(
    rounds: int = 5,
    budget: float = 20.0,
    tasks: tuple[str, ...] = (*TASKS, *ROBOTS),
    sizes: tuple[int, ...] = SIZES,
    json_path: Path = Path("bench-env.json"),
    plot_path: Path = Path("bench-env.png"),
) -> dict[str, Any]:
    """Measure, print two tables, write the numbers and a plot, and return the numbers."""
    output.check(json_path, plot_path)
    native.missing()  # memory is kept as in a process that trains
    known = (*TASKS, *ROBOTS)
    if unknown := [task for task in tasks if task not in known]:
        raise UserError(
            *(
                sentence(f"--tasks {task}", "no such task", near=nearest(task, known), accepted=known)
                for task in unknown
            )
        )
    result: dict[str, Any] = {
        "setting": {"sizes": sizes, "rounds": rounds, "budget": budget, "robot_envs": ROBOT_ENVS},
        "machine": output.machine(torch.device("cpu")),
        "tasks": {},
        "robots": {},
    }
    for task in output.progress(tasks, "environments"):
        if task in ROBOTS:
            result["robots"][task] = robot(task, rounds, budget)
        else:
            result["tasks"][task] = measure(task, sizes, rounds, budget)
    output.write(result, json_path)
    report(result)
    plot(result, plot_path)
    Console().print(f"wrote {json_path} and {plot_path}")
    return result


def measure(task: str, sizes: tuple[int, ...], rounds: int, budget: float) -> dict[str, Any]:
    """Steps per second of a task at its first level, by number of environments, and of its reference package."""
    level = next(iter(task_class(task).levels))
    turns = {str(n): batched(make(task, n, level)) for n in sizes}
    if (single := reference(task, level)) is not None:
        turns["package"] = single
    rates = in_rates(turns, rounds, budget)
    return {"level": level, "steps_per_second": rates}


def in_rates(turns: dict[str, tuple[Callable[[], object], int]], rounds: int, budget: float) -> dict[str, float]:
    """Environment steps per second: medians of turns."""
    times = in_turns({name: turn for name, (turn, _) in turns.items()}, rounds, budget, at_least=0.01)
    if failed := [f"{name}: {time.note}" for name, time in times.items() if time.median is None]:
        raise RuntimeError("; ".join(failed))
    return {name: turns[name][1] / (times[name].median or np.nan) for name in turns}


def batched(env: VectorEnv) -> tuple[Callable[[], object], int]:
    """A turn of a vector, and its environment steps."""
    least, most = env.episode_steps()  # type: ignore[attr-defined]
    whole = most + 1 if least == most else 1  # a whole episode and the reset after it
    steps = min(ceil(STEPS / whole) * whole, max(1, LONGEST // env.num_envs))
    rng = np.random.default_rng(0)
    actions = [sample(env.single_action_space, rng, env.num_envs) for _ in range(16)]
    env.reset(seed=0)

    def turn() -> None:
        for t in range(steps):
            env.step(actions[t % 16])

    turn()
    return turn, steps * env.num_envs


def sample(space: gym.Space, rng: np.random.Generator, n: int) -> np.ndarray:
    """n uniform actions."""
    if isinstance(space, spaces.Box):
        return rng.uniform(space.low, space.high, (n, *space.shape)).astype(space.dtype)
    size = space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n  # type: ignore[attr-defined]
    return rng.integers(0, size, (n, *(space.shape or ())))


def reference(task: str, level: str) -> tuple[Callable[[], object], int] | None:
    """A turn of one environment of the package that a task is held to; None where there is none to install."""
    if TASKS[task].startswith("popgym."):
        try:
            return one_by_one(package.game_class(task, level)())
        except ImportError:  # the labyrinths need another package
            return None
    made_by_gymnasium = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1"}
    return one_by_one(gym.make(made_by_gymnasium[task], max_episode_steps=200)) if task in made_by_gymnasium else None


def one_by_one(env: gym.Env, steps: int = 2000) -> tuple[Callable[[], object], int]:
    """A turn of a single environment, and its steps."""
    rng = np.random.default_rng(0)
    drawn = sample(env.action_space, rng, 16)
    actions = [int(action) if np.ndim(action) == 0 else action for action in drawn]
    env.reset(seed=0)

    def turn() -> None:
        for t in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[t % 16])
            if terminated or truncated:
                env.reset()

    return turn, steps


def robot(name: str, rounds: int, budget: float) -> dict[str, Any]:
    """Steps per second of a robot: one environment, and worker processes on all cores."""
    from rlmem_envs.occlusion import bullet, robots

    robot_class = robots.ROBOTS[name]
    single = gym.wrappers.TimeLimit(bullet.package_env(robot_class.package_name), 1000)
    vector = robot_class(ROBOT_ENVS)
    vector.reset(seed=0)
    actions = [sample(vector.single_action_space, np.random.default_rng(t), ROBOT_ENVS) for t in range(16)]

    def turn() -> None:
        for t in range(STEPS):
            vector.step(actions[t % 16])

    try:
        rates = in_rates({"one": one_by_one(single, 500), "workers": (turn, STEPS * ROBOT_ENVS)}, rounds, budget)
    finally:
        vector.close()
        single.close()
    return {"steps_per_second": rates}


def report(result: dict[str, Any]) -> None:
    console = Console()
    sizes = [str(n) for n in result["setting"]["sizes"]]
    rows = {task: row["steps_per_second"] for task, row in result["tasks"].items()}
    if rows:
        columns = ("package", *(f"N = {int(n):,}" for n in sizes))
        table = output.table("environment steps per second", "task", *columns)
        for task, rates in rows.items():
            table.add_row(task, rate(rates.get("package")), *(rate(rates[n]) for n in sizes))
        console.print(table)
    if beside := {task: rates for task, rates in rows.items() if "package" in rates}:
        title = "times one environment of the reference package"
        table = output.table(title, "task", *(f"N = {int(n):,}" for n in sizes))
        for task, rates in beside.items():
            table.add_row(task, *(number(rates[n] / rates["package"]) for n in sizes))
        console.print(table)
    if result["robots"]:
        title = f"PyBullet, {result['setting']['robot_envs']} environments on {result['machine']['cores']} cores"
        table = output.table(title, "robot", "one", "workers", "times")
        for name, row in result["robots"].items():
            rates = row["steps_per_second"]
            times = f"{rates['workers'] / rates['one']:.2f}"
            table.add_row(name, rate(rates["one"]), rate(rates["workers"]), times)
        console.print(table)
    for line in verdicts(result):
        console.print(line, highlight=False)


def verdicts(result: dict[str, Any]) -> list[str]:
    """The worst ratio of the card and grid games, and that of the robot, against their goals."""
    lines = []
    for name, (n, goal) in GOALS.items():
        ratios = {
            task: row["steps_per_second"][str(n)] / row["steps_per_second"]["package"]
            for task, row in result["tasks"].items()
            if task in GAMES and "package" in row["steps_per_second"] and str(n) in row["steps_per_second"]
        }
        if ratios:
            worst = min(ratios, key=lambda task: ratios[task])
            verdict = "reached" if ratios[worst] >= goal else "missed"
            lines.append(f"{name}: at least {ratios[worst]:.0f}x ({worst}; goal {goal:.0f}x: {verdict})")
    name, goal = ROBOT_GOAL
    if name in result["robots"]:
        rates = result["robots"][name]["steps_per_second"]
        ratio = rates["workers"] / rates["one"]
        lines.append(f"{name}, workers: {ratio:.2f}x (goal {goal}x: {'reached' if ratio >= goal else 'missed'})")
    return lines


def rate(value: float | None) -> str:
    """Steps per second in thousands or millions."""
    if value is None:
        return "-"
    return f"{number(value / 1e6, '.2f')}M" if value >= 1e6 else f"{number(value / 1e3, '.1f')}k"


def plot(result: dict[str, Any], path: Path) -> None:
    """Rates by task: one environment of the package, and each number of native ones."""
    rows = {task: row["steps_per_second"] for task, row in result["tasks"].items()}
    rows |= {name: row["steps_per_second"] for name, row in result["robots"].items()}
    names = list(dict.fromkeys(name for rates in rows.values() for name in rates))
    series = {
        (f"N = {int(name):,}" if name.isdigit() else name): [rates.get(name) for rates in rows.values()]
        for name in names
    }
    figure = output.figure(9, 2 + 0.28 * len(rows))
    output.dots(figure.subplots(), "environment steps per second", list(rows), series)
    figure.savefig(path, dpi=150)
