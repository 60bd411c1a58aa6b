"""Choices of several groups that do not go together, refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from rlmem.acting.actors.cluster import missing
from rlmem.algos.impala import Impala
from rlmem.algos.off_policy import OffPolicy
from rlmem.algos.on_policy import OnPolicy
from rlmem.batching import Batching, Tape
from rlmem.config.compose import Config
from rlmem.config.messages import show
from rlmem.errors import UserError
from rlmem.parallel import launched
from rlmem.spaces import READABLE, is_bounded, is_flat, is_readable
from rlmem.supervised.base import Supervised

Algorithm = OnPolicy | OffPolicy | Supervised


def share_of_envs(config: Config, algo: Algorithm, device: torch.device) -> int | None:
    """The environments of one of several processes; None: the only one. UserError if so many cannot train together."""
    devices, there = config.values["trainer"]["devices"], launched()
    where = f"trainer.devices={devices}"
    if there is not None and there.size != devices:
        raise UserError(
            f"{where}: this is one of {there.size} processes (WORLD_SIZE={there.size}); expected as many devices; "
            f"e.g. trainer.devices={there.size}"
        )
    if devices == 1:
        return None
    if not isinstance(algo, OnPolicy):
        what = f"algo={config.choices['algo']} learns from one {'replay' if isinstance(algo, OffPolicy) else 'stream'}"
        raise UserError(f"{where}: {what}, in one process; expected 1; e.g. algo=ppo")
    num_envs = config.values["env"].get("num_envs")
    if num_envs is None or num_envs % devices:
        raise UserError(
            f"env.num_envs={show(num_envs)}: cannot be divided among {where}; expected a multiple; "
            f"e.g. env.num_envs={devices * 32}"
        )
    needed = devices if there is None else there.local + 1
    if device.type == "cuda" and torch.cuda.device_count() < needed:
        raise UserError(
            f"{where}: each process takes a GPU, and there are {torch.cuda.device_count()} here; expected at most as "
            f"many; e.g. device=cpu"
        )
    return num_envs // devices


def require_compatible(config: Config, env: VectorEnv, algo: Algorithm, batching: Batching) -> None:
    """Choices that do not go together, all of them at once."""
    env_name, algo_name = config.choices["env"], config.choices["algo"]
    if isinstance(algo, Supervised):
        return _require_supervised(config, env, algo, batching)
    if not isinstance(env, VectorEnv):
        raise UserError(
            f"env={env_name}: holds labelled sequences, in which algo={algo_name} cannot act; e.g. algo=classify"
        )
    observation, action = env.single_observation_space, env.single_action_space
    problems = []
    asynchronous = isinstance(algo, Impala) and algo.actors  # which keeps no states of environments
    if not asynchronous and (lacks := [f"{name}()" for name in ("state", "restore") if not _has(env, name)]):
        what = f"has no {' and no '.join(lacks)}, without which no checkpoint of a run can be written or gone on from"
        example = "a single Gymnasium environment by env=gym env.id=..., or a class derived from BatchedEnv"
        problems.append(f"env={env_name}: {type(env.unwrapped).__name__} {what}; e.g. {example}")
    if not is_readable(observation):
        problems.append(
            f"env={env_name}: no encoder reads observation space {observation}; expected {READABLE}; "
            f"e.g. env=repeat_previous"
        )
    if not isinstance(action, algo.action_spaces) or not is_flat(action):
        names = ", ".join(space.__name__ for space in algo.action_spaces)
        problems.append(
            f"algo={algo_name}: does not support action space {action} of env={env_name}; "
            f"supported: {names}, of one dimension; e.g. algo={'sac' if isinstance(action, Box) else 'sacd'}"
        )
    elif isinstance(action, Box) and isinstance(algo, OffPolicy) and not is_bounded(action):
        problems.append(
            f"algo={algo_name}: acts between bounds, which action space {action} of env={env_name} lacks; e.g. algo=ppo"
        )
    if isinstance(algo, OffPolicy):
        problem = batching.replay_problem(algo.batch_size)
        total_steps = config.values["total_steps"]
        for name, steps in (("learning_starts", algo.learning_starts), ("random_steps", algo.random_steps)):
            if steps >= total_steps:
                problems.append(
                    f"algo.{name}={steps}: the run ends before, at total_steps={total_steps}; "
                    f"e.g. algo.{name}={total_steps // 10}"
                )
        problems += _unwritable(algo.replay_dir)
    else:
        problem = batching.on_policy_problem()
        problems += _actors_problems(config, algo)
    if problem:
        problems.append(f"batching={config.choices['batching']}: {problem}")
    if problems:
        raise UserError(*problems)


def _has(env: VectorEnv, method: str) -> bool:
    return callable(getattr(env, method, None))


def _require_supervised(config: Config, env: Any, algo: Supervised, batching: Batching) -> None:
    algo_name, cut = config.choices["algo"], f"batching={config.choices['batching']}"
    problem = algo.meet(env)
    if problem is not None:
        raise UserError(f"algo={algo_name} with env={config.choices['env']}: {problem}")
    if isinstance(batching, Tape):
        if batching.detach_every is None:
            return
        cut = f"batching.detach_every={batching.detach_every}"
    what = f"is for agents; algo={algo_name} cuts its own rows, of {algo.window_size()} slots"
    raise UserError(f"{cut}: {what}; e.g. batching=tape batching.detach_every=null")


def _actors_problems(config: Config, algo: OnPolicy) -> list[str]:
    """Why there can be no actors beside this process, if there are to be any."""
    if not isinstance(algo, Impala) or not algo.actors:
        return []
    where, devices = f"algo.actors={algo.actors}", config.values["trainer"]["devices"]
    together = f"one process learns from actors, not trainer.devices={devices}; expected 1; e.g. algo.actors=0"
    return [f"{where}: {problem}" for problem in (missing(), together if devices > 1 else None) if problem]


def _unwritable(replay_dir: str | None) -> list[str]:
    """Why the replay cannot be kept there, if it cannot. The folder itself is made when it is needed."""
    if replay_dir is None:
        return []
    folder = Path(replay_dir).absolute()
    try:
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        TemporaryFile(dir=there).close()
    except (OSError, ValueError) as error:  # ValueError: what no path can hold
        why = getattr(error, "strerror", None) or error
        return [f"algo.replay_dir={replay_dir}: cannot be written ({why}); e.g. algo.replay_dir=/tmp"]
    return []
