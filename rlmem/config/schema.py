"""The keys of config.yaml itself, written as constructors: one validator serves them and the groups."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

Positive = Annotated[int, Gt(0)]


@dataclass(frozen=True)
class Nodes:
    """What is known of a group's classes before any is imported.

    kinds: dotted names of the classes, from one of which they derive
    packages: where those lie that another user may name
    supplied: the constructor arguments that `rlmem.run` supplies, not the configuration
    """

    kinds: tuple[str, ...]
    packages: tuple[str, ...] = ()
    supplied: tuple[str, ...] = ()


WRAPPER = "wrapper"
"""The group of several options with a node for each wrapper of the environment, by its name, from the inside out."""

CALLBACKS = "callbacks"
"""The key with a node of each callback, by a name of the user's choice."""

VECTOR = "gymnasium.vector.VectorEnv"

NODES = {
    "memory": Nodes(("rlmem.memory.base.Memory",), ("rlmem.memory",), ("input_size",)),
    "env": Nodes((VECTOR, "rlmem.algos.supervised.classify.Labelled"), ("rlmem_envs",), ("seed",)),
    "encoder": Nodes(("rlmem.agents.encoder.InputEncoder",), ("rlmem.agents",), ("observation_space", "action_space")),
    "algo": Nodes(("rlmem.algos.base.Learner",), ("rlmem.algos",)),
    "batching": Nodes(("rlmem.batching.base.Batching",), ("rlmem.batching",)),
    "logger": Nodes(("rlmem.record.recorder.Logger",), ("rlmem.record.loggers",), ("run_dir", "run")),
    WRAPPER: Nodes((VECTOR,), ("rlmem_envs.wrappers",), ("env",)),
    CALLBACKS: Nodes(("rlmem.loops.parts.Callback",)),
}
"""The groups whose values are classes with their arguments: one node, or a mapping from names to nodes."""

GROUPS = ("memory", "env", "encoder", "batching", "algo")
"""The groups of one node, a class with its arguments."""


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
    own_episodes: bool = False  # stored runs may lack it


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
