"""Reports: the page says what the records say, holds nothing foreign, and is the same every time."""

import itertools
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy
from helpers import ROOT, fast_only
from made_results import ITEMS, Page, outcome, results

from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.evidence.items import runner_of
from rlmem.evidence.page.curves import PANEL, POINTS, band, chosen, panels, smoothed, together
from rlmem.evidence.page.documents import document, page
from rlmem.evidence.page.find import Item, find
from rlmem.evidence.page.groups import Group, departures
from rlmem.evidence.records import Curve, Record
from rlmem.evidence.tables import write
from rlmem.jobs.manifest import Manifest
from rlmem.jobs.pool import Options
from rlmem.jobs.run import _compose
from rlmem.jobs.spec import SweepSpec
from rlmem.record.recorder import read_jsonl
from rlmem.record.tables import cell_text
from rlmem.run.train import train

TINY = "env=repeat_first memory=mlp env.num_envs=2 algo.num_minibatches=1 algo.rollout_slots=64 algo.epochs=1 "
TINY += "evaluation.every=128 evaluation.episodes=2 encoder.hidden_size=8 total_steps=512 threads=1 device=cpu"


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    return results(tmp_path_factory.mktemp("published") / "results")


@pytest.fixture(scope="module")
def text(published) -> str:
    return page(find([published]), "A report")


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    """A sweep of two seeds, whose jobs were trained in this process."""
    folder = tmp_path_factory.mktemp("swept")
    spec, manifest = SweepSpec((*TINY.split(), "seed=0,1")), Manifest(folder)
    manifest.submit(spec, _compose(spec)[0])
    while job := manifest.claim("0" * 16, lambda name: False):
        manifest.finish(job, train(load([*job.overrides, f"run_dir={folder / job.name}"])).objective)
    return folder


# The page


def test_the_numbers_of_the_page_are_those_of_the_records(text, published):
    rows = Page(text).rows
    for section in find([published]):
        assert isinstance(section, Item)
        assert [cell for cell in section.verdict.cells if cell.ours.n], section
        for cell in section.verdict.cells:
            line = [cell.row, cell.column, cell_text(cell.ours), str(cell.ours.n)]
            if cell.paper is not None:
                line += map(cell_text, (cell.paper, cell.difference, cell.verdict))
            assert any(row[: len(line)] == line for row in rows), line
        for run in section.outcome.records:
            assert [row for row in rows if run.config_hash in row and row[:3] == [run.row, run.column, str(run.seed)]]


def test_a_mean_of_the_table_is_the_mean_of_its_runs(text):
    runs = [r.metrics["best_eval"] for r in outcome().records if (r.row, r.column) == ("ffm L10", "repeat_first")]
    (row,) = [row for row in Page(text).rows if row[:2] == ["ffm L10", "repeat_first"] and "[" in row[2]]
    assert len(runs) == 10
    assert abs(float(row[2].split()[0]) - np.mean(runs)) < 0.001


def test_every_item_has_claim_source_verdict_and_command(text, published):
    seen = Page(text).text
    for section in find([published]):
        assert isinstance(section, Item)
        experiment = section.outcome.planned.experiment
        for said in (experiment.title, experiment.claim, experiment.source, section.verdict.why, section.command):
            assert said in seen
        assert experiment.budget("laptop").note in seen
        for reason, which in departures(section.outcome):
            assert reason in seen and which in seen


def test_every_row_and_column_has_its_curves_with_a_band(text):
    drawn, planned = Page(text).drawn, [cell for name in ITEMS for cell in outcome(name).planned.cells()]
    assert drawn["mean"] == drawn["band"] == len(planned)


def test_names_are_unique_and_every_reference_has_its_end(text):
    made = Page(text)
    names = made.all("id")
    targets = [value[1:] for value in made.all("href")] + made.all("aria-labelledby")
    assert len(names) == len(set(names)) == 2 and set(targets) == set(names)


def test_the_page_needs_nothing_from_elsewhere_and_forbids_it(text):
    made = Page(text)
    assert not [tag for tag, _ in made.tags if tag in ("script", "link", "iframe", "object", "embed")]
    assert all(value.startswith("data:image/") for value in made.all("src"))
    assert all(value.startswith("#") for value in made.all("href"))
    assert not re.search(r"@import|url\(", text)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in made.all("content")


def test_a_picture_of_an_analysis_is_in_the_page(text):
    (picture,) = [own for tag, own in Page(text).tags if tag == "img" and own["alt"] == "decays"]
    assert picture["src"].startswith("data:image/svg+xml;base64,")


def test_headings_are_in_order(text):
    levels = [int(tag[1]) for tag, _ in Page(text).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1 and levels.count(2) == 2
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))


def test_a_name_cannot_be_markup():
    bad = '"><script>alert(1)</script><img src=x onerror=alert(1)>$x'
    run = Record(bad, bad, 0, bad, {}, overrides=bad, machine=bad, commit=bad)
    curve = Curve(bad, bad, 0, [0, 1, 2], [0.0, 1.0, 2.0])
    made = Page(page([Group(bad, bad, "train/return_mean", [run], [curve], ([bad], [bad]), 1, bad)], bad))
    assert "script" not in {tag for tag, _ in made.tags}
    assert all(source.startswith("data:image/svg+xml") for source in made.all("src"))
    assert not made.all("onerror")
    assert made.text.count(bad) > 8


def test_a_name_that_no_svg_may_hold_is_shown_escaped():
    curve = Curve("\x1b[31m", "\x00", 0, [0, 1], [0.0, 1.0])
    run = Record("\x1b[31m", "\x00", 0, "done")
    section = Group("odd", "odd", "k", [run], [curve], (["\x1b[31m"], ["\x00"]), 1)
    assert r"\x00" in Page(page([section], "odd")).images[0]


# Curves


def test_a_band_is_the_t_interval_of_every_step_within_what_is_possible():
    values = np.random.default_rng(1).normal(size=(3, 4))
    curves = [Curve("", "", s, [1, 2, 3, 4], list(v)) for s, v in enumerate(values)]
    steps, middle, low, high = band(curves)
    assert list(steps) == [1, 2, 3, 4]
    np.testing.assert_allclose(middle, values.mean(0))
    known = scipy.stats.t.interval(0.95, 2, values.mean(0), scipy.stats.sem(values))
    np.testing.assert_allclose([low, high], known)
    _, _, low_there, high_there = band(curves, (-0.5, 0.5))
    np.testing.assert_allclose(low_there, np.maximum(low, np.minimum(-0.5, middle)))
    np.testing.assert_allclose(high_there, np.minimum(high, np.maximum(0.5, middle)))


def test_one_seed_has_no_band():
    _, middle, low, high = band([Curve("", "", 0, [1, 2], [3.0, 4.0])])
    assert list(middle) == [3, 4]
    assert np.isnan([low, high]).all()


def test_curves_with_other_steps_are_joined_where_all_of_them_are():
    long, short = Curve("", "", 0, [0, 10, 20], [0.0, 10.0, 20.0]), Curve("", "", 1, [5, 15], [10.0, 20.0])
    steps, middle, _, _ = band([long, short])
    assert (steps[0], steps[-1], len(steps)) == (5, 15, POINTS)
    np.testing.assert_allclose(middle, steps + 2.5)


def test_smoothing_is_the_mean_of_the_last_points():
    curve = smoothed(Curve("", "", 0, [1, 2, 3, 4], [1.0, 3.0, 5.0, 9.0]), 2)
    assert list(curve.values) == [1, 2, 4, 7]


def test_a_row_has_the_same_colour_everywhere():
    made = panels([Curve("b", "x", 0, [0, 1], [0.0, 1.0])], ["a", "b"], ["x", "y"], "return")
    assert [(panel.title, [line.index for line in panel.lines]) for panel in made] == [("x", [1])]


NAMES = ("a", "neural_theta", "a row with quite a long name", "total_steps=300000 " * 9)


@pytest.mark.parametrize(
    ("columns", "name"), fast_only([(1, NAMES[1]), (3, NAMES[3])], itertools.product((1, 3), NAMES))
)
def test_the_names_of_rows_are_within_the_figure(columns, name):
    rows, places = [f"{name} {k}" for k in range(7)], [str(k) for k in range(columns)]
    made = panels([Curve(r, c, 0, [0, 1], [0.0, 1.0]) for r in rows for c in places], rows, places, "return")
    figure = together(made)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width
    assert figure.axes[0].get_window_extent().height > 0.6 * PANEL[1] * figure.dpi, "and the panels keep theirs"


# Runs without an experiment


def test_a_sweep_is_reported_with_the_returns_of_its_metrics(swept, tmp_path):
    assert main(["report", str(swept), "--out", str(tmp_path / "page.html")]) == 0
    made = Page((tmp_path / "page.html").read_text())
    ends = []
    for run in sorted(swept.glob("00?-*")):
        ends.append([r for r in read_jsonl(run / "metrics.jsonl") if "eval/greedy/return_mean" in r][-1])
    expected = np.mean([row["eval/greedy/return_mean"] for row in ends])
    (row,) = [row for row in made.rows if row[0] == "mlp" and "[" in row[1]]
    assert row[1].split()[0] == f"{expected:.3f}"
    assert row[2] == "2"
    listed = [row for row in made.rows if row[0] == "mlp" and row[3] == "done"]
    assert [(row[2], row[4], row[5]) for row in listed] == [
        (str(seed), f"{end['eval/greedy/return_mean']:.3f}", "512") for seed, end in enumerate(ends)
    ]
    assert "encoder.hidden_size=8" in listed[0][-1]
    assert made.drawn["mean"] == 1


def test_runs_side_by_side_are_told_apart_by_what_varies(swept):
    runs = sorted(swept.glob("00?-*"))
    (alone,) = find([runs[0]])
    assert isinstance(alone, Group)
    assert (alone.name, alone.axes) == (f"Run {runs[0].name}", (["mlp"], [""]))
    assert alone.command and alone.command.startswith("rlmem train ") and "run_dir" not in alone.command
    (both,) = find(runs)
    assert [run.seed for run in both.records] == [0, 1]


def test_any_metric_can_be_drawn_smoothed(swept, tmp_path):
    (panel,), _ = chosen(find([swept]), "train/return_mean", smooth=2)
    assert panel.what == "training return, mean of 2 points"
    (line,) = panel.lines
    rows = read_jsonl(sorted(swept.glob("001-*"))[0] / "metrics.jsonl")
    raw = [row["train/return_mean"] for row in rows if "train/return_mean" in row]
    assert line.seeds[0].values[:2] == [raw[0], pytest.approx((raw[0] + raw[1]) / 2)]
    for kind, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        out = tmp_path / f"figure.{kind}"
        assert main(["plot", str(swept), "--metric", "train/return_mean", "--out", str(out)]) == 0
        assert out.read_bytes().startswith(begin)


def test_columns_can_be_chosen(published):
    panels, _ = chosen(find([published / "memoroids"]), None, columns=["repeat_first"])
    assert [panel.title for panel in panels] == ["repeat_first"]
    several, _ = chosen(find([published]), None)
    assert "memoroids/figure4 laptop: repeat_first" in [panel.title for panel in several]


# Reproductions


def test_a_reproduction_that_has_only_begun_shows_what_waits(tmp_path):
    made = outcome(budget="smoke")
    runner = runner_of(made.planned, tmp_path)
    runner.begin(runner.planned.cells(), Options())
    (section,) = find([tmp_path])
    seen = Page(page([section], "Begun"))
    assert section.verdict.word == "not run"
    assert [row[3] for row in seen.rows if row[0] == "lru tape" and row[-1].startswith("algo=")] == ["waiting"]
    assert "0 of 2 done" in seen.text


def test_a_table_whose_runs_lie_elsewhere_is_read_from_its_numbers(tmp_path):
    made = outcome()
    write(made, tmp_path / "anywhere")
    (section,) = find([tmp_path])
    assert isinstance(section, Item)
    assert (section.verdict.word, section.verdict.why) == (made.verdict.word, made.verdict.why)
    assert len(section.outcome.records) == len(made.records)


# RESULTS.md


def test_results_in_markdown_have_numbers_verdicts_and_pictures_that_are_there(published, tmp_path):
    assert main(["report", str(published), "--markdown", str(published.parent / "RESULTS.md")]) == 0
    written = (published.parent / "RESULTS.md").read_text()
    for section in find([published]):
        assert isinstance(section, Item)
        assert f"**{section.verdict.word}**: {section.verdict.why}." in written
        assert section.outcome.planned.experiment.claim in written and section.command in written
        for cell in section.verdict.cells:
            assert f"| {cell.row} | {cell.column} | {cell_text(cell.ours)} |" in written
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", written)
    assert len(pictures) == 3
    assert all((published.parent / name).stat().st_size > 500 or "decays" in name for name in pictures)
    anchors = {
        re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^## (.*)$", written, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", written)) == anchors
    total = re.search(r"^\| all \|(.*)\|$", written, re.M)
    items, sets, *counts, changed = map(int, total[1].split("|")) if total else ()
    assert items == sets == sum(counts) == len({section.name for section in find([published])})
    assert changed == sum(bool(section.verdict.changed) for section in find([published]))  # type: ignore[attr-defined]


def test_markdown_is_the_same_every_time_and_wherever_it_is_asked_from(published, monkeypatch):
    monkeypatch.chdir(published.parent)
    assert document(find([Path("results")]), Path()) == document(find([published]), published.parent)


@pytest.mark.slow
def test_what_was_measured_and_not_trained_has_no_curves(tmp_path, capsys):
    every, _ = chosen(find([ROOT / "results"]), None)
    assert {panel.title.partition(":")[0] for panel in every} >= {"lprnn/figure4 laptop", "memoroids/figure4 laptop"}
    (tmp_path / "lprnn").mkdir()
    shutil.copy(ROOT / "results/lprnn/figure2.laptop.csv", tmp_path / "lprnn")
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "a.png")]) == 2
    assert "lprnn/figure2 laptop: no learning curves there" in capsys.readouterr().err


# Refusals


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("report nowhere", "nowhere: no such folder"),
        ("report empty", "empty: nothing to show"),
        ("report file", "file: is a file; expected a folder"),
        pytest.param(
            "report results --markdown no/such/../RESULTS.md --out file/page.html",
            "cannot be written",
            marks=pytest.mark.slow,
        ),
        ("report results/memoroids --out file/page.html", "file/page.html: cannot be written"),
        ("plot results --out figure.jpg", "--out figure.jpg: no such format; accepted: png, pdf, svg"),
        ("plot results --out a.png --columns repeat_frst", "no such column; did you mean `repeat_first`?"),
        ("plot results --out a.png --metric train/loss", "no run has it; accepted: eval/greedy/return_mean"),
        ("plot results --out a.png --smooth 0", "expected an integer >= 1"),
        ("plot results", "the following arguments are required: --out"),
        (f"report {'x' * 300}", "cannot be read (File name too long)"),
        ("report broken", "broken/cells.json: cannot be read"),
        ("report odd", "memoroids/figure5000"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(published, tmp_path, monkeypatch, capsys, command, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(published)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "cells.json").write_text("{")
    (tmp_path / "odd" / "memoroids").mkdir(parents=True)
    (tmp_path / "odd" / "memoroids" / "figure5000.laptop.csv").touch()
    assert main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_markdown_is_of_published_results_alone(swept, capsys):
    assert main(["report", str(swept), "--markdown", "RESULTS.md"]) == 2
    assert "is made of published results alone" in capsys.readouterr().err


def test_a_metric_that_no_run_has_is_refused_with_the_nearest(swept):
    with pytest.raises(UserError, match=r"no run has it; did you mean `train/return_mean`\?"):
        chosen(find([swept]), "train/return_mea")
