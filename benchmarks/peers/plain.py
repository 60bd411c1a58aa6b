"""Processor time of a step of memoryless training, beside stable-baselines3.

SAC on Pendulum-v1, an update of 256 transitions per step; PPO on CartPole-v1, 20 epochs over 8 x 32 slots. Both sides
have the same networks. The machine should be idle.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

from rlmem.bench.skeleton import Bench, Numbers, Table, quotient
from rlmem.bench.timing import Run
from rlmem.bench.train import training_loop

OURS = ["env=gym", "encoder=plain", "memory=mlp", "memory.layers=0", "evaluation.every=null", "device=cpu"]
CASES: dict[str, tuple[int, list[str], Callable[[], SAC | PPO]]] = {
    "SAC, Pendulum-v1": (
        1500,
        [
            *("env.id=Pendulum-v1", "env.num_envs=1", "algo=sac", "algo.head_sizes=[256,256]", "algo.batch_size=256"),
            *("algo.update_ratio=1", "algo.random_steps=100", "algo.learning_starts=100", "algo.reward_scale=1"),
        ],
        lambda: SAC("MlpPolicy", make_vec_env("Pendulum-v1", 1), device="cpu"),
    ),
    "PPO, CartPole-v1": (
        8192,
        [
            *("env.id=CartPole-v1", "env.num_envs=8", "algo=ppo", "algo.head_sizes=[64,64]", "algo.epochs=20"),
            *("algo.rollout_slots=32", "algo.num_minibatches=1", "algo.reward_scale=1"),
        ],
        lambda: PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=32, batch_size=256, n_epochs=20, device="cpu"),
    ),
}
"""Name -> environment steps, our overrides, and the peer."""


@dataclass
class PlainBench(Bench):
    """The training of each case from its first step to its last, in turns."""

    name = "plain"
    refused = frozenset({"device", "threads", "budget"})
    clock = staticmethod(process_time)
    budget: float = 1e9
    threads: int | None = 1

    def measure(self, result: Numbers) -> Iterator[None]:
        result |= {"cases": {}, "failed": {}}
        for name, (steps, overrides, make) in CASES.items():
            times = self.turns({"rlmem": ours(steps, overrides), "stable_baselines3": theirs(steps, make)})
            result["failed"] |= {f"{name}, {side}": time.note for side, time in times.items() if time.note}
            case = {f"{side}_ms": quotient(time.median, steps / 1e3) for side, time in times.items()}
            result["cases"][name] = case | {"ratio": times["rlmem"].ratio(times["stable_baselines3"])}
            yield

    def tables(self, result: Numbers) -> list[Table]:
        rows = [(name, *case.values()) for name, case in result["cases"].items()]
        columns = {"rlmem": "ms a step", "stable-baselines3": "ms a step", "ratio": "ratio"}
        return [Table("memoryless training, processor time", [""], columns, rows)]


def ours(steps: int, overrides: list[str]) -> Run:
    """A training of rlmem, its record included."""

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder:
            loop = training_loop([*OURS, *overrides, f"total_steps={steps}"], Path(folder))
            while loop.collector.steps < steps:
                loop.iterate()

    return train


def theirs(steps: int, make: Callable[[], SAC | PPO]) -> Run:
    return lambda: make().learn(steps)
