"""What a run says of itself before it starts, and how much room it will take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage
from typing import Any, cast

from torch.utils._pytree import tree_leaves

from rlmem import __version__
from rlmem.algos.impala import Impala
from rlmem.algos.off_policy import OffPolicy
from rlmem.algos.on_policy import OnPolicy
from rlmem.algos.ppo import PPO
from rlmem.batching import Segment
from rlmem.config.compose import Config
from rlmem.config.foreign import foreign_problems
from rlmem.config.messages import show
from rlmem.record import rundir
from rlmem.run.assemble import Parts
from rlmem.run.build import scan_engines
from rlmem.run.device import learning_threads
from rlmem.run.forecast import parameters, replay_bytes, size
from rlmem.supervised.base import Supervised


def summary(config: Config, parts: Parts, where: str) -> str:
    """What is about to happen, in one screen."""
    values, choices, algo, env = config.values, config.choices, parts.algo, parts.env
    trunks = parts.agent.trunks
    memory = trunks.critic.memory
    numbers = sum(leaf.numel() * (2 if leaf.is_complex() else 1) for leaf in tree_leaves(memory.initial_state(1)))
    engine = "".join(f", {name}" for name in scan_engines(memory, parts.device))
    each = " each for actor and critic" if trunks.separate else ""
    params = ", ".join(f"{name}={value}" for name, value in (values["env"].get("params") or {}).items())
    level = params or values["env"].get("level") or values["env"].get("id")
    level = f" ({level})" if level else ""
    threads = f", {learning_threads(config.settings)} threads to learn, 1 to act" if parts.device.type == "cpu" else ""
    devices = values["trainer"]["devices"]
    together = f"{devices} processes, each with {parts.num_envs} of the environments"
    learning = _learning(config, parts)
    data = f"{parts.num_envs * devices} x {choices['env']}{level}: observation {env.single_observation_space}"
    acts = "" if isinstance(algo, Supervised) else f", action {env.single_action_space}{_evaluated(values['env'])}"
    rows = {
        "memory": f"{choices['memory']}: {parameters(memory):,} parameters, state of {numbers:,} numbers{engine}{each}",
        "agent": f"{parameters(parts.agent):,} parameters on {parts.device}{threads}",
        **({"devices": together} if devices > 1 else {}),
        **({"actors": _actors(algo)} if isinstance(algo, Impala) and algo.actors else {}),
        "env": data + acts,
        "training": f"{choices['algo']}, {choices['batching']} batching: {values['total_steps']:,} steps {learning}",
        **({"replay": _replay(parts, values["total_steps"])} if isinstance(algo, OffPolicy) else {}),
        "saving": _checkpoints(config, parts),
        "logging": ", ".join(values["logger"]),
        "output": where,
    }
    lines = [f"  {name:<9} {text}" for name, text in rows.items()]
    return "\n".join([f"rlmem {__version__}, seed {values['seed']}", *lines])


def announcements(config: Config, parts: Parts, run_dir: Path) -> Iterator[str]:
    """What a run says before it starts: its summary, and warnings."""
    yield summary(config, parts, str(run_dir))
    number = config.settings.checkpoint.keep + 1  # there is one more while the newest is written
    needed, free = number * checkpoint_bytes(parts, config.settings.total_steps), disk_usage(run_dir).free
    if free <= needed:
        yield f"the disk of {run_dir} has {size(free)} left, and {number} checkpoints may take {size(needed)}"
    if foreign_problems(config.values) and not rundir.is_own_run(run_dir):
        yield "this run is not signed (no key can be read or made): `rlmem resume` will ask for --trust"


def env_name(config: Config) -> str:
    """What the environment is called in a run's name: by its id, if it has one, such as CartPole-v1."""
    name = config.values["env"].get("id")
    return re.sub(r"[^\w.+-]+", "_", name) if isinstance(name, str) else str(config.choices["env"])


def _evaluated(node: dict[str, Any]) -> str:
    """How evaluation's environment differs."""
    pairs = ", ".join(f"{key}={show(value)}" for key, value in (node.get("evaluation") or {}).items())
    return f"; evaluated with {pairs}" if pairs else ""


def _learning(config: Config, parts: Parts) -> str:
    """In how many updates, and from what."""
    if isinstance(parts.algo, Supervised):
        rows, window = parts.algo.batch_size, parts.algo.window_size()
        updates = -(-config.values["total_steps"] // (rows * window))
        return f"in about {updates:,} updates, each on {rows} rows of {window} slots; {parts.algo.outputs} outputs"
    return _off_policy(config, parts) if isinstance(parts.algo, OffPolicy) else _on_policy(config, parts)


def _on_policy(config: Config, parts: Parts) -> str:
    algo, each, total_steps = cast(OnPolicy, parts.algo), parts.num_envs, config.values["total_steps"]
    num_envs = each * config.values["trainer"]["devices"]
    updates = -(-total_steps // (algo.rollout_slots * num_envs))
    text = f"in about {updates:,} updates of {num_envs} x {algo.rollout_slots} slots"
    if not isinstance(algo, PPO):
        return text
    minibatches = min(algo.num_minibatches, each) if config.choices["batching"] == "tape" else algo.num_minibatches
    return f"{text}, {algo.epochs} epochs of {minibatches} minibatches"


def _actors(algo: Impala) -> str:
    processes = f"{algo.actors} processes on Ray" if algo.actors > 1 else "a process on Ray"
    return f"{processes}; rollouts come in any order, so neither this run nor a resumed one can be repeated exactly"


def _off_policy(config: Config, parts: Parts) -> str:
    algo = cast(OffPolicy, parts.algo)
    rate = f"{algo.update_ratio:g} updates per {algo.update_per} after {algo.learning_starts:,}"
    rows = parts.batching.num_rows if isinstance(parts.batching, Segment) else None
    size = f"{rows} segments" if rows else f"{algo.batch_size:,} transitions"
    return f"(the first {algo.random_steps:,} at random), {rate}, {size} each"


def _replay(parts: Parts, total_steps: int) -> str:
    """What the replay may come to hold, and in how much memory."""
    algo = cast(OffPolicy, parts.algo)
    where = f"mapped from {algo.replay_dir}" if algo.replay_dir else "in memory"
    slots, states = _replay_bytes(parts, total_steps)
    text = f"up to {min(algo.capacity, total_steps):,} transitions, {size(slots)} {where}"
    kept = parts.batching.state_slots(replay=True)
    return text + (f", and memory states every {kept.every} slots, {size(states)}" if kept else "")


def _replay_bytes(parts: Parts, total_steps: int) -> tuple[int, int]:
    return replay_bytes(parts.env, parts.agent, parts.algo, parts.batching, total_steps)


def checkpoint_bytes(parts: Parts, total_steps: int) -> int:
    """At most, of one checkpoint: weights, two moments of each, a target network if there is one, and the replay."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in parts.agent.parameters())
    copies = 4 if isinstance(parts.algo, OffPolicy) else 3
    return copies * weights + sum(_replay_bytes(parts, total_steps))


def _checkpoints(config: Config, parts: Parts) -> str:
    every, keep = config.values["checkpoint"]["every"], config.values["checkpoint"]["keep"]
    when = "at the end only" if every is None else f"every {every:,} steps and at the end"
    most = checkpoint_bytes(parts, config.values["total_steps"])
    whole = " with the replay" if isinstance(parts.algo, OffPolicy) else ""
    return f"{when}, about {size(most)} each{whole}, the newest {keep} kept"
