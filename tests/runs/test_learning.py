"""Learning tests, minutes each: memory solves the task and, where it is two-sided, the memoryless control cannot."""

from pathlib import Path

import pytest
import yaml

from rlmem.config.compose import load
from rlmem.config.paths import experiments_dir
from rlmem.record.recorder import read_jsonl
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import train

FIRST_RUN = experiments_dir() / "first_run"
EXPERIMENT = yaml.safe_load((FIRST_RUN / "memory_matters.yaml").read_text())
REPLAY = yaml.safe_load((FIRST_RUN / "replay_remembers.yaml").read_text())
SUITES = yaml.safe_load((FIRST_RUN / "five_suites.yaml").read_text())
IMPALA = yaml.safe_load((FIRST_RUN / "impala_catches.yaml").read_text())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", EXPERIMENT["rows"], ids=lambda row: row["memory"])
def test_memory_solves_what_the_memoryless_control_cannot(in_tmp, row):
    assert_bound(row, [f"memory={row['memory']}", *EXPERIMENT["overrides"]])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", REPLAY["rows"], ids=lambda row: row["name"])
def test_replay_solves_with_memory_what_it_cannot_without(in_tmp, row):
    assert_bound(row, [*REPLAY["overrides"], *REPLAY["games"][row["game"]], *row["overrides"]])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", SUITES["rows"], ids=lambda row: row["name"])
def test_a_task_of_the_suite_is_learnt(in_tmp, row):
    assert_bound(row, [*SUITES["overrides"], *row["overrides"]], row["metric"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_impala_learns_to_catch_with_memory(in_tmp):
    assert_bound(IMPALA["rows"][0], [*IMPALA["overrides"], *IMPALA["rows"][0]["overrides"]])


def assert_bound(row: dict, overrides: list[str], metric: str = "return_mean") -> None:
    """Train, and hold the greedy mean of 200 new episodes to the row's bound."""
    train(load([*overrides, "run_dir=run"]))
    score = evaluate_run(Path("run"), episodes=200)["greedy"][metric]
    if "above" in row:
        assert score > row["above"]
    else:
        assert score < row["below"]


SHORT_SIGHTED = ["algo.gamma=0.9", "algo.gae_lambda=0.8", "algo.entropy_coef=0"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("overrides", "random_return", "gain"),
    [
        (["env=position_only_pendulum", "total_steps=300000"], 0.25, 0.3),
        (["env=battleship", "total_steps=500000", *SHORT_SIGHTED], -0.45, 0.02),
    ],
    ids=["continuous", "multidiscrete"],
)
def test_other_action_spaces_learn_something_measurable(in_tmp, overrides, random_return, gain):
    """Random returns are those of the games' rules; 500 episodes measure battleship's mean to 0.008."""
    train(load(["memory=ffm", *overrides, "run_dir=run"]))
    assert evaluate_run(in_tmp / "run", episodes=500)["sampled"]["return_mean"] > random_return + gain
    rows = [row for row in read_jsonl(in_tmp / "run" / "metrics.jsonl") if "ppo/ratio_max_dev" in row]
    assert max(row["ppo/ratio_max_dev"] for row in rows) <= 1e-5
