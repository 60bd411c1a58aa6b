"""The native tasks by name, and their ids in Gymnasium's registry."""

import difflib
from importlib import import_module
from typing import Any

import gymnasium as gym

from rlmem_envs.core.batched import BatchedEnv
from rlmem_envs.core.single import SingleEnv

TASKS = {
    "Autoencode": "popgym.autoencode",
    "Battleship": "popgym.battleship",
    "Concentration": "popgym.concentration",
    "CountRecall": "popgym.count_recall",
    "HigherLower": "popgym.higher_lower",
    "LabyrinthEscape": "popgym.labyrinth_escape",
    "LabyrinthExplore": "popgym.labyrinth_explore",
    "MineSweeper": "popgym.minesweeper",
    "MultiarmedBandit": "popgym.multiarmed_bandit",
    "NoisyPositionOnlyCartPole": "popgym.noisy_position_only_cartpole",
    "NoisyPositionOnlyPendulum": "popgym.noisy_position_only_pendulum",
    "PositionOnlyCartPole": "popgym.position_only_cartpole",
    "PositionOnlyPendulum": "popgym.position_only_pendulum",
    "RepeatFirst": "popgym.repeat_first",
    "RepeatPrevious": "popgym.repeat_previous",
    "VelocityOnlyCartPole": "popgym.velocity_only_cartpole",
    "CartPole": "occlusion.cartpole",
    "Pendulum": "occlusion.pendulum",
    "RegularLanguage": "languages.regular",
    "TMaze": "mazes.tmaze",
    "TeleporterTMaze": "lprnn.teleporter_tmaze",
    "CuedCatch": "lprnn.cued_catch",
    "SequenceRecall": "lprnn.sequence_recall",
    "VisualMatch": "pixels.visual_match",
    "KeyToDoor": "pixels.key_to_door",
    "Wind": "navigation.wind",
    "PointRobot": "navigation.point_robot",
    "TwoStepCue": "diagnostics.two_step_cue",
    "POMDP": "pomdp.tables",
    "MemoryChain": "diagnostics.memory_chain",
    "Copy": "dials.copy",
    "NBack": "dials.n_back",
    "AssociativeRecall": "dials.associative_recall",
    "Counting": "dials.counting",
    "MemoryDemand": "dials.memory_demand",
    "EndlessTMaze": "dials.endless_tmaze",
    "ColorCubes": "dials.color_cubes",
}
"""Class name -> module below `rlmem_envs`; a task's id is `rlmem/<class name>-v0`."""

ROBOTS = {
    "Ant": {"robot": "ant"},
    "HalfCheetah": {"robot": "half_cheetah"},
    "Hopper": {"robot": "hopper"},
    "Walker": {"robot": "walker"},
    "Humanoid": {"robot": "humanoid", "backend": "mujoco"},
}
"""Name -> arguments of `occlusion.robots.make`. A physics steps them, not array operations."""


def task_class(task: str) -> type[BatchedEnv]:
    """The class of a task. Raises ValueError for an unknown name."""
    if task not in TASKS:
        raise ValueError(f"no task `{task}`{_nearest(task, TASKS)}; tasks: {', '.join(TASKS)}")
    cls: type[BatchedEnv] = getattr(import_module(f"rlmem_envs.{TASKS[task]}"), task)
    return cls


def make(task: str, num_envs: int = 1, level: str | None = None, **params: Any) -> BatchedEnv:
    """`num_envs` copies of a task: the parameters of a level, some of them replaced.

    Raises ValueError for an unknown level, TypeError for an unknown parameter.
    """
    cls = task_class(task)
    if level is not None and level not in cls.levels:
        raise ValueError(f"{task} has no level `{level}`{_nearest(level, cls.levels)}; levels: {', '.join(cls.levels)}")
    return cls(num_envs, **{**(cls.levels[level] if level else {}), **params})


def make_single(task: str, **kwargs: Any) -> SingleEnv:
    """One copy of a task, for `gymnasium.make`."""
    return SingleEnv(make(task, **kwargs))


def register() -> None:
    """Make the tasks known to `gymnasium.make` and `gymnasium.make_vec`."""
    for task in TASKS:
        gym.register(
            f"rlmem/{task}-v0",
            entry_point="rlmem_envs.registration:make_single",
            vector_entry_point="rlmem_envs.registration:make",
            kwargs={"task": task},
        )
    for robot, arguments in ROBOTS.items():
        gym.register(
            f"rlmem/{robot}-v0",
            entry_point="rlmem_envs.occlusion.robots:make_single",
            vector_entry_point="rlmem_envs.occlusion.robots:make",
            kwargs=dict(arguments),
        )


def _nearest(name: str, names: Any) -> str:
    matches = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean `{matches[0]}`?)" if matches else ""
