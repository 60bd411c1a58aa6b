"""Scores of many runs, by hand and beside rliable.

tests/data/rliable.json holds seeded scores and what rliable made of them; each part names the call.
"""

import json

import numpy as np
import pytest
from helpers import ROOT
from pages import blocks
from scipy.stats import mannwhitneyu

from rlmem.evidence.metrics import REFERENCES, expert_normalised, reference_of
from rlmem.evidence.statistics import (
    AGGREGATES,
    bootstrap,
    interval,
    iqm,
    mann_whitney_u,
    matrix,
    mean,
    percentile_bounds,
    performance_profile,
    probability_of_improvement,
    resample,
)

RLIABLE = json.loads((ROOT / "tests" / "data" / "rliable.json").read_text())
A, B = (np.array(RLIABLE["scores"][name]) for name in "ab")
THRESHOLDS = RLIABLE["profiles"]["thresholds"]
MANY = 20_000
SCATTER_OF_PAIRS = 0.0065
"""Of the bounds of rliable's 1,000 resamples around those of very many: standard deviation, measured, at most."""


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rliables_draws(*shapes: tuple[int, int]) -> list[np.ndarray]:
    """The runs that rliable drew, [repetition, run, task] for each matrix, of numpy's old generator."""
    old = np.random.RandomState(RLIABLE["seed"])
    drawn = [[old.randint(0, shape[0], shape) for shape in shapes] for _ in range(RLIABLE["repetitions"])]
    return [np.stack(picked) for picked in zip(*drawn, strict=True)]


@pytest.mark.parametrize("name", AGGREGATES)
def test_an_aggregate_of_a_batch_is_that_of_each_matrix(name):
    batch = rng().normal(size=(3, 2, 5, 4))
    ours = AGGREGATES[name](batch)
    assert ours.shape == (3, 2)
    assert ours[2, 1] == pytest.approx(AGGREGATES[name](batch[2, 1]))
    assert isinstance(AGGREGATES[name](batch[0, 0]), float)


@pytest.mark.parametrize("name", AGGREGATES)
def test_a_diverged_run_makes_the_aggregate_and_its_interval_nan(name):
    scores = np.where(np.arange(12).reshape(4, 3) == 5, np.nan, A[:4, :3])
    found = interval(scores, AGGREGATES[name], rng=rng(), repetitions=50)
    assert np.isnan([found.value, found.low, found.high]).all()
    assert np.isnan(performance_profile(scores, [0.0])).all()
    better = probability_of_improvement(scores, A[:, :3], rng=rng(), repetitions=50)
    assert np.isnan([better.value, better.low]).all()


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("scores", ["a", "b"])
def test_aggregates_and_their_bounds_are_rliables(scores, name):
    """From the same draws, number by number."""
    values, statistic = np.array(RLIABLE["scores"][scores]), AGGREGATES[name]
    (picked,) = rliables_draws(values.shape)
    ours = [statistic(values), *percentile_bounds(statistic(resample(values, picked)))]
    np.testing.assert_allclose(ours, RLIABLE["aggregates"][scores][name], rtol=0, atol=1e-12)


def test_the_probability_of_improvement_and_its_bounds_are_rliables():
    value, low, high = RLIABLE["improvement"]["estimate"]
    ours = probability_of_improvement(A, B, rng=rng(), repetitions=MANY)
    assert ours.value == pytest.approx(value, abs=1e-12)
    a, b = rliables_draws(A.shape, B.shape)
    bounds = percentile_bounds(mann_whitney_u(resample(A, a), resample(B, b)).mean(-1) / 20)
    np.testing.assert_allclose(bounds, [low, high], rtol=0, atol=1e-12)
    np.testing.assert_allclose([ours.low, ours.high], bounds, atol=4 * SCATTER_OF_PAIRS)


def test_profiles_are_rliables():
    np.testing.assert_allclose(performance_profile(A, THRESHOLDS), RLIABLE["profiles"]["runs"][0], rtol=0, atol=1e-12)


def test_u_is_scipys_and_a_tie_is_half_a_win():
    for task in range(A.shape[1]):
        assert mann_whitney_u(A, B)[task] == mannwhitneyu(A[:, task], B[:, task]).statistic
    same = probability_of_improvement(A, A, rng=rng(), repetitions=10)
    assert same.value == 0.5
    assert mann_whitney_u(np.array([[1.0], [2.0]]), np.array([[1.0], [0.0], [3.0]])).tolist() == [1.5 + 2.0]


def test_runs_are_drawn_within_their_task_and_every_task_by_itself():
    """Run i of task k scores 10 k + i, so that a resample tells what was drawn."""
    scores = 10.0 * np.arange(4) + np.arange(5.0)[:, None]
    drawn = bootstrap(scores, lambda batch: batch, rng=rng(1), repetitions=2000) - 10 * np.arange(4)
    assert drawn.shape == (2000, 5, 4)
    for run in range(5):
        assert (drawn == run).mean((0, 1)) == pytest.approx([0.2] * 4, abs=0.02)
    assert (drawn[..., 0] == drawn[..., 1]).mean() == pytest.approx(0.2, abs=0.02)


def test_the_same_generator_gives_the_same_interval_however_many_fit_at_once(monkeypatch):
    whole, better = interval(A, rng=rng(3)), probability_of_improvement(A, B, rng=rng(3))
    assert interval(A, rng=rng(4)) != whole
    monkeypatch.setattr("rlmem.evidence.statistics.AT_ONCE", 1000)
    assert interval(A, rng=rng(3)) == whole
    assert probability_of_improvement(A, B, rng=rng(3)) == better


def test_one_run_has_a_value_and_no_bounds():
    found = interval(A[:1], rng=rng(), repetitions=10)
    assert found.value == pytest.approx(iqm(A[:1]))
    better = probability_of_improvement(A[:1], B, rng=rng(), repetitions=10)
    assert np.isnan([found.low, found.high, better.low, better.high]).all()


@pytest.mark.parametrize(
    ("runs", "covered"),
    [(3, 0.75), (5, 0.84), *(pytest.param(*row, marks=pytest.mark.slow) for row in ((10, 0.90), (20, 0.93)))],
)
def test_few_runs_cover_less_than_they_say(runs, covered):
    """The table of docs/statistics.md; 1,000 trials scatter by 0.014 at most."""
    trials = rng(2).normal(size=(runs, 1000))
    picked = rng(3).integers(runs, size=(500, runs, 1000))
    low, high = percentile_bounds(resample(trials, picked).mean(1))
    assert ((low < 0) & (high > 0)).mean() == pytest.approx(covered, abs=0.04)


def test_a_wider_level_has_wider_bounds():
    half, most = (interval(A, rng=rng(), level=level) for level in (0.5, 0.99))
    assert most.low < half.low < half.value < half.high < most.high


def test_a_profile_counts_what_is_strictly_above():
    scores = [[0.0, 1.0], [1.0, 1.0]]
    assert performance_profile(scores, [-1, 0, 0.5, 1]).tolist() == [1.0, 0.75, 0.75, 0.0]


def test_scores_by_name_are_matched_by_name():
    x, y = {"easy": [1.0, 2.0], "hard": [0.0, 0.0]}, {"hard": [5.0, 5.0], "easy": [0.0, 0.0]}
    assert matrix(x).tolist() == [[1.0, 0.0], [2.0, 0.0]]
    assert probability_of_improvement(x, y, rng=rng()).value == 0.5
    with pytest.raises(ValueError, match="only one has hard"):
        probability_of_improvement(x, {"easy": [1.0]}, rng=rng())


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"easy": [1.0, 2.0], "hard": [0.0]}, "same number of runs; hard has 1, easy has 2"),
        ([], r"at least one of each; got the shape \(0, 1\)"),
        ({}, "at least one of each"),
        (1.0, "at least one of each"),
    ],
)
def test_scores_that_are_no_matrix_are_refused(scores, words):
    with pytest.raises(ValueError, match=words):
        mean(scores)


def test_scores_of_other_tasks_are_refused():
    with pytest.raises(ValueError, match="same tasks; got 6 and 2"):
        probability_of_improvement(A, B[:, :2], rng=rng())


@pytest.mark.parametrize("robot", REFERENCES)
def test_the_random_policy_scores_0_and_the_expert_100(robot):
    reference = reference_of(robot)
    assert expert_normalised([reference.random, reference.expert], reference) == pytest.approx([0.0, 100.0])
    for name in (f"{robot}_p", f"{robot}_v", f"{robot.title()}-F"):
        assert reference_of(name) is reference
    assert reference_of("Cheetah-V") is REFERENCES["half_cheetah"]
    assert reference_of("HalfCheetah-v4").expert == 12135.0 != reference_of("half_cheetah").expert, "MuJoCo, PyBullet"


def test_a_robot_without_an_expert_is_refused():
    with pytest.raises(ValueError, match="for pendulum_p; there is one for ant, half_cheetah, hopper, walker"):
        reference_of("pendulum_p")


def test_the_examples_of_the_document_run(capsys):
    session: dict = {}
    for block in [b for b in blocks("docs/statistics.md") if b.language == "python"]:
        exec(compile(block.text, "docs/statistics.md", "exec"), session)
    printed = capsys.readouterr().out
    assert session["better"].value > 0.5
    assert "| memory | return |" in printed
    assert "-19.4 9.9 Le et al. 2025, arXiv:2410.10132, table 1" in printed
    assert printed.count("would agree") == 1
