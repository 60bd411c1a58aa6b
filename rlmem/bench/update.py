"""`rlmem bench update`: updates per second of SAC on replayed episodes, and where their time goes.

Every memory reads the same replay: episodes of random actions on position_only_pendulum, which all have 200 steps.
The encoder is `embeddings` and the hidden_size 128, for actor and critic each; everything else is as in
conf/algo/sac.yaml. An update is what the off-policy loop does for one:

    sample      draw a batch from the replay and lay it out in rows
    forward     the loss: the online and the target network read the rows
    backward    its gradients
    optimiser   their norms, Adam, the target network's step

    64 x 64     64 rows of 64 transitions, POMDP-Baselines' batch: segments that overlap such that every row is full
    segment L   1,000 transitions in rows of at most L; with L = 200, whole episodes
    tape        1,000 transitions of whole episodes in one row, Memoroids' batch

Two peers read the segments: POMDP-Baselines' update in plain torch (`rlmem.bench.peers.SeparateGRUs`), beside which all
others are measured, and rlmem's own with `torch.nn.GRU` as its memory. Neither handles starts inside a row, so the tape
is compared with the peer on the longest segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, cast

from gymnasium.spaces import Box

from rlmem.acting.collector import Collector
from rlmem.agents.base import Exploration
from rlmem.algos.sac import SAC
from rlmem.bench.memory import PEER as TORCH
from rlmem.bench.memory import PEERS, check_memories
from rlmem.bench.peers import SeparateGRUs
from rlmem.bench.show import Column, Table
from rlmem.bench.skeleton import Bench, Result, progress
from rlmem.bench.timing import Times, wait
from rlmem.config.compose import Config, load
from rlmem.errors import one_line
from rlmem.loops.base import one_thread
from rlmem.replay import Replay
from rlmem.run.assemble import Parts, assemble
from rlmem.scan import chosen_engine
from rlmem.types import Batch

MODELS = ("gru", "lstm", "ffm", "lru", "gpt")
LENGTHS = (10, 50, 200)
TRANSITIONS = 1000
"""The acted slots of a tape, and of the segments beside it."""
TURN = 0.25
"""The least seconds of a turn, so that updates find caches and allocator as updates of their own kind left them."""
PEER = "POMDP-Baselines"
PARTS = ("sample", "forward", "backward", "optimiser")
SQUARE, TAPE = "64 x 64", "tape"

Row = dict[str, Any]
"""The numbers of a model on batches of one layout."""


@dataclass
class UpdateBench(Bench):
    """The update of each model on batches of each layout.

    models: options of conf/memory, MODELS by default. A model that raises is reported, and the others are measured.
    lengths: lengths of the segments beside the tape, LENGTHS by default.
    hidden_size: features that a memory writes.
    transitions: the transitions in the replay.
    num_envs: the environments that fill it.
    """

    name = "update"
    models: Sequence[str] | None = None
    lengths: Sequence[int] = ()
    hidden_size: int = 128
    transitions: int = 51_200
    num_envs: int = 64

    def __post_init__(self) -> None:
        self.lengths = tuple(self.lengths or LENGTHS)

    def prepare(self) -> None:
        check_memories(self.models)

    def measure(self) -> Iterator[Result]:
        chosen_engine("auto", self.device)  # compiles the kernels, if need be, before anything is measured
        yield {"models": {}}
        replay = self.filled_replay()
        for name in progress([PEER, TORCH, *(self.models or MODELS)], "updates"):
            yield {"models": {name: self.model(name, replay)}}

    def config(self, *overrides: str) -> Config:
        shared = ["env=position_only_pendulum", "algo=sac", "encoder=embeddings", f"device={self.device.type}"]
        return load([*shared, f"memory.hidden_size={self.hidden_size}", *overrides])

    def layouts(self, name: str) -> dict[str, tuple[str, ...]]:
        """Layouts that a model reads, with their overrides; the tape last, beside the longest segments."""
        segment = ("batching=segment", "batching.init_state=zero")
        square = ("batching.rows=64", "batching.length=64", "batching.overlap=30")  # 200 = 64 + 4 (64 - 30)
        size = f"algo.batch_size={TRANSITIONS}"
        layouts: dict[str, tuple[str, ...]] = {SQUARE: (*segment, *square, f"algo.batch_size={64 * 64}")}
        layouts |= {f"segment {L}": (*segment, f"batching.length={L}", size) for L in sorted(self.lengths)}
        return layouts if name in (PEER, TORCH) else layouts | {TAPE: ("batching=tape", size)}

    def filled_replay(self) -> Replay:
        parts = assemble(self.config("memory=mlp", f"env.num_envs={self.num_envs}"))
        streams, device = parts.streams, self.device
        collector = Collector(parts.env, parts.agent, streams.int("env"), streams.torch("act", device), device)
        replay = Replay(self.transitions, self.num_envs, device)
        with one_thread():
            while replay.transitions < self.transitions:
                replay.add(collector.collect(100, 2**62, exploration=Exploration(random=True))[0])
        parts.env.close()
        return replay

    def update(self, name: str, overrides: Sequence[str], replay: Replay) -> Update:
        """The update of a model or of the peer, after one call, so that what a first call builds is not measured."""
        memory = f"memory._target_={PEERS[TORCH]}" if name in (PEER, TORCH) else f"memory={name}"
        parts = assemble(self.config(memory, *overrides, "env.num_envs=1"))
        parts.env.close()
        made, generator = Update(parts, replay), parts.streams.torch("losses", parts.device)
        if name == PEER:
            spaces = parts.env.single_observation_space, parts.env.single_action_space
            obs_size, action_size = (cast(Box, space).shape[0] for space in spaces)
            peer = SeparateGRUs(obs_size, action_size, parts.agent.trunks.actor.memory.output_size, generator)
            made.learn = partial(peer.update, mark=made.mark)
        else:
            algo: Any = parts.algo
            algo.setup(parts.agent, generator)
            algo.loss, algo.step = made.marking(algo.loss, "forward"), made.marking(algo.step, "optimiser", "backward")
            made.learn = algo.update
        made()
        made.seconds.clear()
        return made

    def model(self, name: str, replay: Replay) -> list[Row]:
        """A row for each layout. The peer takes turns with the model on the layouts that it can read."""
        layouts = self.layouts(name)
        updates: dict[str, Update] = {}
        notes: dict[str, str] = {}
        for layout, overrides in layouts.items():
            for who, option in (("model", name), ("peer", PEER))[: 1 if layout == TAPE else 2]:
                try:
                    updates[f"{who}, {layout}"] = self.update(option, overrides, replay)
                except Exception as error:
                    notes[f"{who}, {layout}"] = one_line(error)
        times = self.turns(dict(updates), at_least=TURN)
        mine = {
            layout: times.get(f"model, {layout}", Times(note=notes.get(f"model, {layout}", ""))) for layout in layouts
        }
        segments = [layout for layout in layouts if layout not in (SQUARE, TAPE)]
        found = []
        for layout, time in mine.items():
            peer = times.get(f"peer, {segments[-1] if layout == TAPE else layout}", Times())
            row: Row = {"layout": layout, "seconds": time.median, "peer_seconds": peer.median}
            row |= {"ratio": ratio_by_round(time, peer), "rounds": len(time.seconds), "note": time.note}
            if layout == TAPE:
                row["ratio_to_segments"] = {other: ratio_by_round(time, mine[other]) for other in segments}
            done = updates[f"model, {layout}"] if time.seconds else None
            row |= {"parts": done and done.medians(), "batch": done and done.batch}
            found.append(row)
        return found

    def tables(self, result: Result) -> Iterator[Table]:
        """A table for each layout, with the parts' shares of the time; then the tape beside the segments."""
        shares = [Column(part, "% of the time") for part in PARTS]
        columns = [Column("ms", "ms"), Column("/ s"), *shares, Column("ratio", f"time / {PEER}'s")]
        by_layout: dict[str, dict[str, Row]] = {}
        for name, models in result["models"].items():
            for row in models:
                by_layout.setdefault(row["layout"], {})[name] = row
        for layout, found in by_layout.items():
            done = {name: row for name, row in found.items() if row["seconds"]}
            rows = []
            for name, row in done.items():
                parts = [100 * row["parts"][part] / sum(row["parts"].values()) for part in PARTS]
                rows.append((name, 1e3 * row["seconds"], 1 / row["seconds"], *parts, row["ratio"]))
            if done:
                sizes = next(iter(done.values()))["batch"]
                size = f"{sizes['rows']} x {sizes['slots']} slots, {sizes['transitions']:,} transitions"
                yield Table(f"{layout}: {size}; ratio to {PEER}", ("memory", *columns), rows)
        tapes = [(name, *row["ratio_to_segments"].values()) for name, row in by_layout.get(TAPE, {}).items()]
        segments = [Column(layout, "tape / segment") for layout in by_layout if layout not in (SQUARE, TAPE)]
        yield Table("time on the tape / on segments", ("memory", *segments), tapes)

    def notes(self, result: Result) -> list[str]:
        models = result["models"].items()
        return [f"{name}, {row['layout']}: {row['note']}" for name, rows in models for row in rows if row["note"]]


@dataclass
class Update:
    """A model's update on batches of one layout, and the seconds of its parts. A call is one update.

    parts: the assembled run, with the agent.
    replay: the source of batches.
    batch: the size of the last batch.
    seconds: part of an update -> seconds, for each update.
    """

    parts: Parts
    replay: Replay
    learn: Callable[[Batch], object] = field(init=False)
    batch: dict[str, float] = field(default_factory=dict)
    seconds: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generator = self.parts.streams.torch("replay")

    def __call__(self) -> None:
        self.seconds.append(dict.fromkeys(PARTS, 0.0))
        self.now = perf_counter()
        sample = self.replay.sample(self.parts.batching, cast(SAC, self.parts.algo).batch_size, self.generator)
        self.mark("sample")
        self.learn(sample.batch)
        sizes = ("rows", "episodes", "transitions", "pad_fraction")
        self.batch = {"slots": sample.batch.shape[1]} | {name: sample.metrics[f"batch/{name}"] for name in sizes}

    def mark(self, part: str) -> None:
        """Add the time since the last mark to a part."""
        wait(self.parts.device)
        before, self.now = self.now, perf_counter()
        self.seconds[-1][part] += self.now - before

    def marking(self, function: Callable[[Any], Any], after: str, before: str | None = None) -> Callable[[Any], Any]:
        """The function, with marks when it has ended and, if `before` names a part, when it begins."""

        def marked(argument: Any) -> Any:
            if before is not None:
                self.mark(before)
            found = function(argument)
            self.mark(after)
            return found

        return marked

    def medians(self) -> dict[str, float]:
        """The median over the updates, for each part."""
        return {part: median(update[part] for update in self.seconds) for part in PARTS}


def ratio_by_round(time: Times, other: Times) -> float | None:
    """The median over rounds of the ratio, since a slow round hits both."""
    pairs = zip(time.seconds, other.seconds, strict=False)
    return median(mine / theirs for mine, theirs in pairs) if time.seconds and other.seconds else None
