"""`env.evaluation`: an environment that evaluation sets up otherwise than training."""

import pytest
from helpers import small_run
from small_runs import SHORT

from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.record.recorder import read_jsonl
from rlmem.run.evaluate import evaluate_run
from rlmem.run.nodes import make_env, make_evaluation_env
from rlmem.run.train import resume

LONGER = "env.evaluation.level=medium"  # 103 steps instead of 51
SHORTER = [*SHORT, "total_steps=260", "evaluation.every=130"]


def evaluated_lengths(run_dir):
    rows = read_jsonl(run_dir / "metrics.jsonl")
    return {row["eval/greedy/length_mean"] for row in rows if "eval/greedy/length_mean" in row}


def test_training_and_evaluation_play_different_games(in_tmp):
    """And training is the same whatever evaluation plays."""
    run_dir, plain = small_run(LONGER, base=SHORTER), small_run(run_dir="plain", base=SHORTER)
    assert (plain / "episodes.jsonl").read_bytes() == (run_dir / "episodes.jsonl").read_bytes()
    assert {episode["length"] for episode in read_jsonl(run_dir / "episodes.jsonl")} == {51}
    assert evaluated_lengths(run_dir) == {103}
    assert "evaluated with level=medium" in (run_dir / "log.txt").read_text()
    resume(run_dir, ["total_steps=320", "env.evaluation.level=easy"])
    assert evaluated_lengths(run_dir) == {103, 51}


def test_a_finished_run_is_evaluated_so_unless_the_command_says_otherwise(in_tmp):
    run_dir = small_run(LONGER, "evaluation.every=null", "total_steps=60", base=SHORTER)
    as_trained = evaluate_run(run_dir, episodes=2)
    assert as_trained["greedy"]["length_mean"] == 103
    assert as_trained["env"]["level"] == "medium" and "evaluation" not in as_trained["env"]
    given = evaluate_run(run_dir, episodes=2, overrides=["env.level=easy"])
    assert (given["greedy"]["length_mean"], given["env"]["level"]) == (51, "easy")
    other = evaluate_run(run_dir, episodes=2, overrides=["env.evaluation.max_episode_steps=60"])
    assert other["greedy"]["length_mean"] == 60


def test_an_option_may_bring_its_own(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "longer.yaml").write_text(
        "# Toy\n_target_: rlmem_envs.popgym.make\nname: RepeatPrevious\nnum_envs: 4\nevaluation: {level: mdium}\n"
    )
    with pytest.raises(UserError) as caught:
        load(["env=longer", f"hydra.searchpath=[file://{tmp_path}]"])
    (line,) = caught.value.problems
    assert f"env.evaluation.level=mdium ({tmp_path}/env/longer.yaml:5): expected one of" in line
    line = "env.evaluation.level=medium"
    assert load(["env=longer", line, f"hydra.searchpath=[file://{tmp_path}]"]).values["env"]["evaluation"] == {
        "level": "medium"
    }


@pytest.mark.parametrize("env", ["wind", "wind_shm", "point_robot", "point_robot_shm"])
def test_tasks_with_a_split_are_evaluated_on_those_never_trained_on(env):
    config = load([f"env={env}"])
    training, evaluation = make_env(config, 300), make_evaluation_env(config, 300)
    for vector in (training, evaluation):
        vector.reset(seed=0)
    assert max(training.task_index) < config.values["env"]["num_train"] <= min(evaluation.task_index)
    assert training.params | {"split": "test"} == evaluation.params
