"""Steps and seconds until a game is solved, beside sb3-contrib's RecurrentPPO."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, cast

import numpy as np

from rlmem.acting.collector import one_thread
from rlmem.acting.evaluate import Request, evaluate
from rlmem.agents.actor_critic import Agent
from rlmem.config.catalog import catalog
from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, check_names
from rlmem.evidence.bench.timing import wait
from rlmem.evidence.bench.train import games, recurrent_ppo, training_loop

MODELS = ("gru", "lstm", "ffm")
PEER = "sb3-contrib, shared lstm"
ENVS, SLOTS, EPOCHS, MINIBATCHES, LR, WIDTH, HEADS = 64, 128, 4, 8, 1e-3, 256, [128, 128]
"""The defaults of `algo=ppo`, which the peer is given too."""
EPISODES = 32
MEASURES = ("steps", "seconds", "cpu_seconds")


@dataclass
class SolveBench(Bench):
    """PPO on popgym's RepeatPreviousEasy: what training took until greedy episodes had a mean return of `solved`.

    A round is a seed; contestants take turns. Evaluations are not counted. rlmem has its defaults; the peer has the
    same numbers of environments, slots, epochs and minibatches, the same learning rate and sizes, no encoder, and
    popgym's own environments. Both compute in full float32. A run that has not solved the game counts as infinite.

    models: options of conf/memory
    overrides: of rlmem's runs, beside these
    solved: mean return of 32 greedy episodes
    most_steps: after which a run ends unsolved
    every: steps between two evaluations
    peer: whether sb3-contrib takes part
    """

    name = "solve"
    refused = frozenset({"budget"})
    models: Sequence[str] = MODELS
    overrides: Sequence[str] = ()
    solved: float = 0.9
    most_steps: int = 1_000_000
    every: int = 16_384
    peer: bool = True

    def __post_init__(self) -> None:
        check_names("", "memory", self.models, catalog()["memory"])

    def measure(self, result: Numbers) -> Iterator[None]:
        runs_by_name = result["runs"] = {name: [] for name in (*([PEER] if self.peer else []), *self.models)}
        for seed in range(self.rounds):
            for name, runs in runs_by_name.items():
                with tempfile.TemporaryDirectory() as folder:
                    learner = Peer(self, seed) if name == PEER else Ours(self, name, seed, Path(folder))
                    runs.append(self.run_of(learner))
                yield

    def run_of(self, learner: "Ours | Peer") -> Numbers:
        """What learning took, and the mean returns of its evaluations."""
        returns: list[float] = []
        used = dict.fromkeys(MEASURES[1:], 0.0)
        while not returns or (returns[-1] < self.solved and learner.steps < self.most_steps):
            began, cpu = perf_counter(), process_time()
            learner.learn(min(self.every, self.most_steps - learner.steps))
            wait(self.device)
            used["seconds"] += perf_counter() - began
            used["cpu_seconds"] += process_time() - cpu
            with one_thread():
                returns.append(learner.score())
        return {"solved": returns[-1] >= self.solved, "steps": learner.steps, **used, "returns": returns}

    def tables(self, result: Numbers) -> list[PlottedTable]:
        rows = []
        for name, runs in result["runs"].items():
            medians = [median(run[measure] if run["solved"] else inf for run in runs) for measure in MEASURES]
            solved = f"{sum(run['solved'] for run in runs)} of {len(runs)}"
            rows.append((name, solved, *(value if value < inf else None for value in medians)))
        columns = {"steps": "steps", "seconds": "seconds", "processor seconds": "seconds"}
        return [
            PlottedTable(f"until a mean return of {self.solved:g}: medians over seeds", ["", "solved"], columns, rows)
        ]


class Ours:
    """A run of rlmem."""

    def __init__(self, bench: SolveBench, memory: str, seed: int, folder: Path):
        game = ["env=repeat_previous", f"env.num_envs={ENVS}", f"memory={memory}", f"memory.hidden_size={WIDTH}"]
        run = [f"seed={seed}", f"device={bench.device.type}", f"total_steps={bench.most_steps}"]
        self.loop = training_loop([*game, *bench.overrides, *run], folder)

    @property
    def steps(self) -> int:
        return self.loop.collector.steps

    def learn(self, steps: int) -> None:
        """Learn for about as many steps."""
        end, rollout = self.steps + steps, 0
        while self.steps + rollout // 2 < end:
            before = self.steps
            self.loop.iterate()
            rollout = self.steps - before  # slots of final observations are no steps: a little less than the peer's

    def score(self) -> float:
        """The mean return of greedy episodes."""
        training = self.loop.training
        request = Request(EPISODES, training.streams, training.device)
        with closing(training.make_env(self.loop.evaluation.episodes)) as env:
            return float(evaluate(cast(Agent, self.loop.agent), env, request, greedy=True).returns.mean())


class Peer:
    """A run of sb3-contrib."""

    def __init__(self, bench: SolveBench, seed: int):
        anneal = lambda left: LR * (1 - self.steps / bench.most_steps)  # noqa: E731
        self.model: Any = None
        run = {"learning_rate": anneal, "ent_coef": 0.01, "seed": seed, "device": str(bench.device)}
        self.model = recurrent_ppo(ENVS, SLOTS, EPOCHS, MINIBATCHES, HEADS, shared=True, **run)
        self.eval_env = games(ENVS)
        self.eval_env.seed(seed)

    @property
    def steps(self) -> int:
        return 0 if self.model is None else self.model.num_timesteps

    def learn(self, steps: int) -> None:
        self.model.learn(steps, reset_num_timesteps=False)

    def score(self) -> float:
        from stable_baselines3.common.evaluation import evaluate_policy

        return float(np.mean(evaluate_policy(self.model, self.eval_env, EPISODES, warn=False)[0]))
