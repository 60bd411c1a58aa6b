"""Updates per second of SAC on replayed episodes, and where their time goes."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import median
from time import perf_counter
from typing import Any, cast

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import Exploration
from rlmem.bench.figure3 import PEER as TORCH
from rlmem.bench.figure3 import PEERS
from rlmem.bench.skeleton import Bench, Numbers, Table, check_names, progress
from rlmem.bench.timing import Times, wait
from rlmem.config.catalog import catalog
from rlmem.config.compose import Config, load
from rlmem.errors import one_line
from rlmem.loops.base import one_thread
from rlmem.replay import Replay
from rlmem.run.assemble import Parts, assemble
from rlmem.scan import chosen_engine
from rlmem.types import Batch

MODELS = ("gru", "lstm", "ffm", "lru", "gpt")
TRANSITIONS = 1000  # the acted slots of a tape, and of the segments beside it
TURN = 0.25
"""The least seconds of a turn, so that updates find caches and allocator as updates of their own kind left them."""
PEER = "POMDP-Baselines"
PARTS = ("sample", "forward", "backward", "optimiser")
SQUARE, TAPE = "64 x 64", "tape"
HEAD_SIZES = (128, 128)
TEMPERATURE, GAMMA, TAU = 0.1, 0.99, 0.005


class Update:
    """An agent's update, or the peer's in its place, on batches of one layout, and the seconds of its parts."""

    def __init__(self, parts: Parts, replay: Replay, peer: bool):
        parts.env.close()
        self.parts, self.replay, self.generator = parts, replay, parts.streams.torch("replay")
        self.algo = cast(Any, parts.algo)
        self.batch: dict[str, float] = {}
        self.seconds: list[dict[str, float]] = []
        losses = parts.streams.torch("losses", parts.device)
        self.learn: Callable[[Batch], object] = self.algo.update
        if peer:
            spaces = parts.env.single_observation_space, parts.env.single_action_space
            obs_size, action_size = (cast(Box, space).shape[0] for space in spaces)
            gru = SeparateGRUs(obs_size, action_size, parts.agent.trunks.actor.memory.output_size, losses)
            self.learn = lambda batch: gru.update(batch, self.mark)
        else:
            self.algo.setup(parts.agent, losses)
            self.algo.loss = self.marking("sample", self.algo.loss, "forward")
            self.algo.step = self.marking("backward", self.algo.step, "optimiser")
        self()  # what a first call builds is not measured
        self.seconds.clear()

    def __call__(self) -> None:
        self.seconds.append(dict.fromkeys(PARTS, 0.0))
        self.now = perf_counter()
        sample = self.replay.sample(self.parts.batching, self.algo.batch_size, self.generator)
        self.mark("sample")
        self.learn(sample.batch)
        sizes = ("rows", "episodes", "transitions", "pad_fraction")
        self.batch = {"slots": sample.batch.shape[1]} | {name: sample.metrics[f"batch/{name}"] for name in sizes}

    def mark(self, part: str) -> None:
        """Add the time since the last mark to a part."""
        wait(self.parts.device)
        before, self.now = self.now, perf_counter()
        self.seconds[-1][part] += self.now - before

    def marking(self, before: str, function: Callable[[Any], Any], after: str) -> Callable[[Any], Any]:
        """The function, with a mark when it begins and one when it has ended."""

        def marked(argument: Any) -> Any:
            self.mark(before)
            found = function(argument)
            self.mark(after)
            return found

        return marked


@dataclass
class UpdateBench(Bench):
    """The update of each model on batches of each layout, from a replay that `num_envs` environments fill.

    models: options of conf/memory, MODELS by default; one that raises is reported, and the others are measured
    lengths: lengths of the segments beside the tape
    """

    name = "update"
    models: Sequence[str] | None = None
    lengths: Sequence[int] = (10, 50, 200)
    hidden_size: int = 128
    transitions: int = 51_200
    num_envs: int = 64

    def measure(self, result: Numbers) -> Iterator[None]:
        check_names("", "memory", self.models or (), catalog()["memory"])
        chosen_engine("auto", self.device)  # compiles the kernels, if need be, before anything is measured
        result["models"] = {}
        replay = self.filled_replay()
        for name in progress([PEER, TORCH, *(self.models or MODELS)], "updates"):
            result["models"][name] = self.model(name, replay)
            yield

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

    def model(self, name: str, replay: Replay) -> list[Numbers]:
        """A row for each layout. The peer takes turns with the model on the layouts that it can read."""
        layouts = self.layouts(name)
        updates: dict[str, Update] = {}
        times: dict[str, Times] = {}
        for layout, overrides in layouts.items():
            contestants = {layout: name} if layout == TAPE else {layout: name, f"peer, {layout}": PEER}
            for contestant, option in contestants.items():
                memory = f"memory._target_={PEERS[TORCH]}" if option in (PEER, TORCH) else f"memory={option}"
                try:
                    run = assemble(self.config(memory, *overrides, "env.num_envs=1"))
                    updates[contestant] = Update(run, replay, peer=option == PEER)
                except Exception as error:
                    times[contestant] = Times(note=one_line(error))
        times |= self.turns(dict(updates), at_least=TURN)
        segments = [layout for layout in layouts if layout not in (SQUARE, TAPE)]
        found = []
        for layout in layouts:
            time, peer = times[layout], times[f"peer, {segments[-1] if layout == TAPE else layout}"]
            row: Numbers = {"layout": layout, "seconds": time.median, "peer_seconds": peer.median}
            row |= {"ratio": time.ratio(peer), "rounds": len(time.seconds), "note": time.note}
            if layout == TAPE:
                row["ratio_to_segments"] = {other: time.ratio(times[other]) for other in segments}
            done = updates[layout] if time.seconds else None
            parts = done and {part: median(update[part] for update in done.seconds) for part in PARTS}
            found.append(row | {"parts": parts, "batch": done and done.batch})
        return found

    def tables(self, result: Numbers) -> Iterator[Table]:
        """A table for each layout, with the parts' shares of the time; then the tape beside the segments."""
        columns = {"ms": "ms", "/ s": "", **dict.fromkeys(PARTS, "% of the time"), "ratio": f"time / {PEER}'s"}
        found = [(name, row) for name, rows in result["models"].items() for row in rows]
        layouts = dict.fromkeys(row["layout"] for _, row in found)
        for layout in layouts:
            rows, size = [], ""
            for name, row in found:
                if row["layout"] == layout and row["seconds"]:
                    shares = [100 * row["parts"][part] / sum(row["parts"].values()) for part in PARTS]
                    rows.append((name, 1e3 * row["seconds"], 1 / row["seconds"], *shares, row["ratio"]))
                    size = "{rows} x {slots} slots, {transitions:,} transitions".format_map(row["batch"])
            if rows:
                yield Table(f"{layout}: {size}; ratio to {PEER}", ["memory"], columns, rows)
        tapes = [(name, *row["ratio_to_segments"].values()) for name, row in found if row["layout"] == TAPE]
        segments = {layout: "tape / segment" for layout in layouts if layout not in (SQUARE, TAPE)}
        yield Table("time on the tape / on segments", ["memory"], segments, tapes)

    def notes(self, result: Numbers) -> list[str]:
        models = result["models"].items()
        return [f"{name}, {row['layout']}: {row['note']}" for name, rows in models for row in rows if row["note"]]


class SeparateGRUs:
    """SAC over two `torch.nn.GRU` as POMDP-Baselines updates them (Ni et al. 2022, arXiv:2110.05038, released code).

    The critic's step comes before the actor's, and the temperature's is last; there are five unrolls from zero states.
    The network is that of `SAC` with memory `TorchGRU` and encoder `embeddings`, parameters in the same order; the
    published one has shortcut embeddings beside it.
    """

    def __init__(self, obs_size: int, action_size: int, hidden_size: int, generator: torch.Generator, lr: float = 3e-4):
        self.generator, device = generator, generator.device
        self.target_entropy = -float(action_size)
        slot = obs_size, action_size, hidden_size
        self.actor = RecurrentHeads(*slot, reads=0, outputs=2 * action_size, heads=1).to(device)
        self.critic = RecurrentHeads(*slot, reads=action_size, outputs=1, heads=2).to(device)
        self.target = deepcopy(self.critic)
        self.alpha = TEMPERATURE
        self.log_alpha = torch.tensor(log(self.alpha), device=device, requires_grad=True)
        parts = {"critic": self.critic.parameters(), "actor": self.actor.parameters(), "temperature": [self.log_alpha]}
        self.optimisers = {name: torch.optim.Adam(parameters, lr=lr) for name, parameters in parts.items()}

    def update(self, batch: Batch, mark: Callable[[str], None]) -> dict[str, float]:
        """One update on rows of one episode each; returns the losses. `mark` is told each part of it that has ended."""
        mask, count = batch.mask, batch.mask.sum()
        with torch.no_grad():
            action, log_prob = self.draw(batch)
            value = self.target(batch, action)[..., 0].amin(0) - self.alpha * log_prob
            target = batch.reward[:, :-1] + GAMMA * (~batch.terminated[:, :-1]) * value[:, 1:]
        error = (self.critic(batch, batch.action)[:, :, :-1, 0] - target) * mask[:, :-1]
        critic_loss = error.square().sum() / count
        self.descend("critic", critic_loss, mark)
        action, log_prob = self.draw(batch)
        q = self.critic(batch, action)[..., 0].amin(0)
        actor_loss = ((self.alpha * log_prob - q) * mask).sum() / count
        self.descend("actor", actor_loss, mark)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.copy_(old * (1 - TAU) + new * TAU)
        mark("optimiser")
        entropy = -((log_prob.detach() * mask).sum() / count).item()
        self.descend("temperature", -self.log_alpha.exp() * (self.target_entropy - entropy), mark)
        self.alpha = self.log_alpha.exp().item()
        return {"critic_loss": critic_loss.item(), "actor_loss": actor_loss.item()}

    def descend(self, part: str, loss: Tensor, mark: Callable[[str], None]) -> None:
        mark("forward")
        self.optimisers[part].zero_grad()
        loss.backward()
        mark("backward")
        self.optimisers[part].step()
        mark("optimiser")

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """A tanh-Gaussian action [B, T, A] and its log-probability [B, T]."""
        mean, log_std = self.actor(batch)[0].chunk(2, -1)
        std = log_std.clamp(-20, 2).exp()
        u = mean + std * torch.empty_like(mean).normal_(generator=self.generator)
        normal = torch.distributions.Normal(mean, std, validate_args=False).log_prob(u)
        return u.tanh(), (normal - 2 * (log(2) - u - nn.functional.softplus(-2 * u))).sum(-1)


class RecurrentHeads(nn.Module):
    """Embeddings of a slot, a GRU over them, and `heads` perceptrons that read its output and `reads` more numbers."""

    def __init__(self, obs_size: int, action_size: int, hidden_size: int, *, reads: int, outputs: int, heads: int):
        super().__init__()
        self.obs, self.action, self.reward = nn.Linear(obs_size, 32), nn.Linear(action_size, 16), nn.Linear(1, 16)
        self.rnn = nn.GRU(64, hidden_size, batch_first=True)
        self.heads = nn.ModuleList()
        for _ in range(heads):
            widths = pairwise([hidden_size + reads, *HEAD_SIZES])
            hidden = [layer for pair in widths for layer in (nn.Linear(*pair), nn.LeakyReLU())]
            self.heads.append(nn.Sequential(*hidden, nn.Linear(HEAD_SIZES[-1], outputs)))

    def forward(self, batch: Batch, action: Tensor | None = None) -> Tensor:
        """The outputs [heads, B, T, outputs]; `action` [B, T, A] is read by the perceptrons."""
        inputs = self.obs(batch.obs), self.action(batch.prev_action), self.reward(batch.prev_reward[..., None])
        features, _ = self.rnn(torch.cat(inputs, -1).relu())
        if action is not None:
            features = torch.cat([features, action], -1)
        return torch.stack([head(features) for head in self.heads])
