"""The formats of run directories and checkpoints: which of them this version reads, and how older ones are migrated.

run.json and every checkpoint have the number of the format that they were written in. What lacks it is of format 0.

    0  rlmem 0.1.0, once its config.yaml had `trainer`; development versions of 0.2.0
    1  rlmem 0.2.0

A change after which rlmem could not read what the last release wrote, or would read it as something else, takes three
things: `FORMAT` grows by one, `MIGRATIONS` gets a function, and `tests/data/formats` gets runs of the format before.
Configurations and checkpoints are migrated as they are read. Files change only when the run is resumed.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from rlmem import __version__
from rlmem.config.messages import sentence
from rlmem.config.overrides import leaf_paths
from rlmem.config.targets import current
from rlmem.errors import UserError

FORMAT = 1
"""The format in which this version writes."""

UNREADABLE = -1
"""The format of runs that are older than any number."""

HOME = "https://github.com/rlmem/rlmem"

Data = dict[str, Any]
Kind = Literal["config", "checkpoint"]
"""What a migration is given: the values of config.yaml, or the contents of a checkpoint."""


class OtherFormat(UserError):
    """A run or a checkpoint in a format that this version cannot read."""


def is_number(value: object) -> bool:
    """Whether `value` may be the number of a format."""
    return type(value) is int and 0 <= value < 1000


def format_of_run(config: Mapping[str, Any], about: Mapping[str, Any]) -> int:
    """The format of a run by its config.yaml and run.json."""
    return about.get("format", 0 if "trainer" in config else UNREADABLE)


def migrated(kind: Kind, data: Data, number: int) -> Data:
    """What was read in format `number`, as this version would have written it; what it cannot read as it is."""
    if number < 0:
        return data
    for migration in MIGRATIONS[number:]:
        data = migration(kind, data)
    return data


def require_readable(number: int, where: object, written: Mapping[str, Any]) -> None:
    """Raise OtherFormat, which says what can read it, unless this version reads format `number`.

    where: a run directory or a checkpoint
    written: the version and the commit that wrote it, `rlmem` and `git`, as far as they are known; it may be anybody's
    """
    if 0 <= number <= FORMAT:
        return
    version, commit = str(written.get("rlmem")), re.match(r"[0-9a-f]{40}", str(written.get("git")))
    by = f"rlmem {version}" if re.fullmatch(r"\d[\w.+]{,30}", version) else "another version of rlmem"
    if number > FORMAT:
        what = f"was written by {by} in format {number}; rlmem {__version__} reads formats up to {FORMAT}"
        example = f"pip install git+{HOME}{f'@{commit[0]}' if commit else ''}"
    else:
        what = f"was written by an early {by}, which can read it; its cards and its agents were other ones"
        example = f"pip install git+{HOME}@{commit[0]}" if commit else f"a clone of {HOME} at the commit that wrote it"
    raise OtherFormat(sentence(str(where), what, example=example))


HEADS = {"activation": "leaky_relu", "head_init": "small_output"}
VIEW = {"observe": "partial", "privileged": False}
CRITIC = {"critic_observation": None, "critic_memory": None}
ADDED: dict[str, Data] = {
    "rlmem.algos.ppo.PPO": HEADS | CRITIC | {"reward_scale": 1.0, "ld_weight": 0.0, "ld_lambda": 0.5},
    "rlmem.algos.impala.Impala": HEADS | CRITIC,
    "rlmem.algos.dqn.DQN": HEADS | {"value_rescaling": False},
    "rlmem.algos.sac.SAC": HEADS | CRITIC,
    "rlmem.algos.sac.SACD": HEADS | CRITIC | {"twins": "min"},
    "rlmem.algos.td3.TD3": HEADS | CRITIC,
    "rlmem.batching.Segment": {"running": False},
    "rlmem_envs.vector.make": {"action_masks": False},
    "rlmem_envs.popgym.make": VIEW,
    "rlmem_envs.mazes.tmaze.TMaze": VIEW,
    "rlmem_envs.languages.regular.RegularLanguage": {"answer": "end"} | VIEW,
    "rlmem_envs.lprnn.cued_catch.CuedCatch": VIEW,
    "rlmem_envs.lprnn.sequence_recall.SequenceRecall": VIEW,
    "rlmem_envs.lprnn.teleporter_tmaze.TeleporterTMaze": VIEW,
    "rlmem_envs.pixels.visual_match.VisualMatch": VIEW,
    "rlmem_envs.pixels.key_to_door.KeyToDoor": VIEW,
    "rlmem_envs.navigation.wind.Wind": VIEW,
    "rlmem_envs.navigation.point_robot.PointRobot": VIEW,
    "rlmem_envs.diagnostics.two_step_cue.TwoStepCue": VIEW,
    "rlmem_envs.diagnostics.memory_chain.MemoryChain": VIEW,
    "rlmem_envs.pomdp.tables.POMDP": VIEW,
    "rlmem_envs.occlusion.cartpole.CartPole": {"privileged": False},
    "rlmem_envs.occlusion.pendulum.Pendulum": {"privileged": False},
    "rlmem_envs.occlusion.robots.make": {"privileged": False},
    "rlmem.memory.ffm.FFM": {"init": "published"},
    "rlmem.memory.mingru.MinGRU": {"candidate": "linear"},
    "rlmem.memory.stack.Stack": {"gate": False, "feed_forward": 0, "conv_size": 0, "second_layer": None},
    "rlmem.memory.gru.GRU": {"init": "torch"},
    "rlmem.memory.elman.Elman": {"init": "torch"},
    "rlmem.memory.lstm.LSTM": {"init": "torch", "forget_bias": None},
}
"""Class -> the arguments that it had not in format 0, with the values that do what it did."""


def from_0_to_1(kind: Kind, data: Data) -> Data:
    """Keys with the values that do what rlmem did before it had them; loggers are in `rlmem.record`."""
    if kind == "config":
        if isinstance(evaluation := data.get("evaluation"), dict):
            data = data | {"evaluation": _with(evaluation, max_steps=100_000, video_every=None, stop_at=None)}
        return _with(_completed(data), compile="off", precision="float32", callbacks={})
    experiment = _with(_completed(_nested(data["experiment"])), precision="float32")
    data = data | {"experiment": dict(leaf_paths(experiment))}
    whole = "record" in data  # else it is best.pt, the agent alone
    return _with(data, evaluated=0, notices={"said": [], "saturated": 0}) if whole else data


def _completed(node: Any) -> Any:
    """A node of a configuration and all below it, with the keys that format 0 lacked."""
    if not isinstance(node, dict):
        return node
    node = {key: _completed(value) for key, value in node.items()}
    target = node.get("_target_")
    if not isinstance(target, str):
        return node
    node["_target_"] = current(target)
    return _with(node, **ADDED.get(node["_target_"], {}))


def _with(data: Data, **missing: Any) -> Data:
    """`data` and those of the keys that it lacks."""
    return data | {key: value for key, value in missing.items() if key not in data}


def _nested(flat: Mapping[str, Any]) -> Data:
    """The tree of which `leaf_paths` gives `flat`."""
    tree: Data = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return tree


MIGRATIONS: tuple[Callable[[Kind, Data], Data], ...] = (from_0_to_1,)
"""From each format to the next, over plain data.

A migration names no code but rlmem's own, since a received run may choose it, and changes nothing of what it has
migrated before: a kill may leave a new config.yaml beside the run.json of before.
"""
