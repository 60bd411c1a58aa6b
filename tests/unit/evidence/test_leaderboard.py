"""Leaderboards: scores, ranks and their page, and rows of a user's own beside shipped ones."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_results import BOARD, ranked

from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.config.targets import build
from rlmem.core.errors import UserError
from rlmem.evidence import catalog, records
from rlmem.evidence.folder import parse_rows
from rlmem.evidence.leaderboard import games, ranking, size_of, standings
from rlmem.evidence.page import leaderboard as board_page
from rlmem.evidence.page.find import Item, find
from rlmem.evidence.records import Record, read_results, write_results
from rlmem.evidence.statistics import iqm, ranks
from rlmem.record.tables import cell_text

STATE = 256
UNEQUAL = {"mlp": 0, "frame_stack": 257, "shm": 258, "gpt": 8065, "gtrxl": 8065}
"""The states of the leaderboard whose size is not STATE, and why its file says."""


def run(*arguments: object) -> int:
    return main(["reproduce", *map(str, arguments)])


@pytest.fixture
def small(in_tmp: Path) -> Path:
    (in_tmp / "mine").mkdir()
    path = in_tmp / "mine" / "board.yaml"
    path.write_text(BOARD)
    return path


def test_ranks_are_those_of_every_resample():
    scores = {"a": [[0.9], [1.0]], "b": [[0.0], [0.95]], "c": [[0.1], [0.1]], "d": [[0.05]]}
    found = ranks(scores, iqm, rng=np.random.default_rng(0))
    assert {name: each.value for name, each in found.items()} == {"a": 1, "b": 2, "c": 3, "d": 4}
    # b is 0, 0.475 or 0.95: below d, between, or above a at its worst, each in a quarter of the resamples and more.
    assert [(found[name].low, found[name].high) for name in "abc"] == [(1, 2), (1, 4), (2, 3)]
    assert np.isnan(found["d"].low), "one run says nothing of others"
    equal = ranks({"a": [[0.5]], "b": [[0.5]], "c": [[np.nan]]}, rng=np.random.default_rng(0))
    assert [each.value for each in equal.values()] == [1, 1, 3]


def test_scores_are_shares_of_what_memory_can_gain_over_seeds_that_have_every_game(small):
    values = {"mlp": [[-0.9, 0.25], [-0.5, 0.1]], "gru": [[1.0, 0.625], [0.25, 2.0]], "half": [[0.25, np.nan]]}
    values["mine"] = [[1.0, 1.0], [1.0, np.nan]]
    found = standings(ranked(small, values))
    assert found is not None
    assert found.lacking == {"half": {0: ["copy"]}, "mine": {1: ["copy"]}}
    assert found.scores["gru"]["first"].tolist() == [1.0, 0.5] and found.scores["gru"]["copy"].tolist() == [0.5, 1.0]
    assert not any(runs.any() for runs in found.scores["mlp"].values()), "below the best play without memory is 0"
    assert list(found.aggregate) == ["mine", "gru", "mlp"]
    assert found.aggregate["gru"].value == 0.75 and found.aggregate["mine"].runs == 1
    assert (found.cost("gru"), found.better("gru"), found.better("mlp").value) == (15.0, None, 0.0)
    table = ranking(found)
    shown = [[cell_text(cell) for cell in row] for row in table.rows]
    assert [row[:2] for row in shown] == [
        ["1", "mine (yours, larger state)"],
        ["2 [1, 2]", "gru"],
        ["3 [3, 3]", "mlp"],
    ]
    assert table.columns[4:6] == ["rank by area_eval", "score by area_eval [95 %]"]
    assert [row[4] for row in shown] == ["2", "2 [2, 2]", "1 [1, 1]"]
    assert [row[8] for row in shown] == ["256", "8", "0"], "numbers in the state"
    for text in (table.markdown(), table.latex(), table.text()):
        assert "Not ranked, without a result in copy: half, seed 0." in text and "in copy: mine, seed 1." in text
        assert "machines" not in text
    assert [cell_text(cell) for cell in games(found).rows[1]] == ["gru", "0.750", "0.750"]
    assert standings(replace(ranked(small, values), planned=catalog.find("rlmem/pqn").at("laptop"))) is None


def test_a_row_changes_nothing_of_the_comparison_of_others(small):
    """Six digits of a number are kept: a run is not better than the same one in a file. Below 0, runs differ, too."""
    values = {"gru": [[0.1234567891, 0.2], [0.3, 0.4]], "mlp": [[0.1234571, 0.1], [0.3, 0.1]]}
    found = standings(ranked(small, values))
    assert found.better("mlp").value == 0.25, "two ties and a win of four pairs in one game, and none in the other"
    outcome = ranked(small, values | {"mine": [[-0.9, -0.9]] * 2})
    first = replace(outcome, records=sorted(outcome.records, key=lambda record: record.row != "mine"))
    for joined in map(standings, (outcome, first)):
        assert {row: joined.ranks[row] for row in values} == found.ranks
        assert {row: joined.aggregate[row] for row in values} == found.aggregate
        assert joined.better("mine").value == 0.0
    elsewhere = replace(outcome, records=[replace(r, machine=r.row) for r in outcome.records])
    assert "different machines, and do not compare: gru; mine; mlp." in ranking(standings(elsewhere)).markdown()


def test_a_page_keeps_what_stands_around_the_leaderboard(small):
    experiment = ranked(small, {"gru": [[1.0, 1.0]] * 2, "mlp": [[0.1, 0.5]] * 2, "half": [[1.0, np.nan]] * 2})
    page = Path("board.md")
    page.write_text("before\n\n<!-- leaderboard:begin -->\nearlier\n<!-- leaderboard:end -->\n\nafter\n")
    for _ in range(2):
        assert board_page.page(experiment, page) == [page, Path("images/board.svg")]
        text = page.read_text()
        assert text.startswith("before\n\n<!--") and text.endswith("-->\n\nafter\n") and "earlier" not in text
        assert "| 1 [1, 1] | gru | 1.00" in text and "Not ranked, without a result in copy: half, seed 0, 1." in text
        assert text.count("](images/board.svg)") == 1
    assert Path("images/board.svg").stat().st_size > 1000
    page.write_text("nothing")
    with pytest.raises(UserError, match="expected one line <!-- leaderboard:begin -->"):
        board_page.page(experiment, page)
    with pytest.raises(UserError, match="no row of mine/board has a run of every game yet"):
        board_page.page(ranked(small, {"half": [[1.0, np.nan]]}), page)


def test_rows_of_ones_own_are_parsed():
    found = parse_rows(["mine=memory=leaky,memory.sizes=[1,2],+memory.x=a", "b-2=memory._target_=leaky.Leaky"])
    assert found["mine"] == ("memory=leaky", "memory.sizes=[1,2]", "+memory.x=a")
    assert found["b-2"] == ("memory._target_=leaky.Leaky",)
    for wrong in (["mine"], ["mine=leaky"], ["my row=memory=gru"], ["a=memory=gru", "a=memory=gru"]):
        with pytest.raises(UserError, match=r"e\.g\. --rows mine=memory=my_memory"):
            parse_rows(wrong)


@pytest.mark.slow
def test_a_memory_of_ones_own_joins_with_one_command_beside_shipped_runs(small, capsys, monkeypatch):
    """It runs alone, in the item's folder, which remembers it; what else there is comes from the shipped results."""
    experiment = catalog.find(str(small))
    shipped = [
        Record(c.row, c.column, seed, "done", {"final_eval": 0.5}, 128, 1.0, overrides=" ".join(c.lines(seed)))
        for c in experiment.at("laptop").cells()
        for seed in c.seeds
    ]
    shipped[-1] = replace(shipped[-1], overrides="of another version of the file")
    Path("shipped/mine").mkdir(parents=True)
    write_results(shipped, Path("shipped/mine/board.laptop.csv"))
    monkeypatch.setattr(records, "results_dir", lambda: Path("shipped"))
    add = (small, "--rows", "mine=memory=gru,memory.hidden_size=4", "--seeds", "0")
    assert run(*add, "--dry-run") == 0 and not Path("reproduce").exists()
    said = capsys.readouterr().out
    assert "2 cells, 2 runs" in said and re.search(r"states of their memories: mine [\d,]+ and 4$", said, re.M)
    assert run(*add, "--jobs", "1", "--page", "board.md") == 0
    said = capsys.readouterr().out
    assert "mine (yours)" in said and "2 of 12 runs" not in said
    made = read_results(Path("reproduce/mine/board-laptop/results.csv"))
    assert len(made) == 2 + 7, "the shipped run of another version is not of this table"
    assert [(r.row, r.column, r.seed) for r in made if r.row == "mine"] == [("mine", c, 0) for c in ("first", "copy")]
    assert all(r.metrics["last time/cpu"] > 0 for r in made if r.row == "mine")
    assert json.loads(Path("reproduce/mine/board-laptop/cells.json").read_text())["rows"] == {
        "mine": ["memory=gru", "memory.hidden_size=4"]
    }
    assert run(small, "--show") == 0 and "mine (yours)" in capsys.readouterr().out
    (section,) = find([Path("reproduce")])
    assert isinstance(section, Item) and section.tables()[0].title.startswith("mine/board, budget laptop")
    assert [row[1] for row in section.tables()[0].rows] == ["gru", "mlp", "mine (yours)"]
    for arguments, what in [
        (("--publish", "results"), "the rows mine are not in its file"),
        (("--rows", "gru=memory=gru"), "is a name of the file already"),
        (("--show", "--rows", "b=memory=gru"), "--rows: --show shows all that there is"),
        (("--rows", "b=memory=gru", "--cells", "gru"), "of --rows, no such cell"),
        (("--rows", "b=memory=gur"), "did you mean"),
    ]:
        assert run(small, *arguments) == 2
        assert what in capsys.readouterr().err
    assert run("rlmem/pqn", "--page", "a.md", "--dry-run") == 2
    assert "only items with a leaderboard have one" in capsys.readouterr().err


# --- the shipped leaderboards


@pytest.mark.slow
def test_the_bounds_are_those_of_the_rule_cards():
    experiment = catalog.find("rlmem/leaderboard")
    unknown = set()
    for column, bounds in experiment.leaderboard.bounds.items():
        known = game(column).scores()
        for ours, theirs in zip(bounds, (known.memoryless, known.oracle), strict=True):
            unknown |= {column} if np.isnan(theirs) else set()
            assert np.isnan(theirs) or ours == pytest.approx(theirs, abs=5e-4), column
    assert unknown == {"repeat_previous", "bandit"}, "held by the next test"


def test_the_bounds_that_no_rule_card_has_are_returns_of_players():
    repeat, bandit = game("repeat_previous", 2000), game("bandit", 10_000)
    rng = np.random.default_rng(0)
    arms, slots = bandit.single_action_space.n, bandit.episode_steps()[1]
    every = np.arange(bandit.num_envs)
    last, plays, wins = np.zeros(bandit.num_envs, int), *np.zeros((2, bandit.num_envs, arms))

    def stays_after_a_win(paid):
        last[:] = (last + (1 - paid)) % arms
        return last

    def explores(paid):
        """The arm with the highest upper bound of its chance, which comes down to the estimate by the end."""
        left = (1 - plays[0].sum() / slots) ** 0.5
        wins[every, last] += paid
        mean = (wins + 1) / (plays + 2)
        last[:] = (mean + 1.75 * left * (mean * (1 - mean) / (plays + 3)) ** 0.5).argmax(1)
        plays[every, last] += 1
        return last

    bounds = catalog.find("rlmem/leaderboard").leaderboard.bounds
    found = {
        "repeat_previous": (
            played(repeat, lambda _: repeat.memoryless(rng)),
            played(repeat, lambda _: repeat.oracle()),
        ),
        "bandit": (played(bandit, stays_after_a_win), played(bandit, explores)),
    }
    for column, players in found.items():
        for bound, returns in zip(bounds[column], players, strict=True):
            error = returns.std() / len(returns) ** 0.5
            assert abs(returns.mean() - bound) <= 4 * error + 5e-4, (column, returns.mean(), error)


def game(column, num_envs=1):
    """The environment of a column, as it is in evaluation."""
    experiment = catalog.find("rlmem/leaderboard")
    node = load([*experiment.overrides, *experiment.columns[column]]).values["env"]
    return build(
        {key: v for key, v in node.items() if key != "evaluation"} | node["evaluation"] | {"num_envs": num_envs}
    )


def played(env, act):
    """The return of an episode in every environment, of a game whose episodes are equally long."""
    observation, _ = env.reset(seed=0)
    total = np.zeros(env.num_envs)
    for _ in range(env.episode_steps()[1]):
        observation, reward, *_ = env.step(act(observation))
        total += reward
    return total


@pytest.mark.slow
def test_the_states_of_the_leaderboard_are_of_one_size():
    experiment = catalog.find("rlmem/leaderboard")
    first = {cell.row: cell for cell in reversed(experiment.at("laptop").cells())}
    assert {row: size_of(cell)[0] for row, cell in first.items()} == {row: UNEQUAL.get(row, STATE) for row in first}


def test_the_second_leaderboard_has_the_games_of_the_first():
    experiment = catalog.find("rlmem/leaderboard_parameters")
    of_first = catalog.find("rlmem/leaderboard")
    assert (experiment.columns, experiment.leaderboard) == (of_first.columns, of_first.leaderboard)
    assert experiment.overrides == of_first.overrides and {*experiment.rows} <= {*of_first.rows}


@pytest.mark.slow
def test_the_agents_of_the_second_leaderboard_have_equally_many_parameters():
    experiment = catalog.find("rlmem/leaderboard_parameters")
    first = {cell.row: cell for cell in reversed(experiment.at("paper").cells())}
    sizes = {row: size_of(cell)[1] for row, cell in first.items()}
    assert max(sizes.values()) < 1.05 * min(sizes.values()), sizes
