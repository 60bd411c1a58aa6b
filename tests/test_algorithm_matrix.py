"""Every memory x every algorithm x both batching schemes trains: whole runs of 2,000 steps, as the command makes them.

The fast tests hold one or two memories of each kind to every algorithm, under tape and segment in turn, and every other
memory to one off-policy algorithm; the rest of the cube is slow (`make test-slow`).
"""

import math
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from helpers import options

from rlmem.config.compose import Config, load
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import train

BASES = ("ffm", "lru", "shm", "mlstm", "gru", "gpt", "stack", "mlp")
"""Linear recurrences, matrix memories, a recurrent cell, a window, a memoroid and the memoryless control."""
OFF_POLICY = ("dqn", "sac", "sacd", "td3")
SCHEMES = {"tape": ["batching=tape"], "segment": ["batching=segment", "batching.length=6"]}
DISCRETE, CONTINUOUS = "env=repeat_first", "env=position_only_pendulum"
SMALL = [
    "env.num_envs=32", "env.max_episode_steps=15", "encoder.hidden_size=16", "algo.head_sizes=[16]", "total_steps=2000",
    "evaluation.every=null", "evaluation.episodes=2", "checkpoint.every=null", "threads=1", "run_dir=run",
]  # fmt: skip
REPLAYED = ["algo.batch_size=200", "algo.update_ratio=0.005", "algo.random_steps=500", "algo.learning_starts=500"]
LIVED = {
    "ppo": ["algo.rollout_slots=32", "algo.epochs=1", "algo.num_minibatches=2"],
    "impala": ["algo.rollout_slots=32"],
}


@cache
def run_of(algo: str, scheme: str) -> Config:
    env = CONTINUOUS if algo in ("sac", "td3") else DISCRETE
    return load([f"algo={algo}", env, *SCHEMES[scheme], *SMALL, *LIVED.get(algo, REPLAYED)])


@cache
def memory_of(name: str) -> dict:
    return load([f"memory={name}", "memory.hidden_size=16"]).values["memory"]


def cube() -> list:
    cells = []
    for number, memory in enumerate(options("memory")):
        chosen = OFF_POLICY[number % 4], list(SCHEMES)[number // 4 % 2]
        for turn, cell in enumerate(product((*LIVED, *OFF_POLICY), SCHEMES)):
            fast = cell == chosen or (memory in BASES and turn // 2 % 2 == (turn + BASES.index(memory)) % 2)
            cells.append(pytest.param(memory, *cell, marks=[] if fast else [pytest.mark.slow]))
    return cells


@pytest.mark.parametrize(("memory", "algo", "scheme"), cube())
def test_every_memory_trains_with_every_algorithm_under_both_schemes(in_tmp, memory, algo, scheme):
    config = run_of(algo, scheme)
    choices = config.choices | {"memory": memory}
    train(Config(config.values | {"memory": memory_of(memory)}, choices, config.overrides))
    rows = read_jsonl(Path("run/metrics.jsonl"))
    assert rows[-1]["step"] == 2000
    training = [row for row in rows if "update" in row]
    assert training[-1]["update"] == (len(training) if algo in LIVED else 7)
    assert all(math.isfinite(value) for row in rows for value in row.values())
    learnt = [row for row in training if "batch/transitions" in row]
    if algo in LIVED:
        assert max(row[f"{algo}/ratio_max_dev"] for row in learnt) <= 1e-5
        assert sum(row["batch/transitions"] for row in learnt) == 2000
    else:
        assert all(row["batch/transitions"] == 200 for row in learnt)
    assert learnt
    assert any(row["batch/pad_fraction"] > 0 for row in learnt) == (scheme == "segment")


def test_the_fast_part_names_memories_that_there_are():
    assert set(BASES) <= set(options("memory"))
