"""Verdicts: expectations that intervals support, contradict or leave undecided, and numbers that match printed ones."""

import json
import re
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from helpers import ROOT, fast_only
from made_results import item_text
from scipy import stats as scipy_stats

from rlmem import make_env
from rlmem.core.errors import UserError
from rlmem.evidence import catalog, expect
from rlmem.evidence.catalog import read
from rlmem.evidence.expect import Finding, Numbers, Untestable, check, parse, parse_all
from rlmem.evidence.experiment import Experiment
from rlmem.evidence.metrics import GREEDY, curve_key, range_of, range_of_key, range_of_returns
from rlmem.evidence.metrics import read as read_metrics
from rlmem.evidence.published import load as published
from rlmem.evidence.records import Record
from rlmem.evidence.registration import Look, Registration
from rlmem.evidence.statistics import ANY, Range, Sample, contrast, mean_bound, runs_to_decide
from rlmem.evidence.verdict import EXIT_CODES, MEAN, Outcome, Verdict, Word, _printed
from rlmem.record.facts import RunRecord

RNG = np.random.default_rng


def findings(
    *texts: str, higher: bool = True, exact: bool = False, possible: Range = ANY, **runs: list[float]
) -> list[Finding]:
    """What is found of runs named `ROW_COLUMN`."""
    scores = {tuple(name.split("_")): np.array(values) for name, values in runs.items()}
    rows, columns = (list(dict.fromkeys(name[side] for name in scores)) for side in (0, 1))
    numbers = Numbers(scores, higher, exact, dict.fromkeys(columns, possible))  # type: ignore[arg-type]
    return check([*map(parse, texts)], numbers, rows, columns)


def states(*texts: str, **given) -> list[str]:
    return [finding.state for finding in findings(*texts, **given)]


# --- what is counted


def test_a_metric_that_is_given_another_leaves_runs_out_and_tables_say_how_many(tmp_path):
    metric, file = "best_eval given final_eval >= 0.9", tmp_path / "holding.yaml"
    assert (curve_key(metric), range_of(metric, ["env=repeat_first"])) == (GREEDY, (-1, 1))
    with pytest.raises(UserError, match="best_evil"):
        curve_key("best_eval given best_evil >= 0.9")
    returns = [(1.0, 0.5), (0.8, 1.0), (0.7, 0.9), (0.75, 0.9), (0.1, 0.9), (0.2, 0.9), (0.9, 0.2)]
    values = []
    for best, last in returns:
        rows = [{"step": i, GREEDY: value} for i, value in enumerate((best, last))]
        (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        values.append(read_metrics(RunRecord(tmp_path), [metric])[metric])
    assert np.isnan(values).tolist() == [last < 0.9 for _, last in returns]
    file.write_text(
        item_text("holding").replace("metric: final_eval", f"metric: {metric}").replace("seeds: 3", "seeds: 4")
    )
    runs = {("a", ""): values[:4], ("b", ""): values[4:] + values[-1:]}
    held = outcome(read(file, own=True), "laptop", runs)
    assert {cell: kept.tolist() for cell, kept in held.scores().items()} == {
        ("a", ""): [1.0, 0.9, 0.9],
        ("b", ""): [0.9, 0.9],
    }
    assert [cell.ours.n for cell in held.verdict.cells] == [3, 2] and held.verdict.word == "undecided"
    assert held.notes() == [f"{metric}: runs left out: 1 of a, 2 of b"]
    runs["b", ""] = [nan] * 4
    held = outcome(read(file, own=True), "laptop", runs)
    assert held.verdict.word == "not testable here" and ("b", "") not in held.scores()


# --- intervals


def test_the_interval_is_scipy_s_and_that_of_a_mean_over_tasks_combines_theirs():
    x, y, z = RNG(0).normal(size=10), 3 * RNG(1).normal(size=7), RNG(2).normal(size=5)
    expected = scipy_stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    assert contrast([(1, x), (-1, y)]).bounds() == pytest.approx(tuple(expected))
    expected = scipy_stats.ttest_1samp(x, 0.3).confidence_interval(0.9)
    assert contrast([(1, x)], -0.3).bounds(0.9) == pytest.approx(tuple(np.array(expected) - 0.3))
    low, high = contrast([(0.5, x), (0.5, z), (-1, y)]).bounds()
    assert (low + high) / 2 == pytest.approx((x.mean() + z.mean()) / 2 - y.mean())
    parts = x.var(ddof=1) / 40, z.var(ddof=1) / 20, y.var(ddof=1) / 7
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 9 + parts[1] ** 2 / 4 + parts[2] ** 2 / 6)
    assert (high - low) / 2 == pytest.approx(scipy_stats.t.ppf(0.975, freedom) * sum(parts) ** 0.5)


def test_an_interval_needs_two_runs_and_numbers():
    for x, y in (([1.0], [1.0, 2.0]), ([1.0, nan], [1.0, 2.0]), ([1.0, 2.0], [1.0, np.inf]), ([], [1.0, 2.0])):
        assert np.isnan(contrast([(1, x), (-1, y)]).bounds()).all()
    assert contrast([(1, [2.0, 2.0]), (-1, [1.0, 1.0])]).bounds() == (1.0, 1.0)


def test_an_interval_stays_within_what_is_possible_and_around_its_value():
    runs = contrast([(1, [0.1, 0.9, 1.0])])
    low, high = runs.bounds()
    assert (low, high) == (pytest.approx(-0.5589, abs=1e-3), pytest.approx(1.8922, abs=1e-3))
    assert runs.bounds(possible=(0.0, 1.0)) == (0.0, 1.0)
    assert runs.bounds(possible=(-np.inf, 1.0)) == (low, 1.0)
    assert runs.bounds(possible=(0.0, 0.5)) == (0.0, runs.value), "a mean of what is impossible"
    assert np.isnan(contrast([(1, [0.5])]).bounds(possible=(0.0, 1.0))).all()


def test_what_is_possible_follows_from_the_metric_and_the_environment():
    assert range_of("success", ["env=gym"]) == range_of_key("eval/accuracy", "parity") == (0, 1)
    assert range_of("late_15_eval", ["env=repeat_previous"]) == range_of("mmer", ["env=autoencode"]) == (-1, 1)
    assert range_of("final_eval", ["env=copy"]) == (0, 1)
    assert range_of("best_eval", ["env=battleship"]) == (-np.inf, 1)
    assert range_of("final_eval", ["env=gym", "env.id=CartPole-v1"]) == (0, 500)
    assert range_of("normalised area_eval", ["env=gym", "env.id=Acrobot-v1"]) == pytest.approx(
        (-0.2255, 125.06), rel=1e-3
    )
    assert range_of("analysis/hidden/silhouette", ["env=parity"]) == (-1, 1)
    for metric, env, wrapper in (
        ("normalised area_eval", "repeat_first", "[]"),
        ("steps_to_0.9", "repeat_first", "[]"),
        ("log_last eval/greedy/return_mean", "repeat_first", "[]"),
        ("last time/cpu", "repeat_first", "[]"),
        ("final_eval", "repeat_first", "[rl2]"),
        ("final_eval", "gym", "[]"),
        ("final_eval", "LunarLander-v3", "[]"),
        ("analysis/hidden/silhouette_learnt", "parity", "[]"),
        ("analysis/recall/x", "copy", "[]"),
    ):
        assert range_of(metric, [f"env={env}", f"wrapper={wrapper}"]) == ANY, metric


@pytest.mark.parametrize("env", ["repeat_previous", "copy", "position_only_cartpole", "parity", "minesweeper"])
def test_the_known_scores_of_a_task_lie_within_the_returns_that_it_declares(env):
    scores = make_env(env, num_envs=1).unwrapped.scores()
    least, most = range_of_returns(env)
    assert all(least <= score <= most for score in (scores.random, scores.memoryless, scores.oracle))


def test_shown_intervals_are_bounded_where_returns_are_and_verdicts_stay(tmp_path):
    (tmp_path / "holding.yaml").write_text(item_text("holding"))
    experiment = read(tmp_path / "holding.yaml", own=True)
    values = {"a": (1.0, 0.9, -0.3), "b": (-0.9, -0.8, 0.7)}
    records = [
        Record(row, "", seed, "done", {"final_eval": value})
        for row, runs in values.items()
        for seed, value in enumerate(runs)
    ]
    verdict = Outcome(experiment.at("laptop"), records).verdict
    assert [(cell.ours.low, cell.ours.high) for cell in verdict.cells] == [(-1.0, 1.0), (-1.0, 1.0)]
    (finding,) = verdict.findings
    assert -2.0 <= finding.low < finding.high == 2.0
    scores = {(row, ""): np.array(runs) for row, runs in values.items()}
    (free,) = check([parse("a > b")], Numbers(scores), ["a", "b"], [""])
    assert free.high > 2.0
    assert (free.state, free.seeds) == (finding.state, finding.seeds) and free.state == "undecided"


# --- expectations


def test_expectations_say_what_they_mean():
    runs = {"a_x": [1.9, 2.1], "a_y": [0.1, -0.1], "b_x": [1.01, 0.99], "b_y": [1.49, 1.51]}
    assert states("a > b", **runs) == ["undecided"]  # in the mean 1.0 against 1.25
    assert states("a < b", higher=False, **runs) == ["undecided"]
    many = {name: values * 5 for name, values in runs.items()}
    assert states("a > b", **many) == states("a < b", higher=False, **many) == ["contradicted"]
    assert states("a < b", **many) == states("a > b", higher=False, **many) == ["supported"]
    assert states("a > b on x, y", **many) == ["supported", "contradicted"]
    assert states("all > 0.5 on x", **many) == ["supported", "supported"]
    assert states("a = b within 0.4", **many) == ["supported"]
    assert states("a = b within 0.28", "b = a within 0.1", **many) == ["undecided", "contradicted"]
    (mean,) = findings("a > b", **many)
    assert (mean.where, mean.left, mean.right, mean.difference) == ("mean", *map(pytest.approx, (1.0, 1.25, -0.25)))
    assert (mean.low, mean.high) == pytest.approx(
        contrast([(0.5, many["a_x"]), (0.5, many["a_y"]), (-0.5, many["b_x"]), (-0.5, many["b_y"])]).bounds()
    )


def test_clauses_have_expectations_or_a_reason_why_there_are_none():
    whole, *parts = parse_all(
        [
            "a > b",
            {"A is good": ["a > 1 on x", "a > 2 in late eval/x on x, y"], "B is bad": "not testable, as it is absent"},
        ]
    )
    assert (whole.clause, whole.metric) == ("", "")
    assert [part.clause for part in parts] == ["A is good", "A is good", "B is bad"]
    assert (parts[1].right, parts[1].metric, parts[1].on) == (2.0, "late eval/x", ("x", "y"))
    assert parts[2] == Untestable(clause="B is bad", reason="as it is absent")
    wrong = {
        "`A is good`: expected": [{"A is good": "a > 1"}],
        "`B is bad`: expected": [{"B is bad": "not testable"}],
        r"`a \? 1`: expected": ["a > b", {"A is good": ["a ? 1"]}],
        "`a = b within -1`: nothing": ["a = b within -1"],
        "`a > b at x`: `at COLUMN` is": ["a > b at x"],
        "`a > 1 at x on y`: `at COLUMN` is": ["a > 1 at x on y"],
    }
    for said, given in wrong.items():
        with pytest.raises(ValueError, match=said):
            parse_all(given)


def test_rounding_decides_nothing():
    """Of runs that are all equal, no side is better, whatever the sums of their means."""
    for columns in ("xyz", "xyzuv", "xyzuvw"):
        runs = {f"{row}_{column}": [0.9, 0.9] for row in "ab" for column in columns}
        assert states("a > b", "a < b", "a = b within 0.1", **runs) == ["undecided"] * 3


def test_an_expectation_may_be_about_another_metric():
    scores = {("a", "x"): np.array([1.0, 1.1, 1.2, 1.1]), ("b", "x"): np.array([5.0, 5.1, 5.2, 5.1])}
    other = {"lag": Numbers({cell: -runs for cell, runs in scores.items()})}
    for text, higher, state in (
        ("a > b", True, "contradicted"),
        ("a > b in lag", True, "supported"),
        ("a > b", False, "supported"),
        ("a > b in lag", False, "supported"),  # of another metric, more is better
    ):
        (found,) = check([parse(text)], Numbers(scores, higher), ["a", "b"], ["x"], other=other.__getitem__)
        assert (found.state, found.text) == (state, text)


def test_a_row_may_stand_beside_itself_in_another_column():
    pairs = {"a_x": [1.0, 1.1], "a_y": [2.0, 2.1], "b_x": [0.0, 0.1], "b_y": [0.0, 0.1]}
    runs = {name: values * 3 for name, values in pairs.items()}
    assert states("a > a at x on y", "a > a at y on x", "a = b at y within 2 on x", **runs) == [
        "supported",
        "contradicted",
        "supported",
    ]
    assert states("a > a at z on y", **runs) == ["not tested"]


def test_an_equivalence_is_two_one_sided_tests():
    x, y = [*RNG(0).normal(0.05, 0.1, 12)], [*RNG(1).normal(0, 0.1, 12)]
    for within in (0.05, 0.1, 0.15, 0.2):
        tests = [scipy_stats.ttest_ind(np.array(x) + shift, y, equal_var=False) for shift in (within, -within)]
        p = max(tests[0].pvalue / 2, tests[1].pvalue / 2)
        right = tests[0].statistic > 0 > tests[1].statistic
        assert (states(f"a = b within {within}", a_x=x, b_x=y) == ["supported"]) == (right and p < 0.05), within


def test_how_far_apart_may_be_a_part_of_the_right_side():
    runs = {"a_x": [-105.1, -104.9, *[-105.0] * 3], "b_x": [-100.1, -99.9, *[-100.0] * 3]}
    assert states("a = b within 10%", "a = b within 4%", **runs) == ["supported", "contradicted"]
    assert states("a >= b within 10%", "a >= b within 4%", **runs) == ["supported", "contradicted"]
    assert states("b >= a within 6%", "b >= a within 4%", higher=False, **runs) == ["supported", "contradicted"]


def test_where_the_range_is_known_it_is_a_part_of_the_range():
    runs = {"a_x": [-0.1, 0.0, 0.1, 0.05] * 20, "b_x": [0.1, 0.2, 0.3, 0.25] * 20}
    assert states("a >= b within 25%", possible=(-1, 1), **runs) == ["supported"]
    assert states("a >= b within 5%", possible=(-1, 1), **runs) == ["contradicted"]
    assert states("a >= b within 25%", **runs) == ["contradicted"], "of the right side, 0.2"


@pytest.mark.parametrize(
    ("ours", "theirs", "state"),
    [
        ([0.99, 1.01, 1.0], [1.0, 1.01, 0.99], "supported"),
        ([5.0, 5.1, 4.9], [1.0, 1.1, 0.9], "supported"),
        ([0.5, 1.5, 1.0], [1.0, 1.1, 0.9], "undecided"),
        ([0.5, 0.51, 0.49, 0.5], [1.0, 1.01, 0.99, 1.0], "contradicted"),
        ([0.5, 0.51], [1.0, 1.01], "undecided"),
        ([1.0], [1.0, 1.0], "not tested"),
        ([1.0, 1.1], [1.0], "not tested"),
        ([1.0, nan], [1.0, 1.0], "undecided"),
        ([1.0, 1.0], [1.0, np.inf], "undecided"),
        ([], [1.0, 1.0], "not tested"),
    ],
)
def test_a_side_is_not_inferior_if_the_whole_interval_says_so(ours, theirs, state):
    (finding,) = findings("a >= b within 0.1 on x", a_x=ours, b_x=theirs)
    assert finding.state == state
    (turned,) = findings("a >= b within 0.1", higher=False, a_x=[-x for x in ours], b_x=[-x for x in theirs])
    assert turned.state == state, "less is better"


def test_what_a_budget_lacks_and_one_run_are_not_tested_but_exact_numbers_are():
    run = {"a_x": [1.0], "b_x": [0.0]}
    assert states("a > b", "a > 0.5", "c > b", "a > b on x, z", **run) == ["not tested"] * 5
    assert states("a > b", "a < 0.5", "a = b within 2", exact=True, **run) == ["supported", "contradicted", "supported"]


def test_a_contradiction_of_one_of_many_expectations_needs_more():
    runs = {"a_x": [1.0, 1.2, 1.4, 1.2], "b_x": [1.4, 1.6, 1.8, 1.6]}
    assert states("a > b", **runs) == ["contradicted"]
    assert states(*["a > b"] * 5, **runs) == ["undecided"] * 5
    assert states("a > b", *["a > b on y"] * 5, **runs) == ["contradicted", *["not tested"] * 5], (
        "of those that are tested"
    )
    far = {"a_x": [1.0, 1.1, 1.2], "b_x": [9.0, 9.1, 9.2]}
    assert states("a > b", "b > a", **far) == ["undecided", "supported"], "one of 20 orders is as far apart"
    assert states("b > a", a_x=far["a_x"][:2], b_x=far["b_x"][:2]) == ["undecided"], "one in six"


DRAWS = {
    "normal": lambda rng, size: rng.normal(0, 0.25, size).clip(-1, 1),
    "halves": lambda rng, size: rng.choice([-0.9, 0.9], size) + 0.02 * rng.normal(size=size),
    "coins": lambda rng, size: rng.choice([-1.0, 1.0], size),
    "ceiling": lambda rng, size: rng.normal(1.05, 0.2, size).clip(-1, 1),
    "fails": lambda rng, size: np.where(rng.random(size) < 1 / 7, -0.5, 0.95) + 0.02 * rng.normal(size=size),
}
"""Returns in [-1, 1] of equally good agents: alike, of two kinds, mostly at the best return, failing once in seven."""
MEANS = {kind: float(draw(RNG(9), 1_000_000).mean()) for kind, draw in DRAWS.items()}
SIZES = [(kind, seeds) for kind in DRAWS for seeds in (3, 5, 10)]
MARGIN = 0.1


def shares(kind: str, seeds: int, texts: list[str], tables: int = 400) -> tuple[float, float]:
    """The share of supported expectations, and that of tables of which one is contradicted, among drawn ones.

    The rows a to f are draws of a kind. The row `better` has the mean of the kind plus MARGIN in every run.
    """
    rng, parsed, supported, contradicted = RNG(seeds), [*map(parse, texts)], 0, 0
    for _ in range(tables):
        scores = {(row, "x"): DRAWS[kind](rng, seeds) for row in "abcdef"}
        scores["better", "x"] = np.clip(MEANS[kind] + MARGIN + 0.001 * rng.normal(size=seeds), -1, 1)
        numbers = Numbers(scores, possible={"x": (-1.0, 1.0)})
        found = [finding.state for finding in check(parsed, numbers, [row for row, _ in scores], ["x"])]
        supported += found.count("supported")
        contradicted += "contradicted" in found
    return supported / tables / len(texts), contradicted / tables


@pytest.fixture
def without_seeds(monkeypatch):
    """What is undecided does not say how many seeds would decide it, which takes most of the time."""
    monkeypatch.setattr(expect, "runs_to_decide", lambda *_: None)


FALSE = [
    "a > {mean}",
    "a < {mean}",
    "a >= {above} within 0.1",
    "a = {above} within 0.1",
    "a >= better within 0.1",
    "a = better within 0.1",
    "a > b",
]
"""Expectations that just do not hold, of rows with this mean, and a number and a row that are better by MARGIN."""
CASES = [(text, *size) for text in FALSE for size in SIZES]


@pytest.mark.usefixtures("without_seeds")
@pytest.mark.parametrize(("text", "kind", "seeds"), fast_only({CASES[12]}, CASES))
def test_what_is_just_not_so_is_supported_in_a_fortieth_of_cases_at_most(text, kind, seeds):
    """In 2.5 %, and twice the standard error of that."""
    mean = MEANS[kind]
    supported, _ = shares(kind, seeds, [f"{text} on x".format(mean=mean, above=mean + MARGIN)])
    assert supported <= 0.025 + 2 * (0.025 / 400) ** 0.5


TIES = [[f"a > {row} on x" for row in "bcdef"], [f"{row} > {{mean}} on x" for row in "abcde"]]


@pytest.mark.usefixtures("without_seeds")
@pytest.mark.parametrize("texts", fast_only(lambda texts: texts is TIES[0], TIES), ids=("rows", "thresholds"))
@pytest.mark.parametrize(("kind", "seeds"), fast_only({("halves", 3)}, SIZES))
def test_an_item_of_five_expectations_about_ties_is_hardly_ever_contradicted(kind, seeds, texts):
    supported, contradicted = shares(kind, seeds, [text.format(mean=MEANS[kind]) for text in texts])
    assert supported <= 0.025 + 2 * (0.025 / 400) ** 0.5 and contradicted <= 0.05


LEAST = {(3, 0.5): 0.02, (5, 0.5): 0.07, (10, 0.5): 0.15, (3, 1): 0.05, (5, 1): 0.2, (10, 1): 0.5}
"""(seeds, difference in standard deviations) -> how often a true claim must be supported."""


@pytest.mark.usefixtures("without_seeds")
@pytest.mark.parametrize(("seeds", "effect"), fast_only({(5, 1)}, LEAST))
def test_what_is_so_is_supported(seeds, effect):
    rng, found = RNG(seeds), []
    for _ in range(400):
        found += states("a > b", a_x=[*rng.normal(effect, 1, seeds)], b_x=[*rng.normal(0, 1, seeds)])
    assert found.count("supported") >= LEAST[seeds, effect] * len(found)
    assert found.count("contradicted") <= 0.02 * len(found)


def test_the_mean_of_equal_runs_has_the_bound_of_clopper_and_pearson():
    for runs in (2, 3, 5, 10, 30):
        assert mean_bound(np.ones(runs), 0.0, 0.025) == pytest.approx(0.025 ** (1 / runs))
        assert mean_bound(-np.ones(runs), 1.0, 0.025) == pytest.approx(1 - 2 * 0.025 ** (1 / runs))
    assert mean_bound([1.0] * 9 + [0.0], 0.0, 0.025) == pytest.approx(scipy_stats.beta.ppf(0.025, 9, 2))
    assert mean_bound([0.3, 0.3], 0.3, 0.025) == 0.3
    x = RNG(0).random(6)
    weights = RNG(1).dirichlet(np.ones(7), 200_000)
    assert mean_bound(x, 0.0, 0.025) == pytest.approx(np.quantile(weights @ [0.0, *x], 0.025), abs=2e-3)
    assert mean_bound(x, 1.0, 0.025) == pytest.approx(np.quantile(weights @ [1.0, *x], 0.975), abs=2e-3)


def test_equal_runs_say_how_many_are_so_and_little_of_the_mean():
    runs = {"a_x": [1.0, 1.0, 1.0], "b_x": [1.0, 1.0, 1.0]}
    (finding,) = findings("a > 0.9", possible=(0, 1), **runs)
    assert (finding.state, finding.runs, finding.seeds) == ("undecided", "3 of 3", (36, 36))
    assert finding.low == pytest.approx(0.025 ** (1 / 3) - 0.9)
    assert states("a > 0.9", possible=(0, 1), a_x=[1.0] * 36) == ["supported"]
    assert states("a > 0.28", "a = b within 0.1", "a > b", possible=(0, 1), **runs) == ["supported", *["undecided"] * 2]
    two = contrast([Sample(1, np.ones(3), (0.0, 1.0)), Sample(-1, np.ones(3), (0.0, 1.0))])
    assert two.with_one_more() == pytest.approx((0.025 ** (1 / 3) - 1, 1 - 0.025 ** (1 / 3)))


@pytest.mark.parametrize(
    ("effect", "seen", "enough"), fast_only({(1, 5, 17)}, [(1, 5, 17), (0.5, 5, 64), (1, 10, 17), (1.5, 3, 9)])
)
def test_the_seeds_that_would_decide_cover_the_number_that_does(effect, seen, enough):
    """`enough` seeds decide with a chance of four in five; the range has it in about as many of the undecided cases."""
    rng, ranges = RNG(1), []
    for _ in range(100):
        (finding,) = findings("a > b", a_x=[*rng.normal(effect, 1, seen)], b_x=[*rng.normal(0, 1, seen)])
        ranges += [finding.seeds] if finding.state == "undecided" else []
    assert all(ranges) and np.mean([least <= enough <= (most or enough) for least, most in ranges]) > 0.74
    chances = [(rng.normal(effect, 1, enough), rng.normal(0, 1, enough)) for _ in range(400)]
    assert 0.72 < np.mean([states("a > b", a_x=[*x], b_x=[*y]) == ["supported"] for x, y in chances]) < 0.88


def test_an_equivalence_says_its_seeds_too_and_what_none_would_decide_says_none():
    (finding,) = findings("a = b within 1.3", a_x=[-1.0, 0.0, 1.0, 0.2], b_x=[-1.0, 0.0, 1.0, 0.1])
    assert finding.state == "undecided" and finding.needed == "5 to 116"
    (finding,) = findings("a > b", a_x=[-1.0, 0.0, 1.0], b_x=[-1.0, 0.0, 1.0])
    assert finding.state == "undecided" and finding.needed.endswith(" or more")
    (finding,) = findings("a > b", a_x=[1.0, 1.0, 1.0], b_x=[1.0, 1.0, 1.0])
    assert (finding.state, finding.seeds, finding.needed) == ("undecided", None, "")
    assert runs_to_decide([contrast([(1, [1.0])])]) is None
    for far in (1e-6, 1e-9, 1e-12):
        assert findings("a > 0.9", possible=(-1, 1), a_x=[1.0, 1.0, 1.0 - far])[0].state == "undecided"
    assert findings("a > 0.5", a_x=[1.0] * 4)[0].needed == "", "no number of equal runs decides"


# --- verdicts

TABLE = item_text("scores").replace("seeds: 2", "seeds: 3")


@pytest.fixture
def table(tmp_path: Path) -> Experiment:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE)
    return read(path)


def outcome(experiment: Experiment, budget: str, values: dict[tuple[str, str], list[float]]) -> Outcome:
    metric = experiment.at(budget).metric
    records = [
        Record(row, column, seed, "done", {metric: value})
        for (row, column), runs in values.items()
        for seed, value in enumerate(runs)
    ]
    return Outcome(experiment.at(budget), records)


def as_printed(experiment: Experiment) -> dict[tuple[str, str], list[float]]:
    printed = {(n.model, n.task): n.mean for n in published("rethinking_transformers", "table2")}
    runs = lambda mean: [mean - 0.1, mean, mean + 0.1]  # noqa: E731
    return {(r, c): runs(printed[r, c]) for r in experiment.rows for c in experiment.columns}


def test_numbers_as_printed_match_and_only_at_the_paper_s_budget(table):
    values = as_printed(table)
    verdict = outcome(table, "paper", values).verdict
    assert verdict.word == "matches"
    assert {cell.verdict for cell in verdict.cells if cell.column != MEAN} == {"matches"}
    cell = verdict.cells[0]
    assert cell.paper is not None and cell.paper.mean == pytest.approx(81.2)
    assert cell.difference == pytest.approx(0.0, abs=1e-9)
    assert (cell.ours.low, cell.ours.high) == pytest.approx(contrast([(1, values["LRU", "Ant-P"])]).bounds())
    verdict = outcome(table, "laptop", values).verdict
    assert (verdict.word, verdict.why) == ("supported", "2 of 2 expectations")
    assert {cell.verdict for cell in verdict.cells} == {None}


def test_the_word_follows_from_the_expectations_and_the_numbers(table):
    values = as_printed(table)
    values["GPT", "Hopper-P"] = [200.0, 201.0, 202.0]
    assert outcome(table, "paper", values).verdict.word == "undecided", "three runs against three, one of two"
    values = {cell: runs * 2 for cell, runs in values.items()}
    verdict = outcome(table, "paper", values).verdict
    assert outcome(table, "laptop", values).verdict.word == "contradicted", "with the settings of the paper"
    assert verdict.word == "contradicted" and "LRU > GPT (Hopper-P: " in verdict.why
    (off,) = [cell for cell in verdict.cells if cell.verdict == "differs"]
    assert (off.row, off.column) == ("GPT", "Hopper-P") and off.difference == pytest.approx(201 - 23.8)
    values["GPT", "Hopper-P"] = [-200.0, -199.0, -198.0] * 2
    verdict = outcome(table, "paper", values).verdict
    assert verdict.word == "supported" and "1 matches (LRU), 1 differs (GPT)" in verdict.why
    values["GPT", "Hopper-P"] = [-500.0, 420.0, 0.0] * 2
    assert outcome(table, "paper", values).verdict.word == "undecided"
    bare = table.model_copy(update={"expect": ()})
    assert outcome(bare, "paper", values).verdict.word == "undecided"
    assert (
        outcome(bare, "paper", values | {("GPT", "Hopper-P"): [-200.0, -199.0, -198.0]}).verdict.word == "contradicted"
    )
    assert outcome(bare, "laptop", values).verdict.word == "not testable here"


def test_what_lacks_runs_is_not_run(table):
    values = as_printed(table)
    del values["GPT", "Hopper-P"]
    assert outcome(table, "paper", values).verdict.word == "not run"
    assert outcome(table, "paper", {}).verdict.why == "12 of 12 runs have not ended"
    complete = outcome(table, "paper", as_printed(table))
    without = replace(complete, records=[replace(record, metrics={}) for record in complete.records])
    assert without.verdict.why == "12 of 12 runs ended without the metric final_eval"


def test_a_failed_run_is_no_number(table):
    made = outcome(table, "laptop", as_printed(table))
    broken = [replace(r, state="failed") if r.row == "GPT" else r for r in made.records]
    assert replace(made, records=broken).verdict.word == "not run"


def test_the_words_are_in_one_table_with_their_exit_codes():
    page = (
        (ROOT / "docs/experiments.md")
        .read_text()
        .partition("<!-- words:begin -->")[2]
        .partition("<!-- words:end -->")[0]
    )
    table = {word: int(code) for word, code in re.findall(r"^\| `(.+?)` \|.*\| (\d+) \|$", page, re.MULTILINE)}
    assert table == EXIT_CODES and {*table} == {*get_args(Word)}


def test_a_contradiction_names_the_scale_of_its_runs(tmp_path):
    path = tmp_path / "table.yaml"
    path.write_text(TABLE.replace("laptop: {}", "laptop: {overrides: [total_steps=100]}"))
    values = {cell: runs * 2 for cell, runs in as_printed(read(path)).items()}
    values["GPT", "Hopper-P"] = [200.0, 201.0, 202.0] * 2
    words = [outcome(read(path), budget, values).verdict.word for budget in ("laptop", "paper")]
    assert words == ["contradicted at this scale", "contradicted"]


def test_a_mean_over_some_of_the_columns_tests_nothing_about_all(tmp_path):
    path, values = tmp_path / "table.yaml", {("LRU", "Ant-P"): [1.0, 1.1, 0.9], ("GPT", "Ant-P"): [0.0, 0.1, -0.1]}
    text = TABLE.replace("laptop: {}", "laptop: {columns: [Ant-P]}").replace(" on Ant-P, Hopper-P", "")
    path.write_text(text)
    assert outcome(read(path), "laptop", values).verdict.word == "not testable here"
    path.write_text(text.replace("columns: [Ant-P]}", "columns: [Ant-P], expect: [LRU > GPT]}"))
    assert outcome(read(path), "laptop", values).verdict.word == "supported"


def test_seeds_that_are_added_after_a_look_count_alone_or_at_the_level_of_pocock(tmp_path):
    path = tmp_path / "table.yaml"
    path.write_text(item_text("holding").replace("seeds: 3", "seeds: 6"))
    values = {("a", ""): [1.0, 0.9, 0.95, 0.1, 0.2, 0.15], ("b", ""): [0.0, 0.1, 0.05, 0.1, 0.2, 0.15]}

    def verdict(*looks: tuple[int, ...], registered: str = "2026-01-01T00:00:00+00:00") -> Verdict:
        seen = tuple(Look(f"2026-01-0{day}T00:00:00+00:00", seeds) for day, seeds in enumerate(looks, 2))
        made = outcome(read(path), "laptop", values)
        known = Registration((replace(made.planned.version, registered=registered),), looks=seen)
        return replace(made, planned=replace(made.planned, registration=known)).verdict

    whole, fresh = verdict(), verdict((0, 1, 2))
    assert (whole.findings[0].left, fresh.findings[0].left) == pytest.approx((0.55, 0.15))
    assert fresh.changed == "seeds 0 to 2 were looked at before (2026-01-02); the verdict counts the others only"
    assert verdict((0, 1, 2), tuple(range(6))) == fresh and verdict(tuple(range(6)), (0, 1, 2)) == whole
    assert verdict((7, 8)) == whole
    path.write_text(path.read_text().replace("laptop: {", "laptop: {looks: 2, "))
    planned = verdict((0, 1, 2))
    assert planned.findings[0].left == pytest.approx(0.55) and not planned.changed
    assert verdict((0, 1, 2), registered="2026-01-03T00:00:00+00:00") == fresh, "planned after the first look"
    runs = {row: np.array(of_row) for (row, _), of_row in values.items()}
    assert planned.findings[0].low == pytest.approx(contrast([(1, runs["a"]), (-1, runs["b"])]).bounds(0.9706)[0])


def test_what_cannot_be_tested_is_never_a_difference(tmp_path, table):
    path = tmp_path / "table.yaml"
    skipped = "exceptions: [{row: GPT, column: Hopper-P, skip: true, reason: it falls}]\n"
    path.write_text(TABLE.replace("budgets:", skipped + "budgets:"))
    values = as_printed(read(path))
    del values["GPT", "Hopper-P"]
    verdict = outcome(read(path), "laptop", values).verdict
    assert (verdict.word, verdict.why) == (
        "part supported",
        "1 of 2 expectations; 1 of 2 clauses are not tested here",
    )
    path.write_text(path.read_text().replace("on Ant-P, Hopper-P", "on Hopper-P"))
    assert outcome(read(path), "laptop", values).verdict.word == "not testable here"
    path.write_text(TABLE.replace("seeds: 3", "seeds: 1"))
    verdict = outcome(read(path), "paper", {cell: runs[:1] for cell, runs in as_printed(read(path)).items()}).verdict
    assert verdict.word == "not testable here"
    assert {cell.verdict for cell in verdict.cells if cell.column != MEAN} == {"not tested"}
    smoke = outcome(table, "smoke", as_printed(table)).verdict
    assert (smoke.word, smoke.findings) == ("not testable here", []), "too short to say anything of a claim"


def test_the_misprints_of_a_table_are_said(table):
    (said,) = outcome(table, "paper", {}).notes()
    assert "LRU" in said and "87.58" in said
    shm = catalog.find("shm/table1")
    (said,) = Outcome(shm.at("paper"), []).notes()
    assert "AutoencodeMedium of FFM repeats AutoencodeEasy" in said
    assert Outcome(catalog.find("ffm/table4").at("paper"), []).notes() == []


PUBLISHED = [name for name in catalog.names() if catalog.find(name).published]


@pytest.mark.parametrize("name", PUBLISHED)
def test_printed_numbers_match_themselves_and_half_a_standard_deviation_worse_they_do_not(name):
    experiment = catalog.find(name)
    planned = experiment.at("paper")
    columns = list(dict.fromkeys(cell.column for cell in planned.cells()))
    printed = _printed(planned, columns)

    def fed(worse: float, **changes) -> str:
        values = {}
        for cell in planned.cells():
            number = printed.get((cell.row, cell.column)) or printed.get((cell.row, MEAN))
            shift = worse * (number.std or 0) * (-1 if experiment.higher else 1) if number else 0
            value = (number.mean + shift) / planned.scale if number else nan
            values[cell.row, cell.column] = [value] * len(cell.seeds)
        return outcome(experiment.model_copy(update=changes), "paper", values).verdict.word

    assert fed(0) == "matches"
    if any(number.std for number in printed.values()):
        assert fed(0.5) != "matches" and fed(0.49, expect=()) == "matches"
