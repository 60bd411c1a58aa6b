"""The keys of config.yaml itself, written as constructors: one validator serves them and the groups."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

Positive = Annotated[int, Gt(0)]

SUPPLIED = {
    "memory": {"input_size"},
    "env": {"seed"},
    "encoder": {"observation_space", "action_space"},
    "algo": set(),
    "batching": set(),
    "logger": {"run_dir", "run"},
}
"""The groups of a run, and the constructor arguments that `rlmem.run.train` supplies, not the configuration."""

GROUPS = ("memory", "env", "encoder", "batching", "algo")
"""The groups of one node, a class with its arguments."""

WRAPPER = "wrapper"
"""The group of several options with a node for each wrapper of the environment, by its name, from the inside out."""

CALLBACKS = "callbacks"
"""The key with a node of each callback, by a name of the user's choice."""


@dataclass(kw_only=True)
class TopLevel:
    """The keys that hold a single value."""

    total_steps: Positive
    seed: Annotated[int, Ge(0), Lt(2**32)]
    device: Literal["cpu", "cuda", "auto"]
    threads: Annotated[int, Gt(0), Le(4096)] | None
    run_dir: str | None
    on_exists: Literal["error", "resume", "new"]
    init_from: str | None
    on_nan: Literal["stop", "skip"]
    compile: Literal["off", "graphs"]
    precision: Literal["float32", "bf16", "tf32"]


@dataclass
class Checkpoint:
    every: Positive | None
    keep: Positive


@dataclass
class Evaluation:
    every: Positive | None
    episodes: Positive
    max_steps: Positive | None
    video_every: Positive | None
    stop_at: float | None


@dataclass
class Trainer:
    devices: Positive


SECTIONS = {"checkpoint": Checkpoint, "evaluation": Evaluation, "trainer": Trainer}


@dataclass(kw_only=True)
class Settings(TopLevel):
    """All values of config.yaml that belong to no group."""

    checkpoint: Checkpoint
    evaluation: Evaluation
    trainer: Trainer
