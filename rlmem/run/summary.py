"""What a run says of itself before it starts, and how much room it will take."""

from __future__ import annotations

import re
from typing import Any

from torch.utils._pytree import tree_leaves

from rlmem import __version__
from rlmem.config.compose import Config
from rlmem.config.messages import show
from rlmem.run.assemble import Parts, scan_engines, threads_of
from rlmem.run.forecast import replay_bytes
from rlmem.run.sizes import parameters, size


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
    threads = f", {threads_of(config)} threads to learn, 1 to act" if parts.device.type == "cpu" else ""
    devices = values["trainer"]["devices"]
    together = f"{devices} processes, each with {parts.num_envs} of the environments"
    told = algo.describe(parts.plan)
    training = f"{choices['algo']}, {choices['batching']} batching: {values['total_steps']:,} steps"
    data = f"{parts.num_envs * devices} x {choices['env']}{level}: observation {env.single_observation_space}"
    acts = f", action {env.single_action_space}{_evaluated(values['env'])}" if algo.acts else ""
    rows = {
        "memory": f"{choices['memory']}: {parameters(memory):,} parameters, state of {numbers:,} numbers{engine}{each}",
        "agent": f"{parameters(parts.agent):,} parameters on {parts.device}{threads}",
        **({"devices": together} if devices > 1 else {}),
        **({"actors": told["actors"]} if "actors" in told else {}),
        "env": data + acts,
        "training": f"{training} {told['training']}",
        **({"replay": replay} if (replay := _replay(parts, values["total_steps"])) else {}),
        "saving": _checkpoints(config, parts),
        "logging": ", ".join(values["logger"]),
        "output": where,
    }
    lines = [f"  {name:<9} {text}" for name, text in rows.items()]
    return "\n".join([f"rlmem {__version__}, seed {values['seed']}", *lines])


def env_name(config: Config) -> str:
    """What the environment is called in a run's name: by its id, if it has one, such as CartPole-v1."""
    name = config.values["env"].get("id")
    return re.sub(r"[^\w.+-]+", "_", name) if isinstance(name, str) else str(config.choices["env"])


def _evaluated(node: dict[str, Any]) -> str:
    """How evaluation's environment differs."""
    pairs = ", ".join(f"{key}={show(value)}" for key, value in (node.get("evaluation") or {}).items())
    return f"; evaluated with {pairs}" if pairs else ""


def _replay(parts: Parts, total_steps: int) -> str | None:
    """What the replay may come to hold, and in how much memory; None: there is no replay."""
    storage = parts.algo.storage(parts.batching)
    if storage is None or storage.capacity is None:
        return None
    where = f"mapped from {storage.directory}" if storage.directory else "in memory"
    slots, states = replay_bytes(parts.env, parts.agent, storage, total_steps)
    text = f"up to {min(storage.capacity, total_steps):,} transitions, {size(slots)} {where}"
    return text + (
        f", and memory states every {storage.state_every} slots, {size(states)}" if storage.state_every else ""
    )


def checkpoint_bytes(parts: Parts, total_steps: int) -> int:
    """At most, of one checkpoint: weights, two moments of each, a target network if there is one, and the replay."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in parts.agent.parameters())
    replay = replay_bytes(parts.env, parts.agent, parts.algo.storage(parts.batching), total_steps)
    return parts.algo.weight_copies * weights + sum(replay)


def _checkpoints(config: Config, parts: Parts) -> str:
    every, keep = config.values["checkpoint"]["every"], config.values["checkpoint"]["keep"]
    when = "at the end only" if every is None else f"every {every:,} steps and at the end"
    most = checkpoint_bytes(parts, config.values["total_steps"])
    whole = " with the replay" if _replay(parts, config.values["total_steps"]) else ""
    return f"{when}, about {size(most)} each{whole}, the newest {keep} kept"
