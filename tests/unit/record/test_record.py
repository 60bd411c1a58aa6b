"""The record of a run: rows that were lost, changed or added are noticed, and nothing is written where none looks."""

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import pytest
import torch
from helpers import assert_same_end, fast_only, killed_at, small_run
from small_runs import RECALL
from spoilt import damage, resealed

from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.loops.base import Loop
from rlmem.record import rundir
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import Recorder, read_jsonl
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import resume, train

SHORT = ["total_steps=400", "checkpoint.keep=9"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that nothing happened to."""
    return small_run(*SHORT, run_dir=str(tmp_path_factory.mktemp("whole") / "run"), base=RECALL)


@pytest.fixture
def cut(whole, in_tmp) -> Path:
    """The same run as a kill left it: two checkpoints, and rows after the second."""
    shutil.copytree(whole, "cut")
    for path in [*Checkpoints(Path("cut/checkpoints")).paths()[2:], Path("cut/checkpoints/best.pt")]:
        path.unlink()
        path.with_suffix(".sha256").unlink()
    return Path("cut")


def with_another_digit(text: bytes, at: int) -> bytes:
    """`text` with one byte changed to a digit that it is not."""
    changed = bytearray(text)
    changed[at] = ord("8") if changed[at] == ord("9") else ord("9")
    return bytes(changed)


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "without": lambda rows: rows[1:],
    "doubled": lambda rows: [rows[0], *rows],
    "of another step": lambda rows: [json.dumps(json.loads(rows[0]) | {"step": 1}).encode() + b"\n", *rows[1:]],
    "swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "without line end": lambda rows: [rows[0][:-1] + b" ", *rows[1:]],
}
AT_ONCE = [("metrics", "without"), ("episodes", "of another step"), ("metrics", "without line end")]


@pytest.mark.parametrize(("name", "change"), fast_only(AT_ONCE, product(("metrics", "episodes"), CHANGES)))
@pytest.mark.filterwarnings("ignore:.*falling back")
def test_a_row_that_is_not_what_was_written_is_noticed(cut, name, change):
    path, first = cut / f"{name}.jsonl", Checkpoints(cut / "checkpoints").paths()[0]
    path.write_bytes(b"".join(CHANGES[change](path.read_bytes().splitlines(keepends=True))))
    first.unlink()  # before there was any row
    with pytest.raises(UserError, match=r"no intact checkpoint in cut/checkpoints, of which the record has all rows"):
        resume(cut, [])


@pytest.mark.filterwarnings("ignore:.*falling back")
def test_a_row_that_changed_late_costs_the_checkpoints_that_knew_it(cut, whole):
    newest = Checkpoints(cut / "checkpoints").paths()[-1]
    size = torch.load(newest, weights_only=True)["record"]["metrics"]["bytes"]
    path = cut / "metrics.jsonl"
    text = path.read_bytes()
    path.write_bytes(with_another_digit(text, size - 3))
    resume(cut, [])
    assert_same_end(cut, whole)


TOUCHES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "replaced": lambda path: os.replace(shutil.copy(path, "copy"), path),
    "changed": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
    "edited": lambda path: path.write_bytes(with_another_digit(path.read_bytes(), -3)),
    "lost": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize(
    ("name", "touch"),
    fast_only(
        [
            ("metrics.jsonl", "edited"),
            ("episodes.jsonl", "replaced"),
            ("config.yaml", "deleted"),
            ("metrics.jsonl", "lost"),
        ],
        [("config.yaml", "deleted"), *product(("metrics.jsonl", "episodes.jsonl"), TOUCHES)],
    ),
)
def test_a_record_that_somebody_touches_while_it_is_written_stops_the_run(in_tmp, monkeypatch, capsys, name, touch):
    turn = Loop.turn

    def turned(loop: Loop) -> None:
        turn(loop)
        if loop.updates == 1:
            TOUCHES[touch](Path("run") / name)

    monkeypatch.setattr(Loop, "turn", turned)
    assert main(["train", *RECALL, *SHORT, "run_dir=run"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    then = {"edited": "changed", "lost": "deleted"}.get(touch, touch)
    assert re.search(rf"(metrics|episodes)\.jsonl was {then} while|{name} was {then} while", line)
    assert Path("run").exists() == (touch != "lost")


def test_a_metric_may_be_a_tensor_of_one_number(in_tmp):
    recorder = Recorder(Path("."), print)
    recorder.metrics(5, {"a/loss": torch.tensor(0.5), "a/count": 3})
    recorder.close(failed=False)
    assert read_jsonl(Path("metrics.jsonl")) == [{"step": 5, "a/loss": 0.5, "a/count": 3}]


def test_what_only_acts_needs_no_record(cut):
    (cut / "metrics.jsonl").unlink()
    assert evaluate_run(cut, 2)["step"] == 244


def test_fewer_checkpoints_make_room_before_the_next_is_written(in_tmp):
    kept = Checkpoints(in_tmp / "checkpoints", keep=2)
    for step in (1, 2):
        kept.save(step, {"agent": {}, "experiment": {}, "step": step, "x": torch.zeros(1000)})
    (in_tmp / "checkpoints" / "step_000000000009.sha256").write_text("of a checkpoint that is gone")
    (in_tmp / "checkpoints" / "step_000000000009.partial").write_text("half")
    less = Checkpoints(in_tmp / "checkpoints", keep=1)
    seen: list[int] = []

    def full(name: str, state: object) -> Path:
        seen.append(len(less.paths()))
        raise OSError(28, "No space left on device")

    less.write = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        less.save(3, {})
    assert seen == [1] and less.load()[1]["step"] == 2
    assert sorted(path.name for path in (in_tmp / "checkpoints").iterdir()) == [
        "step_000000000002.pt",
        "step_000000000002.sha256",
    ]


def test_a_resumed_run_that_keeps_less_frees_the_disk_first(cut, whole):
    """The way out of a full disk: what it has is less at once, before anything is written."""
    with killed_at(1):
        resume(cut, ["checkpoint.keep=1"])
    assert len(Checkpoints(cut / "checkpoints").paths()) == 1
    resume(cut, [])
    assert_same_end(cut, whole)


def test_a_run_that_was_only_described_in_part_has_not_begun(in_tmp, whole, monkeypatch, capsys):
    class Killed(BaseException):
        pass

    def replace(path: Path, text: str) -> None:
        if (Path("run") / "run.json").exists():
            raise Killed
        original(path, text)

    original = rundir.write_atomically
    for how in ("error", "resume"):
        monkeypatch.setattr(rundir, "write_atomically", replace)
        with pytest.raises(Killed):
            train(load([*RECALL, *SHORT, "run_dir=run"]))
        assert sorted(path.name for path in Path("run").iterdir()) == [".lock", "run.json"]
        monkeypatch.setattr(rundir, "write_atomically", original)
        train(load([*RECALL, *SHORT, "run_dir=run", f"on_exists={how}"]))
        assert_same_end("run", whole)
        assert not list(Path().glob("run.damaged*")) and "damaged" not in capsys.readouterr().out
        shutil.rmtree("run")


def test_rows_of_another_run_are_never_continued(cut):
    (cut / "config.yaml").unlink()
    with pytest.raises(UserError, match="holds a run already"):
        small_run(*SHORT, run_dir="cut", base=RECALL)


def test_asking_whether_a_directory_can_be_written_leaves_nothing(in_tmp, monkeypatch):
    seen: list[list[str]] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **how: seen.append(os.listdir("run")) or unlink(path, **how))
    rundir.make(Path("run"))
    assert os.listdir("run") == [] and seen == [], "a process that was killed in between would leave a file"


# --- checkpoints that are none ---------------------------------------------------------------------------------------


def of(path: Path) -> dict:
    return torch.load(path, weights_only=True)


WRONG: dict[str, Callable[[Path], object]] = {
    "a list": lambda path: [1, 2],
    "nothing": lambda path: {},
    "no record": lambda path: {k: v for k, v in of(path).items() if k != "record"},
    "a record of text": lambda path: of(path) | {"record": "x"},
    "a record of other sizes": lambda path: of(path) | {"record": {"metrics": {"bytes": "1", "sha256": 2}}},
    "a step of text": lambda path: of(path) | {"step": "x"},
    "an experiment of text": lambda path: of(path) | {"experiment": "x"},
    "no algorithm": lambda path: of(path) | {"algo": None},
    "no collector": lambda path: of(path) | {"collector": {}},
    "parameters of other sizes": lambda path: of(path) | {"agent": {k: v[:1] for k, v in of(path)["agent"].items()}},
    "observations of other sizes": lambda path: (
        of(path) | {"collector": of(path)["collector"] | {"obs": torch.zeros(1, 2, 3)}}
    ),
    "previous actions of other sizes": lambda path: (
        of(path) | {"collector": of(path)["collector"] | {"prev_action": torch.zeros(7)}}
    ),
    "memory states of other sizes": lambda path: (
        of(path) | {"collector": of(path)["collector"] | {"state": torch.zeros(1)}}
    ),
    "an environment of other sizes": lambda path: (
        of(path) | {"collector": of(path)["collector"] | {"env": {"rng": torch.zeros(1)}}}
    ),
    "moments of other sizes": lambda path: of(path) | {"algo": moments(of(path)["algo"])},
}


def moments(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: torch.zeros(1, 1) if key == "exp_avg" else moments(value) for key, value in tree.items()}
    return tree


@pytest.mark.parametrize("what", fast_only(["a list", "a record of other sizes", "parameters of other sizes"], WRONG))
@pytest.mark.filterwarnings("ignore:.*falling back")
def test_a_checkpoint_of_the_wrong_shape_is_refused_or_passed_over(cut, whole, capsys, what):
    """Its checksum is right. Either the one before is taken, or one line says what is wrong."""
    newest = Checkpoints(cut / "checkpoints").paths()[-1]
    resealed(newest, WRONG[what](newest))
    code = main(["resume", "cut"])
    said = capsys.readouterr().err
    assert code in (0, 2) and "Traceback" not in said, said
    if code == 0:
        assert_same_end(cut, whole)
    else:
        (line,) = said.splitlines()
        assert line.startswith("rlmem: error: cut")


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_random_damage_is_survived_or_refused_in_one_line(cut, whole, capsys):
    """By `resume`, or by the same command again; `eval` says the same of it, or refuses."""
    again = ["train", *RECALL, *SHORT, "run_dir=again", "on_exists=resume"]
    survived = 0
    for case in range(150):
        draw = Random(case)
        shutil.rmtree("again", ignore_errors=True)
        shutil.copytree(cut, "again")
        files = sorted(path for path in Path("again").rglob("*") if path.is_file() and path.stat().st_size)
        damages = [damage(draw.choice(files), draw)]
        for command in (["eval", "again", "--episodes", "2"], ["resume", "again"], again):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = main(command)
            answer = capsys.readouterr().err
            lines = [line for line in answer.splitlines() if line.startswith("rlmem: ")]
            assert code in (0, 2) and len(lines) == (code == 2), f"{damages}: {command}: {answer}"
            if code == 0 and command[0] != "eval":
                assert_same_end("again", whole)
                survived += 1
                break
    assert survived, "some damage costs no more than the steps since a checkpoint"


@pytest.mark.parametrize(
    ("suffix", "command"),
    fast_only(
        [(".pt", "resume"), (".sha256", "eval"), (".pt", "report")],
        product((".pt", ".sha256"), ("resume", "eval", "report")),
    ),
)
def test_a_folder_with_the_name_of_a_file_is_named(cut, capsys, suffix, command):
    newest = Checkpoints(cut / "checkpoints").paths()[-1].with_suffix(suffix)
    newest.unlink()
    newest.mkdir()
    code = main([command, "cut"])
    said = capsys.readouterr()
    if command == "report":
        assert code == 0
    else:
        (line,) = said.err.splitlines()
        assert code == 2 and f"{newest}: is a folder" in line
