"""Data sets from trained runs, from random play, and from the files of others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rlmem.config.compose import Config, load
from rlmem.dataset.file import Recording, joined, read, require_room, write
from rlmem.dataset.play import AgentPlayer, play, uniform
from rlmem.errors import UserError
from rlmem.loops.base import one_thread
from rlmem.record.checkpoint import sha256
from rlmem.run.assemble import EVAL_ENVS, assemble, make_env, max_steps
from rlmem.run.restore import agent_state, fitting, parse_source, stored_config
from rlmem.seeding import Streams
from rlmem.spaces import is_bounded

PACKAGES = ("rlmem", "gymnasium", "numpy", "torch", "pybullet", "pybullet-envs-gymnasium")


def from_runs(
    sources: Sequence[str], episodes: int, out: Path, seed: int, greedy: bool, trust: bool = False
) -> Recording:
    """So many episodes of every run, one level after another: all numbers of the state, whatever an agent saw of them.

    sources: RUN, RUN@step or RUN@best each
    episodes: of each run
    out: the file to write
    seed: root of the random streams
    greedy: without the policy's own noise
    trust: take the runs as one's own, whoever made them (`stored_config`)
    """
    require_room(out)
    parts, levels, full = [], [], None
    for number, source in enumerate(sources):
        recording, config = _of_run(source, episodes, Streams(seed).int(f"dataset/{number}"), greedy, trust)
        levels.append({"policy": source, "greedy": greedy, **_told(recording)})
        parts.append(recording)
        if parts[0].observations.shape[1:] + parts[0].actions.shape[1:] != (
            recording.observations.shape[1:] + recording.actions.shape[1:]
        ):
            raise UserError(f"{source}: other observations or actions than {sources[0]}; e.g. runs in one environment")
        full = full or config
    assert full is not None
    return _written(out, joined(parts), full, levels, seed)


def from_random(overrides: Sequence[str], episodes: int, out: Path, seed: int) -> Recording:
    """Episodes of uniform random actions in the environment that `overrides` choose."""
    require_room(out)
    config, streams = _full(load(overrides)), Streams(seed)
    with closing(_environment(config, episodes)) as env:
        player = uniform(env.single_action_space, env.num_envs, np.random.default_rng(streams.int("dataset/act")))
        recording = play(env, player, episodes, streams.int("dataset/env"), max_steps(config.values))
    return _written(out, recording, config, [{"policy": "random", **_told(recording)}], seed)


def imported(path: Path, overrides: Sequence[str], out: Path) -> Recording:
    """Somebody else's file, held to an environment and written as ours."""
    require_room(out)
    config, recording = _full(load(overrides)), read(path)
    with closing(make_env(config, 1)) as env:
        for name, table, size in zip(("observations", "actions"), _tables(recording), _sizes(env), strict=True):
            if table.shape[1] != size:
                what = f"{name} of {table.shape[1]} numbers, and env={config.choices['env']} has {size}"
                raise UserError(f"{path}: {what}; expected a recording of that environment, all of its state")
    source = {"policy": "unknown", "file": path.name, "sha256": sha256(path), **_told(recording)}
    return _written(out, recording, config, [source], None)


def _of_run(source: str, episodes: int, seed: int, greedy: bool, trust: bool) -> tuple[Recording, Config]:
    run, which = parse_source(source)
    trained = stored_config(run, ["device=cpu"], trust)
    values = trained.values
    parts = assemble(trained, num_envs=1)
    parts.env.close()
    if not parts.algo.acts:
        raise UserError(f"{run}: nothing acts in a run of algo={trained.choices['algo']}; e.g. a run of algo=ppo")
    with fitting(run):
        parts.agent.load_state_dict(agent_state(run, which)["agent"])
    streams, config = Streams(seed), _full(trained)
    exploration = parts.algo.explore(values["total_steps"], values["total_steps"])  # as at the end of its run
    with closing(_environment(config, episodes)) as env, one_thread():
        size = _sizes(env)[0]
        seen = parts.env.seen_slots() if hasattr(parts.env, "seen_slots") else [*range(size)]
        generator = None if greedy else streams.torch("act")
        player = AgentPlayer(parts.agent, env.single_action_space, env.num_envs, seen, generator, exploration)
        return play(env, player, episodes, streams.int("env"), max_steps(config.values)), config


def _full(config: Config) -> Config:
    """The same environment with all of its state in view."""
    node = config.values["env"]
    return replace(config, values=config.values | {"env": node | ({"observe": "full"} if "observe" in node else {})})


def _environment(config: Config, episodes: int) -> VectorEnv:
    env = make_env(config, min(episodes, config.values["env"].get("num_envs", 1), EVAL_ENVS))
    _sizes(env)
    return env


def _sizes(env: VectorEnv) -> tuple[int, int]:
    """D and A of its recordings. UserError if it cannot be recorded."""
    seen, acts = env.single_observation_space, env.single_action_space
    if not isinstance(env, VectorEnv) or not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise UserError(f"observations {seen}: a data set holds rows of numbers; e.g. env=hopper")
    if isinstance(acts, spaces.Discrete):
        return seen.shape[0], 1
    if not isinstance(acts, spaces.Box) or len(acts.shape) != 1 or not is_bounded(acts):
        raise UserError(f"actions {acts}: a data set holds numbers between bounds, or one choice; e.g. env=hopper")
    return seen.shape[0], acts.shape[0]


def _tables(recording: Recording) -> tuple[Any, Any]:
    return recording.observations, recording.actions


def _told(recording: Recording) -> dict[str, Any]:
    returns = recording.returns
    return {
        "episodes": len(returns),
        "transitions": len(recording.rewards),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
    }


def _written(out: Path, recording: Recording, config: Config, levels: list[dict[str, Any]], seed: int | None) -> Any:
    recording.attrs = {
        "env": str(config.choices["env"]),
        "env_config": json.dumps(config.values["env"], sort_keys=True),
        "versions": json.dumps({name: found for name in PACKAGES if (found := _version(name))}),
        "levels": json.dumps(levels),
        **({} if seed is None else {"seed": seed}),
    }
    write(out, recording)
    return recording


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
