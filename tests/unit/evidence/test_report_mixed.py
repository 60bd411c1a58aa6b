"""Reports and figures of runs that differ in several things: what they are called, and what is seen of each."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import changed
from made_results import KEY, Page, run_folder

from rlmem.commands.cli import main
from rlmem.config.compose import Config
from rlmem.evidence.page.curves import chosen, together
from rlmem.evidence.page.documents import page
from rlmem.evidence.page.find import find
from rlmem.evidence.page.groups import Group, rows_differ
from rlmem.evidence.records import Record
from rlmem.record import rundir


def group(*folders: Path) -> Group:
    (found,) = find(folders)
    assert isinstance(found, Group)
    return found


def rows(tmp_path: Path, *overrides: str) -> list[str]:
    return [r.row for r in group(*(run_folder(tmp_path / f"{k}", o, [0.0]) for k, o in enumerate(overrides))).records]


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ("memory=gru", "memory=lru", ["gru", "lru"]),
        ("memory=gru", "memory=gru memory.hidden_size=64", ["memory.hidden_size=256", "memory.hidden_size=64"]),
        ("algo.lr=1e-3 seed=1", "algo.lr=1e-4 seed=2", ["lr=0.001", "lr=0.0001"]),
        ("total_steps=1000", "total_steps=2000", ["total_steps=1000", "total_steps=2000"]),
        ("algo=ppo algo.epochs=2", "algo=dqn algo.n_step=2", ["ppo", "dqn"]),
        ("algo=ppo algo.gamma=0.9", "algo=dqn", ["ppo gamma=0.9", "dqn gamma=0.99"]),
        ("batching=segment batching.length=8", "batching=tape", ["segment", "tape"]),
        ("init_from=other memory=gru", "memory=lru", ["gru init_from=other", "lru init_from=null"]),
        ("memory=mlp", "memory=gru encoder.prev_reward=true", ["mlp prev_reward=false", "gru prev_reward=true"]),
        ("env=gym env.id=A env.kwargs.x=1", "env=gym env.id=A", ["x=1", "ffm"]),
        ("seed=1 device=cpu", "seed=2", ["ffm", "ffm"]),
    ],
)
def test_rows_are_named_by_what_differs_alone(tmp_path, first, second, named):
    assert rows(tmp_path, first, second) == named


def test_a_report_names_what_differs_between_rows_beside_their_memories(tmp_path):
    several = "memory=mlp algo.rollout_slots=62", "memory=gru", "memory=gru env=copy total_steps=64 seed=1"
    found = group(*(run_folder(tmp_path / f"{k}", lines, [0.0]) for k, lines in enumerate(several)))
    assert found.facts()["differs between rows"] == "algo.rollout_slots"
    assert "differs between rows" in page([found], "")
    alike = group(*(run_folder(tmp_path / "alike" / name, f"memory={name}", [0.0]) for name in ("mlp", "gru")))
    assert alike.facts()["differs between rows"] == "nothing but the memory"
    others = group(*(run_folder(tmp_path / "others" / name, f"algo={name}", [0.0]) for name in ("ppo", "dqn")))
    assert others.facts()["differs between rows"] == "algo, total_steps, env.num_envs", "a group stands for its keys"
    assert not group(tmp_path / "0").facts()["differs between rows"]


def test_of_numbers_alone_a_report_names_the_overrides_that_differ_between_rows():
    lines = {"a": "memory=gru env.params={k: 8} algo.lr=0.1", "b": "memory=mlp env.params={k: 8}", "c": "memory=mlp"}
    records = {row: Record(row, "", 0, "done", overrides=line) for row, line in lines.items()}
    assert rows_differ([records["a"], records["b"]]) == "algo.lr"
    assert rows_differ([records["b"], records["c"]]) == "env.params"
    assert rows_differ([records["b"], replace(records["c"], overrides=lines["b"])]) == "", "defaults may differ"


def test_environments_are_columns_and_gym_goes_by_its_id(tmp_path):
    there = ["env=repeat_first", "env=gym env.id=CartPole-v1", "env=gym env.id=Acrobot-v1"]
    found = group(*(run_folder(tmp_path / f"{k}", f"memory=gru {o}", [0.0]) for k, o in enumerate(there)))
    assert found.axes == (["gru"], ["repeat_first", "CartPole-v1", "Acrobot-v1"])


def test_a_run_of_an_earlier_version_lacks_keys_and_is_the_same_row(tmp_path):
    runs = [run_folder(tmp_path / name, f"seed={seed}", [0.0]) for seed, name in enumerate("ab")]
    config, about = rundir.read(runs[0])
    del config["on_nan"], config["algo"]["clip"], config["evaluation"]
    rundir.describe(runs[0], Config(config, about["choices"], tuple(about["overrides"])))
    assert group(*runs).axes == (["ffm"], [""])


def test_a_run_with_one_evaluation_is_a_dot_in_report_and_figure(tmp_path, capsys):
    runs = [
        run_folder(tmp_path / "once", "memory=gru", [0.5]),
        run_folder(tmp_path / "often", "memory=lru", [0.1, 0.2]),
    ]
    (panel,), _ = chosen(find(runs), None)
    once, often = together([panel]).axes[0].lines
    assert [line.name for line in panel.lines] == ["gru", "lru"]
    assert (once.get_marker(), often.get_marker()) == ("o", "None")
    seen = Page(page(find(runs), ""))
    assert seen.drawn["mean"] == 2
    assert main(["plot", *map(str, runs), "--out", str(tmp_path / "a.png")]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_what_has_no_value_is_said_in_report_and_figure(tmp_path, capsys):
    run_folder(tmp_path / "none", "memory=gru", [])
    run_folder(tmp_path / "null", "memory=mlp total_steps=100", [None])
    run_folder(tmp_path / "some", "memory=lru total_steps=300", [0.1, None, 0.2])
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").write_text("seed: 0\n")
    found = group(tmp_path)
    (curve,) = found.curves
    assert (curve.steps, curve.values) == ([100, 300], [0.1, 0.2])
    (some,) = [run for run in found.records if run.row.startswith("lru")]
    assert some.metrics == {"final_eval": 0.2, "best_eval": 0.2, f"last {KEY}": 0.2}
    seen = Page(page([found], "")).text
    assert f"No curve, since there is no value of {KEY}: (gru" in seen
    assert "Not in the table, interrupted: (gru" in seen
    assert "Not in the table, ended without a finite value: (mlp" in seen
    assert f"Left out, no config.yaml or no run.json: {tmp_path / 'begun'}." in seen
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert "no curve" in out and "(gru" in out and "(mlp" in out and "begun" in out and "(lru" not in out


def test_a_seed_of_one_point_is_a_dot_beside_the_mean_of_the_others(tmp_path):
    runs = [
        run_folder(tmp_path / f"{seed}", f"seed={seed}", [0.1, 0.2, 0.4][:most]) for seed, most in enumerate((3, 3, 1))
    ]
    (panel,), _ = chosen(find(runs), None)
    (line,) = panel.lines
    assert (list(line.steps), len(line.seeds), len(line.dots)) == ([100, 200, 300], 2, 1)
    seen = Page(page(find(runs), ""))
    assert "One point alone, a dot beside the mean: (ffm, seed 2)." in seen.text
    assert (seen.drawn["dot"], seen.drawn["mean"]) == (1, 1)


def test_seeds_that_have_no_step_in_common_are_drawn_one_by_one(tmp_path):
    runs = [run_folder(tmp_path / f"{k}", f"seed={k}", [0.0, 1.0], begin=1 + 5 * k) for k in range(2)]
    assert len(together(chosen(find(runs), None)[0]).axes[0].lines) == 2
    assert "No mean, since no step is common to all: (ffm, seed 0), (ffm, seed 1)." in Page(page(find(runs), "")).text


def test_a_run_of_a_wrong_shape_alone_is_refused_in_one_line(tmp_path, capsys):
    changed(run_folder(tmp_path / "run", "seed=1", [0.25]) / "run.json", '"choices": {', '"choices": 3, "was": {')
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is damaged" in line


MANY = "9" * 4400
GOOD = [0.1, 0.2, 0.3]


DAMAGED = [
    ("metrics.jsonl", '"step": 300', f'"step": {MANY}', False),
    ("metrics.jsonl", "0.3}", f"{'[' * 100_000}{']' * 100_000}}}", False),
    ("metrics.jsonl", '{"step": 300', '{"\\ud800": 1, "step": 300', False),
    ("metrics.jsonl", '{"step": 300', '{"step": [300]', False),
    ("metrics.jsonl", "0.3}", '{"a": 1}}', False),
    ("run.json", '"overrides": [', '"overrides": ["algo.lr=\\ud800", ', False),
    ("run.json", '"overrides": [', '"overrides": [7, ', True),
    ("config.yaml", "total_steps: 300", "total_steps: [many]", True),
    ("run.json", '"choices": {', f'"choices": {{"x": {"[" * 400}{"]" * 400}, ', True),
    ("config.yaml", "seed: 2", f"seed: {MANY[:4200]}", True),
    ("config.yaml", "\nevaluation:", "\nevaluation: text\nx:", True),
]
"""A file of a run, a text in it, what takes its place, and whether the run cannot be shown then."""


def test_a_run_that_cannot_be_read_is_left_out_and_the_others_are_shown(tmp_path, capsys):
    for seed in (0, 1):
        run_folder(tmp_path / "runs" / f"good{seed}", f"seed={seed} total_steps=300", GOOD)
    for number, (name, old, new, _) in enumerate(DAMAGED):
        run_folder(tmp_path / "runs" / f"damaged{number}", "seed=2 total_steps=300", GOOD)
        changed(tmp_path / "runs" / f"damaged{number}" / name, old, new)
    readable = {f"damaged{number}" for number, (*_, is_left_out) in enumerate(DAMAGED) if not is_left_out}
    for command in (["report", "--out", "page.html"], ["plot", "--out", "a.svg"]):
        out = tmp_path / command[-1]
        assert main([*command[:-1], str(out), str(tmp_path / "runs")]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
        assert lines and not [line for line in lines for name in readable if f"/{name}/" in line]
        assert out.stat().st_size
    assert {record.run_dir.name for record in group(tmp_path / "runs").records} == {"good0", "good1", *readable}


def test_a_damaged_sweep_and_reproduction_are_left_out(tmp_path, capsys):
    run_folder(tmp_path / "run", "seed=1", GOOD)
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept" / "sweep.sqlite").write_bytes(b"no database")
    for name, text in (("some", '{"item": "memoroids/figure4"}'), ("deep", "[" * 100_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cells.json").write_text(text)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.count("left out") == 3


def test_letters_that_control_a_terminal_are_escaped_in_what_plot_says(tmp_path, capsys):
    file = run_folder(tmp_path / "a", "memory=gru", []) / "run.json"
    file.write_text(file.read_text().replace('"memory": "gru"', '"memory": "\\u001b]0;x\\u0007"'))
    run_folder(tmp_path / "b", "memory=lru", GOOD)
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "a.svg")]) == 0
    said = capsys.readouterr().out
    assert r"\x1b]0;x\x07" in said and "\x1b" not in said


@pytest.mark.parametrize("command", ["plot", "report"])
def test_a_run_may_be_named_with_a_checkpoint_and_is_shown_whole(tmp_path, command):
    run_folder(tmp_path / "run", "memory=gru", GOOD)
    files = [tmp_path / name for name in ("a.svg", "b.svg")]
    for file, checkpoint in zip(files, ("", "@best"), strict=True):
        assert main([command, f"{tmp_path / 'run'}{checkpoint}", "--out", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_users_matplotlibrc_changes_no_figure(tmp_path):
    import matplotlib

    run_folder(tmp_path / "run", "memory=gru", GOOD)
    files = [tmp_path / name for name in ("a.svg", "b.svg")]
    for file, own in zip(
        files, ({}, {"text.usetex": True, "lines.linewidth": 9.0, "axes.facecolor": "red"}), strict=True
    ):
        with matplotlib.rc_context(own):
            assert main(["plot", str(tmp_path / "run"), "--out", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
