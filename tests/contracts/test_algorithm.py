"""Every memory x every algorithm x both batching schemes trains: whole runs of 1,000 steps, as the command makes them.

The fast tests hold every algorithm and scheme to one memory, each time another; the rest of the cube is slow
(`make test-slow`).
"""

import math
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from helpers import entry, one_of_each_class, options
from small_runs import CONTINUOUS, DISCRETE, LIVED, MATRIX, OFF_POLICY, REPLAYED, SCHEMES

from rlmem.config.compose import Config, load
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import train


@cache
def run_of(algo: str, scheme: str) -> Config:
    env = CONTINUOUS if algo in ("sac", "td3") else DISCRETE
    return load([f"algo={algo}", env, *SCHEMES[scheme], *MATRIX, *LIVED.get(algo, REPLAYED)])


@cache
def memory_of(name: str) -> dict:
    return load([f"memory={name}", "memory.hidden_size=16"]).values["memory"]


CELLS = [*product((*LIVED, *OFF_POLICY), SCHEMES)]
MEMORIES = one_of_each_class()
FAST = {(MEMORIES[n * len(MEMORIES) // len(CELLS)], *cell) for n, cell in enumerate(CELLS) if n % 4 in (1, 2)}
"""Every algorithm under one of the schemes in turn, each time with another memory."""
CUBE = [
    pytest.param(*cell, marks=[] if cell in FAST else [pytest.mark.slow])
    for cell in product(options("memory"), (*LIVED, *OFF_POLICY), SCHEMES)
]


@pytest.mark.parametrize(("memory", "algo", "scheme"), CUBE)
def test_every_memory_trains_with_every_algorithm_under_both_schemes(in_tmp, memory, algo, scheme):
    config = run_of(algo, scheme)
    choices = config.choices | {"memory": memory}
    train(Config(config.values | {"memory": memory_of(memory)}, choices, config.overrides))
    rows = read_jsonl(Path("run/metrics.jsonl"))
    assert rows[-1]["step"] == 1000
    training = [row for row in rows if "update" in row]
    assert training[-1]["update"] == (len(training) if algo in LIVED else 5)
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert [name for row in rows for name in row if entry(name) is None] == [], "rlmem/record/metrics.py"
    learnt = [row for row in training if "batch/transitions" in row]
    if algo in LIVED:
        if algo != "pqn":  # whose agent has no policy with probabilities
            assert max(row[f"{algo}/ratio_max_dev"] for row in learnt) <= 1e-5
        assert sum(row["batch/transitions"] for row in learnt) == 1000
    else:
        assert all(row["batch/transitions"] == 100 for row in learnt)
    assert learnt
    assert any(row["batch/pad_fraction"] > 0 for row in learnt) == (scheme == "segment")
