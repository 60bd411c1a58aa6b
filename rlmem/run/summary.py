"""What a run says about itself before it starts."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from shutil import disk_usage
from typing import Any

from rich.filesize import decimal as size

from rlmem import __version__
from rlmem.config.compose import Config
from rlmem.config.foreign import foreign_problems
from rlmem.config.messages import to_text
from rlmem.config.overrides import leaf_paths
from rlmem.config.rules import FEWEST_UPDATES
from rlmem.config.schema import WRAPPER
from rlmem.memory.base import Memory
from rlmem.record import rundir
from rlmem.run.assemble import SEVERAL_PARTS, Parts, learning_threads
from rlmem.run.forecast import checkpoint_bytes, numbers, parameters, replay_bytes
from rlmem.run.nodes import make_evaluation_env, scan_engines


def announcements(parts: Parts, run_dir: Path) -> Iterator[str]:
    """The summary of a run that starts, and warnings about its directory."""
    yield summary(parts, str(run_dir))
    updates = parts.outline.updates
    if updates is not None and updates < FEWEST_UPDATES:
        yield f"this run makes about {updates:.0f} updates, with which it can learn little; e.g. a larger total_steps"
    yield from parts.outline.notes
    number = parts.config.settings.checkpoint.keep + 1  # there is one more while the newest is written
    needed = number * checkpoint_bytes(parts.plan, parts.agent, parts.algo, parts.outline.storage)
    free = disk_usage(run_dir).free
    if free <= needed:
        yield f"the disk of {run_dir} has {size(free)} left, and {number} checkpoints may take {size(needed)}"
    if foreign_problems(parts.config.values) and not rundir.is_own_run(run_dir):
        yield "this run is not signed (no key can be read or made): `rlmem resume` will ask for --trust"


def summary(parts: Parts, where: str) -> str:
    """What a run is about to do, on one screen; `where` is the place of its output."""
    config, settings = parts.config, parts.config.settings
    choices, devices = config.choices, settings.trainer.devices
    outline, replay, checkpoint = parts.outline, _replay(parts), settings.checkpoint
    threads = f", {learning_threads(settings)} threads to learn, 1 to act" if parts.device.type == "cpu" else ""
    by = "" if settings.precision == "float32" else f", products in {settings.precision}"
    training = f"{choices['algo']}, {choices['batching']} batching: {settings.total_steps:,} steps"
    when = "at the end only" if checkpoint.every is None else f"every {checkpoint.every:,} steps and at the end"
    most = checkpoint_bytes(parts.plan, parts.agent, parts.algo, outline.storage)
    wrappers = ", ".join(config.values.get(WRAPPER, {}))
    env = f"{choices['env']}{f' in {wrappers}' if wrappers else ''}{_env(config.values['env'], parts)}"
    rows = {
        "memory": f"{choices['memory']}: {_memory(parts)}",
        "agent": f"{parameters(parts.agent):,} parameters on {parts.device}{threads}{by}",
        "devices": f"{devices} processes, each with {parts.num_envs} of the environments" if devices > 1 else None,
        "actors": outline.actors,
        "env": f"{parts.num_envs * devices} x {env}",
        **_what_is_read(parts),
        "recall": _recall(parts),
        "training": f"{training} {outline.training}",
        "replay": replay,
        "saving": f"{when}, about {size(most)} each{' with the replay' if replay else ''}, "
        f"the newest {checkpoint.keep} kept",
        "fitted": _fitted(config),
        "logging": ", ".join(config.values["logger"]),
        "output": where,
    }
    lines = [f"  {name:<9} {text}" for name, text in rows.items() if text is not None]
    return "\n".join([f"rlmem {__version__}, seed {settings.seed}", *lines])


def _fitted(config: Config) -> str | None:
    """The defaults that follow from the algorithm, the task and the budget; None: there are none."""
    known = dict(leaf_paths(config.values))
    fitted = " ".join(f"{path}={to_text(known[path])}" for path in config.ruled if path in known)
    facts = [f"{fitted} (`rlmem config` says why)"] if fitted else []
    if SEVERAL_PARTS in config.ruled.values():
        facts.append(f"encoder={config.choices['encoder']} ({SEVERAL_PARTS})")
    return ", ".join(facts) or None


def _memory(parts: Parts) -> str:
    """Sizes and scan engines of the memory, or of two that differ."""
    trunks, other = parts.agent.trunks, parts.config.values["algo"].get("critic_memory")
    of_critic = _sizes(trunks.critic.memory, parts)
    if other is None:
        return of_critic + (" each for actor and critic" if trunks.separate else "")
    return f"{_sizes(trunks.actor.memory, parts)}; of the critic {other}: {of_critic}"


def _recall(parts: Parts) -> str | None:
    """How far back the environment asks to remember, in training or evaluation, beside what a row holds.

    None: nobody has told, or nothing need be recalled.
    """
    config = parts.config
    told = None if config.values.get(WRAPPER) else _horizons(parts.env)
    if told is not None and config.values["env"].get("evaluation"):
        with closing(make_evaluation_env(config, 1)) as other:
            there = _horizons(other)
        told = there and (min(told[0], there[0]), max(told[1], there[1]))
    if told is None or told[1] == 0:
        return None
    held, (least, most) = parts.outline.reach, told
    row = "whole episodes" if held is None else f"{held:,}"
    if held is None or most < held:
        return f"every recall lies within {most:,} slots, and a row holds {row}: short-term memory is enough"
    where = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    return f"recalls lie {where} slots back, and a row holds {row}"


def _horizons(env: Any) -> tuple[int, int] | None:
    """The correlation horizons that an environment tells."""
    told = getattr(getattr(env, "unwrapped", env), "horizons", None)
    return told() if callable(told) else None


def _what_is_read(parts: Parts) -> dict[str, str | None]:
    """The leaves that actor and critic read, where they differ, and how they read observations of several dimensions.

    None: nothing is to be said.
    """
    actor, critic = parts.agent.trunks.actor, parts.agent.trunks.critic
    read, same = (actor.encoder.reading, critic.encoder.reading), actor.leaves == critic.leaves
    leaves = None if same else f"actor reads {', '.join(actor.leaves)}; critic reads {', '.join(critic.leaves)}"
    return {"leaves": leaves, "reads": read[0] if read[0] == read[1] else f"actor {read[0]}; critic {read[1]}"}


def _sizes(memory: Memory, parts: Parts) -> str:
    sizes = f"{parameters(memory):,} parameters", f"state of {numbers(memory.initial_state(1)):,} numbers"
    return ", ".join([*sizes, *scan_engines(memory, parts.device)])


def _env(node: Mapping[str, Any], parts: Parts) -> str:
    """The level of the environment, its spaces, and the keys that evaluation changes."""
    params = ", ".join(f"{key}={value}" for key, value in (node.get("params") or {}).items())
    level = params or node.get("level") or node.get("id")
    spaces = f"observation {parts.env.single_observation_space}"
    if parts.algo.acts:
        changed = ", ".join(f"{key}={to_text(value)}" for key, value in (node.get("evaluation") or {}).items())
        spaces += f", action {parts.env.single_action_space}" + (f"; evaluated with {changed}" if changed else "")
    return f"{f' ({level})' if level else ''}: {spaces}"


def _replay(parts: Parts) -> str | None:
    """What the replay may come to hold, and in how much memory; None: there is no replay."""
    storage, total_steps = parts.outline.storage, parts.plan.total_steps
    if storage is None or storage.capacity is None:
        return None
    where = f"mapped from {storage.directory}" if storage.directory else "in memory"
    slots, states = replay_bytes(parts.plan, parts.agent, storage)
    states_text = f", and memory states every {storage.state_every} slots, {size(states)}" if states else ""
    return f"up to {min(storage.capacity, total_steps):,} transitions, {size(slots)} {where}{states_text}"
