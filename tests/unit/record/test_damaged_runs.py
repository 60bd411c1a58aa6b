"""Random damage to a run directory: the run ends as if nothing had happened, or one line says what is wrong."""

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import assert_same_end, small_run
from small_runs import CUE_DQN, RECALL

from rlmem.commands.cli import main
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl

SHORT = ["total_steps=400", "checkpoint.keep=9"]
Draw = random.Random


def flip(path: Path, draw: Draw) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, draw: Draw) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def lengthen(path: Path, draw: Draw) -> None:
    path.write_bytes(path.read_bytes() + draw.choice([b"\n", b"{}\n", b"\0" * 100, b"step: 1\n", b"\xff\xfe"]))


def lose_a_line(path: Path, draw: Draw) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def repeat_a_line(path: Path, draw: Draw) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(draw.randrange(len(lines)), draw.choice(lines))
    path.write_bytes(b"".join(lines))


def change_a_digit(path: Path, draw: Draw) -> None:
    content = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
    content[draw.choice(digits or [0])] = ord(draw.choice("0123456789"))
    path.write_bytes(content)


def shuffle_lines(path: Path, draw: Draw) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    draw.shuffle(lines)
    path.write_bytes(b"".join(lines))


def empty(path: Path, draw: Draw) -> None:
    path.write_bytes(b"")


def delete(path: Path, draw: Draw) -> None:
    path.unlink()


def make_a_folder(path: Path, draw: Draw) -> None:
    path.unlink()
    path.mkdir()


def make_a_link(path: Path, draw: Draw) -> None:
    target = draw.choice([Path("nowhere"), path.absolute().parent, Path("/dev/null"), path.absolute()])
    path.unlink()
    path.symlink_to(target)


def take_another(path: Path, draw: Draw) -> None:
    """The content of another file of the run."""
    others = [other for other in path.parent.rglob("*") if other.is_file() and other != path]
    path.write_bytes(draw.choice(sorted(others)).read_bytes())


def take_the_checksum_too(path: Path, draw: Draw) -> None:
    """A checkpoint under the name of another, with its checksum."""
    saved = Checkpoints(path.parents[-2] / "checkpoints").paths()
    one, other = draw.choice(saved), draw.choice(saved)
    new = draw.choice([other, one.with_name("step_000000009999.pt"), one.with_name("step_x.pt")])
    for suffix in (".pt", ".sha256"):
        content = one.with_suffix(suffix).read_bytes()
        new.with_suffix(suffix).write_bytes(content)


DAMAGES: list[Callable[[Path, Draw], None]] = [
    flip, truncate, lengthen, lose_a_line, repeat_a_line, change_a_digit, shuffle_lines, empty, delete, make_a_folder,
    make_a_link, take_another, take_the_checksum_too,
]  # fmt: skip


@pytest.fixture(scope="module", params=[RECALL, CUE_DQN], ids=["ppo", "dqn"])
def whole(request, tmp_path_factory) -> tuple[Path, list[str]]:
    """A run that nothing happened to, and its command."""
    overrides = [*request.param, *SHORT]
    return small_run(run_dir=str(tmp_path_factory.mktemp("whole") / "run"), base=overrides), overrides


def damaged(whole: Path, draw: Draw) -> str:
    """`cut`: the run as a kill left it, with one or two random damages; which."""
    shutil.rmtree("cut", ignore_errors=True)
    shutil.copytree(whole, "cut")
    for path in Checkpoints(Path("cut/checkpoints")).paths()[2:]:
        path.unlink()
        path.with_suffix(".sha256").unlink()
    said = []
    for _ in range(draw.choice([1, 1, 2])):
        files = sorted(path for path in Path("cut").rglob("*") if path.is_file() and path.stat().st_size)
        path, damage = draw.choice(files), draw.choice(DAMAGES)
        damage(path, draw)
        said.append(f"{damage.__name__} {path}")
    return ", ".join(said)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_random_damage_is_survived_or_refused_in_one_line(whole, in_tmp, capsys):
    """By `resume`, or by the same command again; `eval` and `report` then say the same of it, or refuse."""
    reference, overrides = whole
    survived = 0
    for case in range(150):
        draw = Draw(f"{overrides[0]} {case}")
        what = damaged(reference, draw)
        again = ["train", *overrides, "run_dir=cut", "on_exists=resume"]
        for command in (draw.choice([["eval", "cut", "--episodes", "2"], ["report", "cut"]]), ["resume", "cut"], again):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = main(command)
            said = capsys.readouterr()
            assert code in (0, 2), f"{what}: {command} ended with {code}: {said.err}"
            lines = [line for line in said.err.splitlines() if line.startswith("rlmem: ")]
            assert len(lines) == (code == 2), f"{what}: {said.err}"
            if code == 0 and command[0] in ("resume", "train"):
                assert_same_end("cut", reference)
                episodes = [read_jsonl(Path(run_dir) / "episodes.jsonl") for run_dir in ("cut", reference)]
                assert episodes[0] == episodes[1], what
                survived += 1
                break
    assert survived, "some damage costs no more than the steps since a checkpoint"
