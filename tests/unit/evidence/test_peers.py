"""Reproductions beside measured curves of other libraries: metrics of curves, and rows of peers."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import ROOT, changed
from made_results import Page

from rlmem.core.errors import UserError
from rlmem.evidence import catalog, metrics
from rlmem.evidence.catalog import read
from rlmem.evidence.experiment import Experiment
from rlmem.evidence.metrics import GAMES, reference_of
from rlmem.evidence.page.documents import page
from rlmem.evidence.page.find import Item, find
from rlmem.evidence.published import described, measured
from rlmem.evidence.records import Record
from rlmem.evidence.tables import publish, tables, write
from rlmem.evidence.verdict import Outcome
from rlmem.record.facts import RunRecord

RNG = np.random.default_rng


@pytest.fixture
def file(in_tmp: Path) -> Path:
    """An experiment beside measured curves: normalised, 22.2 is 0 and 475 is 100."""
    return Path(shutil.copytree(ROOT / "tests/data/items", "mine")) / "beside.yaml"


def outcome(experiment: Experiment, ours: dict[str, list[float]], budget: str = "laptop") -> Outcome:
    """Runs of ours with these areas, beside the measured ones."""
    records = [
        Record("ours", column, seed, "done", {experiment.metric: value})
        for column, values in ours.items()
        for seed, value in enumerate(values)
    ]
    planned = experiment.at(budget)
    theirs, their_curves = measured(planned)
    return Outcome(planned, [*records, *theirs], their_curves)


# Metrics of a curve


def test_the_area_under_a_curve_is_its_mean_over_the_steps():
    area = lambda *points: metrics.reduced("area_eval", points)  # noqa: E731
    assert area((10, 4.0)) == 4.0
    assert area((10, 1.0), (20, 3.0)) == (1 * 10 + 2 * 10) / 20
    # The same line seen at other steps has the same area behind the first of them.
    assert area((10, 1.0), (15, 2.0), (20, 3.0)) == area((10, 1.0), (20, 3.0))
    assert area((10, 1.0), (20, 3.0), (100, 3.0)) == (1 * 10 + 2 * 10 + 3 * 80) / 100
    assert np.isnan(area((10, 1.0), (20, None)))
    assert area((0, 2.0)) == 2.0


def test_the_first_evaluation_at_nine_tenths_of_the_scale_is_found_in_steps():
    points = [(10, 22.2), (20, 420.0), (30, 440.0), (40, 100.0)]
    assert metrics.reduced("normalised steps_to_90", points, GAMES["CartPole-v1"]) == 30
    assert metrics.reduced("normalised steps_to_90", points[:2], GAMES["CartPole-v1"]) == np.inf
    assert metrics.reduced("steps_to_431.5", points) == 30


def test_log_last_is_the_logarithm_of_the_last_value():
    assert metrics.reduced("log_last eval/mse", [(10, 8.0), (20, 2.0)]) == pytest.approx(np.log(2))
    assert np.isnan(metrics.reduced("log_last eval/mse", [(10, 0.0)]))
    assert metrics.curve_key("log_last eval/mse") == "eval/mse"


def test_a_run_is_normalised_by_the_named_task_or_by_the_id_of_its_game(tmp_path):
    rows = [{"step": step, "eval/greedy/return_mean": value} for step, value in ((50, 22.2), (100, 475.0))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.yaml").write_text("env: {id: CartPole-v1}\n")
    (tmp_path / "run.json").write_text(json.dumps({"choices": {"env": "gym"}, "overrides": []}))
    wanted = ["normalised final_eval", "normalised area_eval", "final_eval"]
    assert list(metrics.read(RunRecord(tmp_path), wanted).values()) == pytest.approx([100, 25, 475])
    of_pendulum = metrics.read(RunRecord(tmp_path), wanted[:1], "Pendulum-v1")[wanted[0]]
    assert of_pendulum == pytest.approx(100 * (475 + 1231) / 1031)
    with pytest.raises(UserError, match="no expert's return is known for Cart; there is one for ant"):
        metrics.read(RunRecord(tmp_path), wanted, "Cart")


@pytest.mark.parametrize("game", GAMES)
def test_a_random_policy_scores_0_and_a_solved_game_100(game):
    import gymnasium

    reference = reference_of(game)
    assert gymnasium.spec(game).reward_threshold in (None, reference.expert)
    assert reference.random < reference.expert


# Rows of peers


def test_the_runs_of_a_peer_have_the_metrics_of_ours(file):
    experiment = read(file)
    records, drawn = measured(experiment.at("laptop"))
    area = {(r.column, r.seed): r.metrics["normalised area_eval"] for r in records}
    ppo0, dqn1 = (50 * 100 + 75 * 100) / 200, (0 * 100 + 50 * 100) / 200
    assert area == pytest.approx(
        {("cartpole_ppo", 0): ppo0, ("cartpole_ppo", 1): 12.5, ("second", 0): 0.0, ("second", 1): dqn1}
    )
    first = records[0]
    assert (first.row, first.steps, first.seconds, first.state) == ("sb3", 200, 2.0, "done")
    assert first.metrics["final_eval"] == first.metrics["best_eval"] == 475 and "mmer" not in first.metrics
    assert (drawn[0].steps, drawn[0].values) == ([100, 200], [248.6, 475.0])
    made = outcome(experiment, {})
    assert described(made.planned, made.records) == {"sb3": "4 measured runs; sb3=2.9 torch=2.13; a processor"}
    assert made.ours == []


def test_peers_are_judged_and_shown_but_are_no_runs_of_ours(file):
    experiment = read(file)
    better = outcome(experiment, {"cartpole_ppo": [98.0, 99.0], "second": [600.0, 602.0]})
    verdict = better.verdict
    assert [(f.where, f.state) for f in verdict.findings] == [("cartpole_ppo", "undecided"), ("second", "undecided")]
    assert verdict.word == "undecided" and verdict.why.startswith("2 of 2 expectations: ours >= sb3 within 10")
    assert [(c.row, c.column, c.ours.n) for c in verdict.cells if c.row == "sb3"] == [
        ("sb3", "cartpole_ppo", 2),
        ("sb3", "second", 2),
    ]
    measured_file = file.parent / "curves" / "sb3.csv"
    measured_file.write_text(re.sub(r"ppo,(\d),(\d+),[\d.]+", r"ppo,\1,\2,4\1", measured_file.read_text()))
    verdict = outcome(experiment, {"cartpole_ppo": [98.0, 99.0], "second": [600.0, 602.0]}).verdict
    assert (verdict.findings[0].state, verdict.findings[0].needed) == ("undecided", "3 to 33")
    many = outcome(experiment, {"cartpole_ppo": [98.0, 99.0] * 5, "second": [600.0, 602.0] * 5}).planned
    records = [
        Record(row, "cartpole_ppo", s, "done", {many.metric: value})
        for row, value in (("ours", 0.0), ("sb3", 90.0))
        for s in range(12)
    ]
    first = Outcome(many, records).verdict.findings[0]
    assert (first.left, first.right, first.state) == (0.0, 90.0, "contradicted")
    assert outcome(experiment, {"second": [60.0, 70.0]}).verdict.why == "2 of 4 runs have not ended"
    assert tables(better)[0].columns[2] == "mean [95 % CI]"


def test_a_run_of_a_peer_that_diverged_is_no_success(file):
    changed(file.parent / "curves" / "sb3.csv", "ppo,1,200,248.6", "ppo,1,200,nan")
    made = outcome(read(file), {"cartpole_ppo": [98.0, 99.0], "second": [600.0, 602.0]})
    assert [finding.state for finding in made.verdict.findings] == ["undecided", "undecided"]
    assert np.isnan(made.verdict.findings[0].difference)
    assert [len(curve.steps) for curve in made.curves if curve.column == "cartpole_ppo"] == [2, 1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cpu_seconds,versions", "cpu,versions", "no column cpu_seconds"),
        ("cartpole,dqn,0,100,22.2", "cartpole,dqn,0,1e2,22.2", r"line 6: cannot be read \(invalid literal"),
        ("cartpole,dqn,1,200,475.0,2.0,sb3=2.9 torch=2.13,a processor\n", "cartpole,dqn,1", "line 9: cannot be read"),
    ],
)
def test_a_damaged_file_of_curves_is_named(file, old, new, said):
    changed(file.parent / "curves" / "sb3.csv", old, new)
    with pytest.raises(UserError, match=said):
        measured(read(file).at("laptop"))


def test_a_column_that_a_peer_lacks_stays_open(file):
    made = outcome(read(changed(file, ", columns: {second: cartpole_dqn}", "")), {"second": [1.0, 2.0]})
    assert {record.column for record in made.records if record.row == "sb3"} == {"cartpole_ppo"}
    assert [finding.state for finding in made.verdict.findings] == ["not tested", "not tested"]


# Files and reports


def test_findings_reach_the_page_and_its_badges(file, in_tmp):
    experiment = read(file, own=True)
    made = outcome(experiment, {"cartpole_ppo": [98.0, 99.0], "second": [60.0, 70.0]})
    write(made, in_tmp / "reproduce" / "mine" / "beside-laptop")
    publish(made, in_tmp / "published")
    for folder in ("reproduce", "published"):
        (item,) = find([in_tmp / folder])
        assert isinstance(item, Item)
        assert item.axes == (["ours", "sb3"], ["cartpole_ppo", "second"]) and item.done == "4 of 4"
        assert item.facts()["beside, sb3"] == "4 measured runs; sb3=2.9 torch=2.13; a processor"
        assert {record.row for record in item.records} == {"ours"}
        shown = page([item], "A report")
        assert Page(shown).drawn["mean"] == 2, "a curve of sb3 in each panel"
        assert '<span class="badge undecided">undecided</span>' in shown and "ours &gt;= sb3 within 10" in shown
    fewer = replace(made, records=[record for record in made.records if record.row != "sb3"])
    with pytest.raises(UserError, match="4 of its runs would be lost, first sb3 cartpole_ppo seed 0"):
        publish(fewer, in_tmp / "published")


# The shipped files


FAMILIAR = [name for name in catalog.names() if name.startswith("familiar/")]


@pytest.mark.parametrize("name", FAMILIAR)
def test_familiar_games_stand_beside_cells_that_are_measured(name):
    experiment = catalog.find(name)
    known = yaml.safe_load((ROOT / "benchmarks" / "peers" / "sb3.yaml").read_text())
    peer = experiment.peers["sb3"]
    assert {peer.columns.get(column, column) for column in experiment.columns} <= set(known)
    for column in experiment.columns:
        assert reference_of(experiment.task_of(column) or "")
    expected = {column for e in experiment.at("laptop").expectations for column in e.on or experiment.columns}
    assert expected == set(experiment.columns), "nothing is expected of a column"
    if peer.file.exists():
        assert {record.column for record in measured(experiment.at("laptop"))[0]} == set(experiment.columns)
