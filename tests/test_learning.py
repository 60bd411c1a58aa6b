"""Two-sided learning tests, minutes each: memory solves the task, and the memoryless control provably cannot."""

import pytest
import yaml

from rlmem.config.compose import load
from rlmem.config.paths import experiments_dir
from rlmem.recorder import read_jsonl
from rlmem.train import evaluate_run, train

EXPERIMENT = yaml.safe_load((experiments_dir() / "first_run" / "memory_matters.yaml").read_text())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", EXPERIMENT["rows"], ids=lambda row: row["memory"])
def test_memory_solves_what_the_memoryless_control_cannot(in_tmp, row):
    train(load([f"memory={row['memory']}", *EXPERIMENT["overrides"], "run_dir=run"]))
    score = evaluate_run(in_tmp / "run", episodes=200)["greedy"]["return_mean"]
    if "above" in row:
        assert score > row["above"]
    else:
        assert score < row["below"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("env", "random_return"), [("position_only_pendulum", 0.25), ("battleship", -0.45)], ids=["continuous", "two-part"]
)
def test_other_action_spaces_learn_something_measurable(in_tmp, env, random_return):
    """Random returns from the task's rules (measured over random play)."""
    train(load(["memory=ffm", f"env={env}", "total_steps=300000", "run_dir=run"]))
    assert evaluate_run(in_tmp / "run", episodes=100)["sampled"]["return_mean"] > random_return + 0.15
    rows = [row for row in read_jsonl(in_tmp / "run" / "metrics.jsonl") if "ppo/ratio_max_dev" in row]
    assert max(row["ppo/ratio_max_dev"] for row in rows) <= 1e-5
