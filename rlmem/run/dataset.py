"""Data sets from trained runs, from random play, and from recordings of other programs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rlmem.acting.collector import one_thread
from rlmem.acting.workers import closing
from rlmem.algos.supervised.dataset.file import Recording, joined, read, require_new_file, write
from rlmem.algos.supervised.dataset.play import agent_player, play, uniform
from rlmem.algos.supervised.windows import Partial
from rlmem.config.compose import Config, load
from rlmem.config.targets import locate, makes
from rlmem.core.errors import UserError
from rlmem.core.hardware import installed_version
from rlmem.core.received import named
from rlmem.core.seeding import Streams
from rlmem.record.checkpoint import sha256
from rlmem.run.assemble import open_trained
from rlmem.run.nodes import EVAL_ENVS, make_env
from rlmem.run.stored import parse_source

PACKAGES = ("rlmem", "gymnasium", "numpy", "torch", "pybullet", "pybullet-envs-gymnasium", "mujoco")


def from_runs(
    sources: Sequence[str], episodes: int, out: Path, seed: int, greedy: bool, trust: bool = False
) -> Recording:
    """Record episodes of trained agents: the full state of robots, CartPole and Pendulum, whatever part an agent sees.

    sources: the runs, each as RUN, RUN@step or RUN@best; each becomes a level of the data set
    episodes: how many episodes of each run
    out: the file to write
    greedy: whether agents act without the noise of their policies
    trust: accept configurations that another user wrote or edited (`stored_config`)
    """
    require_new_file(out)
    parts, configs, levels = list[Recording](), list[Config](), []
    for number, source in enumerate(sources):
        recording, config = _record_run(source, episodes, Streams(seed).int(f"dataset/{number}"), greedy, trust)
        levels.append(_level(recording, policy=source, greedy=greedy))
        parts.append(recording)
        configs.append(config)
        if len({(part.observations.shape[1], part.actions.shape[1]) for part in parts}) > 1:
            raise UserError(f"{source}: other observations or actions than {sources[0]}; e.g. runs in one environment")
    return _write(out, joined(parts), configs[0], levels, seed)


def from_random(overrides: Sequence[str], episodes: int, out: Path, seed: int) -> Recording:
    """Record episodes of uniform random actions in the environment that `overrides` choose; see `from_runs`."""
    require_new_file(out)
    config, streams = _with_full_state(load(overrides)), Streams(seed)
    with closing(_environment(config, episodes)) as env:
        player = uniform(env.single_action_space, env.num_envs, np.random.default_rng(streams.int("dataset/act")))
        recording = play(env, player, episodes, streams.int("dataset/env"), config.settings.evaluation.max_steps)
    return _write(out, recording, config, [_level(recording, policy="random")], seed)


def imported(path: Path, overrides: Sequence[str], out: Path) -> Recording:
    """Check a recording of another program against an environment, and write it with its provenance."""
    require_new_file(out)
    config, recording = _with_full_state(load(overrides)), read(path)
    with closing(make_env(config, 1)) as env:
        for name, size in zip(("observations", "actions"), _sizes(env), strict=True):
            if (width := getattr(recording, name).shape[1]) != size:
                problem = f"{name} of {width} numbers, and env={config.choices['env']} has {size}"
                raise UserError(f"{path}: {problem}; expected a recording of that environment, all of its state")
    level = _level(recording, policy="unknown", file=path.name, sha256=sha256(named(path)))
    return _write(out, recording, config, [level], None)


def _record_run(source: str, episodes: int, seed: int, greedy: bool, trust: bool) -> tuple[Recording, Config]:
    run, which = parse_source(source)
    parts, _ = open_trained(run, which, ["device=cpu"], trust)
    parts.env.close()
    streams, config = Streams(seed), _with_full_state(parts.config)
    with closing(_environment(config, episodes)) as env, one_thread():
        size = _sizes(env)[0]
        seen = parts.env.seen_slots() if hasattr(parts.env, "seen_slots") else [*range(size)]
        generator = None if greedy else streams.torch("act")
        player = agent_player(parts.agent, env, seen, generator, parts.exploration)
        return play(env, player, episodes, streams.int("env"), config.settings.evaluation.max_steps), config


def _with_full_state(config: Config) -> Config:
    """The configuration with observations that are the full state, where what is seen is a part of them.

    A twin (`observe=full` of other games) has more than the state, in an order of its own, so it is left to the user.
    """
    node = config.values["env"]
    if "observe" in node and makes(locate(node["_target_"]), Partial):
        node = node | {"observe": "full"}
    return replace(config, values=config.values | {"env": node})


def _environment(config: Config, episodes: int) -> VectorEnv:
    env = make_env(config, min(episodes, config.values["env"].get("num_envs", 1), EVAL_ENVS))
    _sizes(env)
    return env


def _sizes(env: VectorEnv) -> tuple[int, int]:
    """The sizes D and A of observations and actions. Raises UserError if an environment cannot be recorded."""
    seen, acts = env.single_observation_space, env.single_action_space
    if not isinstance(env, VectorEnv) or not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise UserError(f"observations {seen}: a data set holds rows of numbers; e.g. env=hopper")
    if isinstance(acts, spaces.Discrete):
        return seen.shape[0], 1
    if not isinstance(acts, spaces.Box) or len(acts.shape) != 1 or not acts.is_bounded("both"):
        raise UserError(f"actions {acts}: a data set holds numbers between bounds, or one choice; e.g. env=hopper")
    return seen.shape[0], acts.shape[0]


def _level(recording: Recording, **about: Any) -> dict[str, Any]:
    """A level of the data set: who played it, and how well."""
    returns = recording.returns
    counts = {"episodes": len(returns), "transitions": len(recording.rewards)}
    return about | counts | {"return_mean": float(returns.mean()), "return_std": float(returns.std())}


def _write(
    out: Path, recording: Recording, config: Config, levels: list[dict[str, Any]], seed: int | None
) -> Recording:
    recording.attrs = {
        "env": str(config.choices["env"]),
        "env_config": json.dumps(config.values["env"], sort_keys=True),
        "versions": json.dumps({name: version for name in PACKAGES if (version := installed_version(name))}),
        "levels": json.dumps(levels),
    } | ({} if seed is None else {"seed": seed})
    write(out, recording)
    return recording
