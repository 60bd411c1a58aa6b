"""`compile=inductor`: the numbers of a run without it, within rounding, and exact resume in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import TINY, assert_same_weights, killed_at, small_run, weights, without_time

from rlmem.errors import UserError

RUNS = {
    "ppo-gru": ("memory=gru", "memory.hidden_size=16", "algo=ppo"),  # a recurrence with kernels, left as it is
    "dqn-tcn": ("memory=tcn", "memory.hidden_size=16", "algo=dqn"),  # a memory that is fused
    "sac-mlp": ("memory=mlp", "memory.hidden_size=16", "algo=sac", "env=pendulum_p"),
}
ON_POLICY = ("algo.num_minibatches=1", "algo.epochs=2", "algo.rollout_slots=64")
OFF_POLICY = (
    "algo.batch_size=64",
    "algo.learning_starts=256",
    "algo.random_steps=64",
    "algo.update_ratio=0.02",
    "algo.record_every=128",
)


def overrides(name: str, compiled: str, steps: int) -> list[str]:
    shared = [key for key in TINY if not key.startswith(("algo.", "env=", "total_steps"))]
    algorithm = ON_POLICY if name.startswith("ppo") else OFF_POLICY
    chosen = ["env=repeat_first", *RUNS[name], *shared, *algorithm, "checkpoint.every=256"]
    return [*chosen, f"total_steps={steps}", f"compile={compiled}"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUNS)
def test_first_updates_are_those_of_a_run_without(in_tmp, name):
    for compiled in ("off", "inductor"):
        small_run(run_dir=compiled, base=overrides(name, compiled, 512))
    rows, fused_rows = without_time("off"), without_time("inductor")
    assert len(rows) == len(fused_rows)
    assert any("loss" in key for row in rows for key in row)
    for row, fused in zip(rows, fused_rows, strict=True):
        assert fused == pytest.approx(row, rel=1e-2, abs=1e-4, nan_ok=True)
    fused_weights = weights("inductor")
    for key, value in weights("off").items():
        torch.testing.assert_close(fused_weights[key], value, rtol=1e-2, atol=1e-4, msg=key)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["ppo-gru", "dqn-tcn"])
def test_a_killed_run_resumes_exactly(in_tmp, name):
    small_run(run_dir="whole", base=overrides(name, "inductor", 1024))
    with killed_at(5):
        small_run(run_dir="cut", base=overrides(name, "inductor", 1024))
    resumed = [sys.executable, "-m", "rlmem", "resume", "cut"]  # compiles anew, in another order of sizes
    subprocess.run(resumed, check=True, timeout=600, capture_output=True)
    assert_same_weights("whole", "cut")


def test_a_machine_that_cannot_compile_says_so(in_tmp, monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(UserError, match=r"compile=inductor: .*no compiler.*compile=off"):
        small_run("compile=inductor")
    assert not Path("run").exists()
