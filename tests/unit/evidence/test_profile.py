"""`rlmem profile`: its cells, what becomes of their results, and the page."""

import csv

import pytest
from helpers import ROOT

from rlmem.commands.cli import main
from rlmem.core.errors import UserError
from rlmem.evidence import profile
from rlmem.evidence.profile import PANELS, cells, chance, default_folder, profiles, specification, table
from rlmem.jobs.manifest import Manifest, Owner
from rlmem.jobs.run import _compose
from rlmem.jobs.spec import SweepSpec

HOLD = PANELS[:1]


def finished(folder, overrides, score, panels=HOLD):
    """A profile's folder whose cells have ended with `score(env, job's overrides by key)`; None: one did not."""
    folder.mkdir()
    spec = specification(overrides, panels)
    manifest = Manifest(folder)
    manifest.submit(spec, _compose(spec)[0])
    while job := manifest.claim(Owner.me(), lambda name: False):
        found = score(dict(line.partition("=")[::2] for line in job.overrides))
        if found is None:
            manifest.fail(job, 1, "nothing", retries=0)
        else:
            manifest.finish(job, found)
    return folder


@pytest.mark.slow
def test_no_cell_is_in_two_panels_and_all_are_runs(capsys):
    every = [cell for panel in PANELS for *_, cell in panel.cells()]
    assert len(set(every)) == len(every) == 9 * len(PANELS)
    assert main(["profile", "memory=gru", "total_steps=2e5", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{len(every)} jobs in profiles/gru-")
    assert all("evaluation.every=${total_steps} " in line and "memory.hidden_size=64" in line for line in lines[:-1])


@pytest.mark.parametrize(
    ("given", "wide"),
    [
        (["memory=gru,ffm"], ["gru", "ffm"]),
        (["memory=gru,ffm", "memory.gru.hidden_size=128"], ["ffm"]),
        (["memory=block", "memory.layer.hidden_size=32"], ["block"]),
        (["memory=gru,ffm", "memory.hidden_size=128"], []),
        (["memory._target_=rlmem.memory.gru.GRU"], []),
    ],
)
def test_every_memory_has_the_same_width_unless_one_is_given(given, wide):
    lines = [line for line in specification(given).overrides if "hidden_size" in line and line not in given]
    assert lines == [f"memory.{name}.hidden_size=64" for name in wide]


def test_each_specification_has_a_folder_of_its_own():
    lines = ["memory=gru", "memory=gru,ffm", "memory._target_=my.Mem", "memory._target_=my.Other"]
    lines += [f"memory=ffm memory.trace_size={sizes}" for sizes in ("16,64", "8,16")]
    folders = [default_folder(line.split()).as_posix() for line in lines]
    assert folders[:2] == ["profiles/gru", "profiles/gru-ffm"] and folders[2].startswith("profiles/Mem-")
    assert len(set(folders)) == len(lines)
    assert default_folder(["seed=0,1", "memory=gru"]) == default_folder(["memory=gru", "seed=0,1"])


@pytest.mark.slow
def test_some_panels_of_a_folder_leave_the_others_there(in_tmp, capsys):
    """What is asked for is done already, so nothing is trained, and the cells of the other panel wait."""
    folder = finished(in_tmp / "p", ["memory=gru"], lambda run: 1.0, PANELS[:1])
    Manifest(folder).submit(spec := specification(["memory=gru"], PANELS[:2]), _compose(spec)[0])
    assert main(["profile", "memory=gru", "--panels", "hold", "--dir", "p"]) == 0
    assert [job.state for job in Manifest(folder).jobs()] == ["done"] * 9 + ["waiting"] * 9
    assert "beyond" in capsys.readouterr().out


def test_scores_are_shares_of_what_guessing_leaves(tmp_path):
    """Of four symbols, 0.625 right answers are half of the way from guessing to perfect."""
    results = {"4": 1.0, "16": 0.625, "64": 0.25}
    folder = finished(tmp_path / "p", ["memory=gru", "seed=0,1"], lambda run: results[run["env.delay"]])
    (found,), panels = profiles(folder)
    assert (found.label, found.seeds, panels) == ("gru", 2, list(HOLD))
    assert [found.scores["hold", delay, 16] for delay in (4, 16, 64)] == [1, 0.5, 0]
    assert found.mean(panels[0]) == pytest.approx(0.5)
    assert {env: chance(env) for env in ("n_back", "associative_recall", "counting", "memory_demand")} == {
        "n_back": 1 / 4,
        "associative_recall": 1 / 4,
        "counting": 1 / 5,
        "memory_demand": 1 / 2,
    }


def test_memories_and_their_settings_have_profiles_of_their_own(tmp_path):
    """A key that varies for one memory tells its profiles apart; a cell that failed leaves its panel without a mean."""
    given = ["memory=gru,ffm", "memory.ffm.trace_size=8,16"]
    score = lambda run: None if run["memory"] == "gru" and run["env.delay"] == "64" else 1.0  # noqa: E731
    found, panels = profiles(finished(tmp_path / "p", given, score))
    assert [profile.label for profile in found] == ["gru", "ffm trace_size=8", "ffm trace_size=16"]
    rows = {row[0]: row[1:] for row in table(found, panels).rows}
    assert rows == {"ffm trace_size=8": [1.0, 1.0], "ffm trace_size=16": [1.0, 1.0], "gru": [None, None]}
    read = list(csv.DictReader(cells(found, panels).csv().splitlines()))
    assert len(read) == 27 and [row["score"] for row in read[:3]] == ["1.0", "1.0", ""]
    figure = profile.picture(found[0], panels)
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["1.00"] * 6


def test_a_page_keeps_what_stands_around_the_profiles(tmp_path):
    found, panels = profiles(finished(tmp_path / "p", ["memory=gru"], lambda run: 1.0))
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- profiles:begin -->\nearlier\n<!-- profiles:end -->\n\nafter\n")
    for _ in range(2):
        profile.page(found, panels, "What it cost.", page)
        text = page.read_text()
        assert text.startswith("before\n\n<!--") and text.endswith("-->\n\nafter\n") and "earlier" not in text
        assert text.count("| gru | 1.00 | 1.00 |") == text.count("](images/profile/gru.svg)") == 1
    assert (tmp_path / "images" / "profile" / "gru.svg").stat().st_size > 1000
    page.write_text("nothing")
    with pytest.raises(UserError, match="expected one line <!-- profiles:begin"):
        profile.page(found, panels, "", page)


def test_the_page_describes_the_panels():
    text = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    for panel in PANELS:
        dials = [f"{', '.join(map(str, dial.values))} {dial.label}" for dial in (panel.across, panel.up)]
        assert f"| `{panel.name}` | `{panel.env}` | {' | '.join(dials)} | {panel.says} |" in text


def test_mistakes_are_lines(tmp_path):
    for line in ("env=copy", "env.items=3", "algo=ppo", "+env.symbols=3"):
        with pytest.raises(UserError, match="a profile chooses the tasks"):
            specification([line])
    with pytest.raises(UserError, match="--panels hodl: no such panel; did you mean `hold`"):
        main_raises(["profile", "--panels", "hodl"])
    with pytest.raises(UserError, match="holds no profile"):
        profiles(tmp_path)
    Manifest(tmp_path).submit(spec := SweepSpec(("seed=0,1",)), _compose(spec)[0])
    with pytest.raises(UserError, match="a sweep that is no profile"):
        profiles(tmp_path)


def main_raises(arguments):
    from rlmem.commands.toolkit import Parser

    Parser(arguments[0]).call(arguments[1:])


@pytest.mark.slow
def test_a_profile_is_trained_drawn_and_continued(in_tmp, capsys):
    """A memory that sees one slot guesses; nothing is trained again by the same command."""
    small = [
        "profile",
        "memory=mlp",
        "total_steps=2048",
        "--panels",
        "hold",
        "--page",
        "page.md",
        "--dir",
        "profiles/mlp",
    ]
    assert main(small) == 0
    folder = in_tmp / "profiles/mlp"
    assert {"table.md", "cells.csv", "mlp.png", "mlp.svg"} <= {path.name for path in folder.iterdir()}
    scores = [float(row["score"]) for row in csv.DictReader((folder / "cells.csv").open())]
    assert len(scores) == 9 and max(map(abs, scores)) < 0.2
    assert "One run of 2,048 slots for each cell" in (in_tmp / "page.md").read_text()
    written = lambda: [path.stat().st_mtime_ns for path in sorted(folder.glob("*/metrics.jsonl"))]  # noqa: E731
    before = written()
    assert main(small) == 0
    assert "9 done" in capsys.readouterr().out and written() == before
