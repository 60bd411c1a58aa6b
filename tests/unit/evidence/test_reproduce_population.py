"""Items of `rlmem reproduce` that are made of populations: trained, taken up again, and read."""

import json
from pathlib import Path

import numpy as np
import pytest
from made_results import item_text

from rlmem.commands.cli import main
from rlmem.core.errors import UserError
from rlmem.evidence.catalog import read
from rlmem.evidence.items import runner_of
from rlmem.evidence.records import read_curves, read_results
from rlmem.evidence.training import best
from rlmem.jobs.population.spec import read as population_in
from rlmem.record.recorder import read_jsonl
from rlmem.run.stored import checkpoints

ITEM = item_text("population")
FOLDER = Path("out/mine/item-smoke")


@pytest.fixture
def item(in_tmp: Path) -> Path:
    (in_tmp / "mine").mkdir()
    path = in_tmp / "mine" / "item.yaml"
    path.write_text(ITEM)
    return path


def agent(place: Path, number: int, points: dict[int, float]) -> None:
    folder = place / f"agent_{number}"
    folder.mkdir(parents=True)
    rows = [json.dumps({"step": step, "score": value}) for step, value in points.items()]
    (folder / "metrics.jsonl").write_text("".join(f"{row}\n" for row in [*rows, '{"step": 99, "other": 1.0}']))


def test_a_population_is_trained_for_every_cell_and_its_best_agent_is_the_result_once_all_have_ended(item, capsys):
    command = ["reproduce", str(item), "--budget", "smoke", "--dir", "out"]
    assert main(command) == 0
    [record] = read_results(FOLDER / "results.csv")
    place = FOLDER / "gru-seed0"
    spec = population_in(place).spec
    assert (spec.agents, spec.ready, spec.window, spec.every, spec.vary) == (2, 20, 8, 20, ("algo.lr=1e-5,1e-2",))
    assert "seed=0" in spec.overrides and (place / "population.jsonl").exists()
    last = [
        [row["train/return_mean"] for row in read_jsonl(place / name / "metrics.jsonl") if "train/return_mean" in row][
            -1
        ]
        for name in ("agent_0", "agent_1")
    ]
    assert record.metrics["last train/return_mean"] == pytest.approx(max(last), rel=1e-5)
    assert (record.state, record.steps, record.row) == ("done", 256, "gru")
    [curve] = read_curves(FOLDER / "curves.csv")
    assert curve.steps[-1] == 128 and curve.values[-1] == pytest.approx(max(last), rel=1e-4)

    written = {path: path.stat().st_mtime_ns for path in place.rglob("*.jsonl")}
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*.jsonl")} == written, "it was trained again"
    capsys.readouterr()
    checkpoints(place / "agent_1").paths()[-1].unlink()
    assert main([*command, "--show"]) == 0
    assert "1 interrupted" in capsys.readouterr().out


def test_another_budget_may_train_single_agents_and_measure_them_otherwise(item):
    experiment = read(item)
    assert (experiment.at("laptop").run, experiment.at("laptop").metric) == ("train", "final_eval")
    assert (experiment.at("paper").run, experiment.at("paper").metric) == ("population", "last train/return_mean")


def test_the_result_is_the_mean_of_the_best_at_every_step_and_agents_keep_their_last_value(in_tmp):
    place = in_tmp / "p"
    agent(place, 0, {10: 1.0, 20: 5.0, 30: 0.0})
    agent(place, 1, {10: 2.0, 30: 3.0})
    agent(place, 2, {15: 4.0, 30: 1.0})
    steps, values = best(place, "score", 2)
    # From step 15 on all have a value: (4, 2, 1), then (5, 4, 2), then (3, 1, 0).
    assert steps.tolist() == [15, 20, 30]
    np.testing.assert_allclose(values, [3.0, 4.5, 2.0])
    assert best(place, "score", 1)[1].tolist() == [4.0, 5.0, 3.0]
    assert len(best(place, "missing", 2)[0]) == 0


def test_options_that_no_population_has_are_refused_by_name(item):
    item.write_text(ITEM.replace("window: 8", "windows: 8"))
    experiment = read(item)
    runner = runner_of(experiment.at("smoke"))
    with pytest.raises(UserError, match=r"windows.*did you mean `?window"):
        runner.check(runner.planned.cells())
