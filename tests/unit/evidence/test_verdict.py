"""Verdicts: expectations that intervals support, contradict or leave undecided, and numbers that match printed ones."""

from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest
from helpers import fast_only
from made_results import item_text
from scipy import stats as scipy_stats

from rlmem import make_env
from rlmem.evidence import catalog
from rlmem.evidence.catalog import read
from rlmem.evidence.expect import Finding, Numbers, Untestable, check, parse, parse_all
from rlmem.evidence.experiment import Experiment
from rlmem.evidence.metrics import range_of, range_of_key, range_of_returns
from rlmem.evidence.published import load as published
from rlmem.evidence.records import Record
from rlmem.evidence.statistics import ANY, contrast, runs_to_decide
from rlmem.evidence.verdict import MEAN, Outcome, _printed

RNG = np.random.default_rng


def findings(*texts: str, higher: bool = True, exact: bool = False, **runs: list[float]) -> list[Finding]:
    """What is found of runs named `ROW_COLUMN`."""
    scores = {tuple(name.split("_")): np.array(values) for name, values in runs.items()}
    rows, columns = (list(dict.fromkeys(name[side] for name in scores)) for side in (0, 1))
    return check([*map(parse, texts)], Numbers(scores, higher, exact), rows, columns)  # type: ignore[arg-type]


def states(*texts: str, **given) -> list[str]:
    return [finding.state for finding in findings(*texts, **given)]


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
    for metric, env, wrapper in (
        ("normalised area_eval", "repeat_first", "[]"),
        ("steps_to_0.9", "repeat_first", "[]"),
        ("log_last eval/greedy/return_mean", "repeat_first", "[]"),
        ("last time/cpu", "repeat_first", "[]"),
        ("final_eval", "repeat_first", "[rl2]"),
        ("final_eval", "gym", "[]"),
        ("final_eval", "CartPole-v1", "[]"),
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
        assert states("a > b", "a < b", "a = b within 0.1", **runs) == ["undecided", "undecided", "supported"]


def test_an_expectation_may_be_about_another_metric():
    scores = {("a", "x"): np.array([1.0, 1.1]), ("b", "x"): np.array([5.0, 5.1])}
    other = {"lag": {cell: -runs for cell, runs in scores.items()}}
    asked = [parse("a > b"), parse("a > b in lag")]
    found = check(asked, Numbers(scores), ["a", "b"], ["x"], other=other.__getitem__)
    assert [finding.state for finding in found] == ["contradicted", "supported"]
    assert [finding.text for finding in found] == ["a > b", "a > b in lag"]
    lower = check(asked, Numbers(scores, higher=False), ["a", "b"], ["x"], other=other.__getitem__)
    assert [finding.state for finding in lower] == ["supported", "supported"], "of another metric, more is better"


def test_a_row_may_stand_beside_itself_in_another_column():
    runs = {"a_x": [1.0, 1.1], "a_y": [2.0, 2.1], "b_x": [0.0, 0.1], "b_y": [0.0, 0.1]}
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
    runs = {"a_x": [-105.1, -104.9, -105.0], "b_x": [-100.1, -99.9, -100.0]}
    assert states("a = b within 10%", "a = b within 4%", **runs) == ["supported", "contradicted"]
    assert states("a >= b within 10%", "a >= b within 4%", **runs) == ["supported", "contradicted"]
    assert states("b >= a within 6%", "b >= a within 4%", higher=False, **runs) == ["supported", "contradicted"]


@pytest.mark.parametrize(
    ("ours", "theirs", "state"),
    [
        ([0.99, 1.01, 1.0], [1.0, 1.01, 0.99], "supported"),
        ([5.0, 5.1, 4.9], [1.0, 1.1, 0.9], "supported"),
        ([0.5, 1.5, 1.0], [1.0, 1.1, 0.9], "undecided"),
        ([0.5, 0.51, 0.49], [1.0, 1.01, 0.99], "contradicted"),
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
    runs = {"a_x": [1.0, 1.2, 1.4], "b_x": [1.5, 1.7, 1.9]}
    assert states("a > b", **runs) == ["contradicted"]
    assert states(*["a > b"] * 5, **runs) == ["undecided"] * 5


def spread(rng: np.random.Generator, kind: str, seeds: int) -> list[float]:
    """Runs of mean 0 and standard deviation 1 (`fails`: one in five is far off, `halves`: two values)."""
    draws = {
        "normal": lambda: rng.normal(size=seeds),
        "fails": lambda: np.where(rng.random(seeds) < 0.2, -1.9, 0.475) + 0.3 * rng.normal(size=seeds),
        "halves": lambda: rng.choice([-1.0, 1.0], seeds),
    }
    return [*draws[kind]()]


LEAST = {(3, 0): 0, (5, 0): 0, (10, 0): 0, (3, 0.5): 0.02, (5, 0.5): 0.07, (10, 0.5): 0.15}
LEAST |= {(3, 1): 0.05, (5, 1): 0.2, (10, 1): 0.5}
"""(seeds, effect) -> how often a true claim must be supported."""
RATES = fast_only(
    {("normal", 3, 0), ("fails", 5, 0), ("normal", 5, 1)},
    ((kind, *case) for kind in ("normal", "fails", "halves") for case in LEAST),
)


@pytest.mark.parametrize(("kind", "seeds", "effect"), RATES)
def test_error_rates(kind, seeds, effect):
    """Of 1,000 tables: a tie is called a difference in 5 % at most either way, and a true claim is hardly contradicted.

    effect: by how many standard deviations a is better
    """
    rng, found = RNG(17 * seeds + int(10 * effect)), []
    for _ in range(1000):
        a, b = spread(rng, kind, seeds), spread(rng, kind, seeds)
        found += states("a > b", a_x=[x + effect for x in a], b_x=b)
    share = {state: found.count(state) / len(found) for state in ("supported", "contradicted")}
    assert share["contradicted"] <= (0.02 if effect else 0.05), share
    assert share["supported"] >= LEAST[seeds, effect] / (1 if kind == "normal" else 4), share
    assert effect or share["supported"] <= 0.05, share


@pytest.mark.slow
def test_a_table_of_ties_is_hardly_ever_contradicted():
    rng, contradicted = RNG(0), 0
    texts = [f"a > b on {column}" for column in "uvwxyz"] + ["b > a", "a > 0 on u, v, w"]
    for _ in range(300):
        runs = {f"{row}_{column}": [*rng.normal(size=3)] for row in "ab" for column in "uvwxyz"}
        contradicted += "contradicted" in states(*texts, **runs)
    assert contradicted <= 0.05 * 300 + 5


DECIDED = [
    (text, a, seen) for text, a in (("a > b", 0.6), ("a > b", -0.8), ("a >= b within 0.5", 0.0)) for seen in (4, 10)
]


@pytest.mark.parametrize(("text", "a", "seen"), fast_only(DECIDED[:1] + DECIDED[3:4], DECIDED))
def test_the_seeds_that_would_decide_decide_four_times_in_five(text, a, seen):
    pattern = (unit := np.arange(seen) - (seen - 1) / 2) / unit.std(ddof=1)
    (finding,) = findings(text, a_x=[*(a + pattern)], b_x=[*pattern])
    assert finding.state == "undecided" and finding.seeds is not None and finding.seeds > seen
    rng, wanted = RNG(1), "contradicted" if a < -0.5 else "supported"
    draws = [(rng.normal(a, 1, finding.seeds), rng.normal(0, 1, finding.seeds)) for _ in range(1000)]
    decided = sum(states(text, a_x=[*x], b_x=[*y]) == [wanted] for x, y in draws) / len(draws)
    assert 0.76 < decided < 0.86


def test_an_equivalence_says_its_seeds_too_and_what_none_would_decide_says_none():
    (finding,) = findings("a = b within 1", a_x=[-1.0, 0.0, 1.0, 0.2], b_x=[-1.0, 0.0, 1.0, 0.1])
    assert finding.state == "undecided" and 10 < (finding.seeds or 0) < 30
    (finding,) = findings("a > b", a_x=[-1.0, 0.0, 1.0], b_x=[-1.0, 0.0, 1.0])
    assert (finding.state, finding.seeds) == ("undecided", None)
    assert runs_to_decide([contrast([(1, [1.0])])]) is None


# --- verdicts

TABLE = item_text("scores")


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
    return {(r, c): [printed[r, c] - 0.1, printed[r, c] + 0.1] for r in experiment.rows for c in experiment.columns}


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
    values["GPT", "Hopper-P"] = [200.0, 201.0]
    verdict = outcome(table, "paper", values).verdict
    assert verdict.word == "contradicted" and "LRU > GPT (Hopper-P: " in verdict.why
    (off,) = [cell for cell in verdict.cells if cell.verdict == "differs"]
    assert (off.row, off.column) == ("GPT", "Hopper-P") and off.difference == pytest.approx(200.5 - 23.8)
    values["GPT", "Hopper-P"] = [-200.0, -199.0]
    verdict = outcome(table, "paper", values).verdict
    assert verdict.word == "supported" and "1 matches (LRU), 1 differs (GPT)" in verdict.why
    values["GPT", "Hopper-P"] = [-500.0, 420.0]
    assert outcome(table, "paper", values).verdict.word == "undecided"
    bare = table.model_copy(update={"expect": ()})
    assert outcome(bare, "paper", values).verdict.word == "undecided"
    assert outcome(bare, "paper", values | {("GPT", "Hopper-P"): [-200.0, -199.0]}).verdict.word == "contradicted"
    assert outcome(bare, "laptop", values).verdict.word == "not tested here"


def test_what_lacks_runs_is_not_run(table):
    values = as_printed(table)
    del values["GPT", "Hopper-P"]
    assert outcome(table, "paper", values).verdict.word == "not run"
    assert outcome(table, "paper", {}).verdict.why == "8 of 8 runs have not ended"
    complete = outcome(table, "paper", as_printed(table))
    without = replace(complete, records=[replace(record, metrics={}) for record in complete.records])
    assert without.verdict.why == "8 of 8 runs ended without the metric final_eval"


def test_a_failed_run_is_no_number(table):
    made = outcome(table, "laptop", as_printed(table))
    broken = [replace(r, state="failed") if r.row == "GPT" else r for r in made.records]
    assert replace(made, records=broken).verdict.word == "not run"


def test_what_cannot_be_tested_is_never_a_difference(tmp_path, table):
    path = tmp_path / "table.yaml"
    skipped = "exceptions: [{row: GPT, column: Hopper-P, skip: true, reason: it falls}]\n"
    path.write_text(TABLE.replace("budgets:", skipped + "budgets:"))
    values = as_printed(read(path))
    del values["GPT", "Hopper-P"]
    verdict = outcome(read(path), "laptop", values).verdict
    assert (verdict.word, verdict.why) == ("supported", "1 of 2 expectations; 1 are not tested here")
    path.write_text(path.read_text().replace("on Ant-P, Hopper-P", "on Hopper-P"))
    assert outcome(read(path), "laptop", values).verdict.word == "not tested here"
    path.write_text(TABLE.replace("seeds: 2", "seeds: 1"))
    verdict = outcome(read(path), "paper", {cell: runs[:1] for cell, runs in as_printed(read(path)).items()}).verdict
    assert verdict.word == "not tested here"
    assert {cell.verdict for cell in verdict.cells if cell.column != MEAN} == {"not tested"}
    smoke = outcome(table, "smoke", as_printed(table)).verdict
    assert (smoke.word, smoke.findings) == ("not tested here", []), "too short to say anything of a claim"


def test_the_misprints_of_a_table_are_said(table):
    (said,) = outcome(table, "paper", {}).misprints()
    assert "LRU" in said and "87.58" in said
    shm = catalog.find("shm/table1")
    (said,) = Outcome(shm.at("paper"), []).misprints()
    assert "AutoencodeMedium of FFM repeats AutoencodeEasy" in said
    assert Outcome(catalog.find("ffm/table4").at("paper"), []).misprints() == []


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
