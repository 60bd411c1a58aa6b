"""`rlmem bench update`: updates per second of SAC on replayed episodes, and where their time goes.

Every memory reads the same replay: episodes of random actions on position_only_pendulum, which all have 200 steps.
Encoder `embeddings`, hidden_size 128 for actor and critic each, everything else as conf/algo/sac.yaml has it. An update
is what the off-policy loop does for one:

    sample      draw a batch from the replay and lay it out in rows
    forward     the loss: the online and the target network read the rows
    backward    its gradients
    optimiser   their norms, Adam, the target network's step

    64 x 64     64 rows of 64 transitions, POMDP-Baselines' batch: segments that overlap such that every row is full
    segment L   1,000 transitions in rows of at most L; with L = 200, whole episodes
    tape        1,000 transitions of whole episodes in one row, Memoroids' batch

Two peers read the segments: POMDP-Baselines' update in plain torch (`rlmem.bench.peers.SeparateGRUs`), beside which all
others are measured, and rlmem's own with `torch.nn.GRU` as its memory. Neither knows starts inside a row, so beside the
tape stands the peer on the longest segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast

import torch
from gymnasium.spaces import Box
from rich.console import Console
from torch import Tensor

from rlmem.acting.collector import Collector
from rlmem.agents.exploration import Exploration
from rlmem.algos.sac import SAC
from rlmem.bench import output, update_report
from rlmem.bench.memory import PEER as TORCH
from rlmem.bench.memory import PEERS, chosen
from rlmem.bench.peers import SeparateGRUs
from rlmem.bench.timing import CPU, Measured, in_turns, reason, wait
from rlmem.bench.train import threads as using_threads
from rlmem.bench.update_report import PARTS, PEER, SQUARE, TAPE, Row
from rlmem.config.compose import Config, load
from rlmem.loops.base import one_thread
from rlmem.replay import Replay
from rlmem.run.assemble import Parts, assemble
from rlmem.run.hardware import choose_device
from rlmem.scan import chosen_engine
from rlmem.types import Batch

MODELS = ("gru", "lstm", "ffm", "lru", "gpt")
TRANSITIONS = 1000
"""Of a tape, and of the segments beside it."""
TURN = 0.25
"""Seconds of a turn at least: an update then finds caches and allocator as updates of its own kind left them."""


@dataclass(frozen=True)
class Setting:
    """What is measured, how often, and where."""

    lengths: tuple[int, ...] = (10, 50, 200)
    hidden_size: int = 128
    transitions: int = 51_200
    num_envs: int = 64
    rounds: int = 5
    budget: float = 20.0
    device: torch.device = CPU

    def config(self, *overrides: str) -> Config:
        shared = ["env=position_only_pendulum", "algo=sac", "encoder=embeddings", f"device={self.device.type}"]
        return load([*shared, f"memory.hidden_size={self.hidden_size}", *overrides])


@dataclass(frozen=True)
class Layout:
    """How a batch lies in rows: overrides of a configuration."""

    name: str
    overrides: tuple[str, ...]


def layouts(name: str, setting: Setting) -> list[Layout]:
    """Those that a model reads; the tape last, beside the longest segments."""
    segment = ("batching=segment", "batching.init_state=zero")
    square = ("batching.rows=64", "batching.length=64", "batching.overlap=30")  # 200 = 64 + 4 (64 - 30)
    size = f"algo.batch_size={TRANSITIONS}"
    rows = [Layout(f"segment {L}", (*segment, f"batching.length={L}", size)) for L in sorted(setting.lengths)]
    tape = [] if name in (PEER, TORCH) else [Layout(TAPE, ("batching=tape", size))]
    return [Layout(SQUARE, (*segment, *square, f"algo.batch_size={64 * 64}")), *rows, *tape]


def main(
    models: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    rounds: int = 5,
    budget: float = 20.0,
    threads: int | None = None,
    device: str = "auto",
    json_path: Path = Path("bench-update.json"),
    plot_path: Path = Path("bench-update.png"),
    transitions: int = Setting.transitions,
    num_envs: int = Setting.num_envs,
) -> dict[str, Any]:
    """Measure, print tables, write the numbers and a plot, and return the numbers.

    models: options of conf/memory; one that raises is reported as such, and the others go on
    lengths: of the segments beside the tape;  transitions, num_envs: of the replay, and what fills it
    """
    output.check(json_path, plot_path)
    names = chosen(models) if models else MODELS
    where = choose_device(device)
    sizes: dict[str, Any] = {"transitions": transitions, "num_envs": num_envs, "rounds": rounds, "budget": budget}
    setting = Setting(tuple(lengths or Setting.lengths), device=where, **sizes)
    with using_threads(threads or torch.get_num_threads()):
        chosen_engine("auto", where)  # compiled before anything is measured, if it never was
        replay = filled(setting)
        result: dict[str, Any] = {
            "setting": asdict(setting) | {"device": str(where)},
            "machine": output.machine(where),
            "models": {},
        }
        for name in output.progress([PEER, TORCH, *names], "updates"):
            result["models"][name] = measure(name, replay, setting)
            output.write(result, json_path)
    update_report.show(result["models"])
    update_report.plot(result["models"], plot_path)
    Console().print(f"wrote {json_path} and {plot_path}")
    return result


def filled(setting: Setting) -> Replay:
    """A replay of whole episodes."""
    parts = assemble(setting.config("memory=mlp", f"env.num_envs={setting.num_envs}"))
    streams, device = parts.streams, setting.device
    collector = Collector(parts.env, parts.agent, streams.int("env"), streams.torch("act", device), device)
    replay = Replay(setting.transitions, setting.num_envs, device)
    with one_thread():
        while replay.transitions < setting.transitions:
            replay.add(collector.collect(100, 2**62, exploration=Exploration(random=True))[0])
    parts.env.close()
    return replay


class Clock:
    """Seconds of each part of every update."""

    def __init__(self, device: torch.device):
        self.device = device
        self.updates: list[dict[str, float]] = []

    def begin(self) -> None:
        self.updates.append(dict.fromkeys(PARTS, 0.0))
        self.now = perf_counter()

    def mark(self, part: str) -> None:
        """What has passed since the last mark went into `part`."""
        wait(self.device)
        before, self.now = self.now, perf_counter()
        self.updates[-1][part] += self.now - before

    def medians(self) -> dict[str, float]:
        return {part: median(update[part] for update in self.updates) for part in PARTS}


@dataclass
class Update:
    """A model's update on batches of one layout: what takes turns.

    learn: an update on a batch; marks the clock;  batch: the size of the last one
    """

    parts: Parts
    replay: Replay
    learn: Callable[[Batch], object]
    clock: Clock
    batch: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generator = self.parts.streams.torch("replay")

    def __call__(self) -> None:
        self.clock.begin()
        sample = self.replay.sample(self.parts.batching, cast(SAC, self.parts.algo).batch_size, self.generator)
        self.clock.mark("sample")
        self.learn(sample.batch)
        sizes = ("rows", "episodes", "transitions", "pad_fraction")
        self.batch = {"slots": sample.batch.shape[1]} | {name: sample.metrics[f"batch/{name}"] for name in sizes}


def update(name: str, layout: Layout, replay: Replay, setting: Setting) -> Update:
    """A model's update, done once: what the first call builds is not measured."""
    memory = f"memory._target_={PEERS[TORCH]}" if name in (PEER, TORCH) else f"memory={name}"
    parts = assemble(setting.config(memory, *layout.overrides, "env.num_envs=1"))
    parts.env.close()
    made = Update(parts, replay, learner(name, parts, clock := Clock(setting.device)), clock)
    made()
    clock.updates.clear()
    return made


def learner(name: str, parts: Parts, clock: Clock) -> Callable[[Batch], object]:
    """The peer's update, or that of rlmem's algorithm; both mark the clock."""
    generator = parts.streams.torch("losses", parts.device)
    if name == PEER:
        spaces = parts.env.single_observation_space, parts.env.single_action_space
        obs_size, action_size = (cast(Box, space).shape[0] for space in spaces)
        peer = SeparateGRUs(obs_size, action_size, parts.agent.trunks.actor.memory.output_size, generator)
        return partial(peer.update, mark=clock.mark)
    algo: Any = parts.algo
    algo.setup(parts.agent, generator)
    loss, step = algo.loss, algo.step

    def forward(batch: Batch) -> Any:
        found = loss(batch)
        clock.mark("forward")
        return found

    def optimise(total: Tensor) -> Any:
        clock.mark("backward")
        found = step(total)
        clock.mark("optimiser")
        return found

    algo.loss, algo.step = forward, optimise
    return algo.update


def measure(name: str, replay: Replay, setting: Setting) -> list[Row]:
    """A row for each layout. On those that it reads, the peer takes turns with the model."""
    mine = layouts(name, setting)
    updates: dict[str, Update] = {}
    notes: dict[str, str] = {}
    for layout in mine:
        for who in ("model", "peer") if layout.name != TAPE else ("model",):
            try:
                updates[f"{who}, {layout.name}"] = update(name if who == "model" else PEER, layout, replay, setting)
            except Exception as error:
                notes[f"{who}, {layout.name}"] = reason(error)
    times = in_turns(dict(updates), setting.rounds, setting.budget, setting.device, at_least=TURN)
    found = []
    for k, layout in enumerate(mine):
        key = f"model, {layout.name}"
        time = times.get(key, Measured(note=notes.get(key, "")))
        peer = times.get(f"peer, {mine[k - 1].name if layout.name == TAPE else layout.name}", Measured())
        row: Row = {"layout": layout.name, "seconds": time.median, "peer_seconds": peer.median}
        row |= {"ratio": ratio(time, peer), "rounds": len(time.seconds), "note": time.note}
        if layout.name == TAPE:
            others = {other.name: times.get(f"model, {other.name}", Measured()) for other in mine[1:k]}
            row["ratio_to_segments"] = {name: ratio(time, other) for name, other in others.items()}
        done = bool(time.seconds)
        row |= {"parts": updates[key].clock.medians() if done else None, "batch": updates[key].batch if done else None}
        found.append(row)
    return found


def ratio(time: Measured, other: Measured) -> float | None:
    """The median over rounds, of which a slow one hits both."""
    pairs = zip(time.seconds, other.seconds, strict=False)
    return median(mine / theirs for mine, theirs in pairs) if time.seconds and other.seconds else None
