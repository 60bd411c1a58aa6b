"""A run directory from somebody else is data: nothing in it is imported, called, followed or resolved.

Every case spoils a copy of one small run; whatever command reads it then, no canary is left, nothing outside of the
copy changes, and no secret of the environment appears. One's own runs need no flag for one's own code.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import ROOT
from rlmem_envs.occlusion import workers
from small_runs import CUE
from spoilt import resealed, set_value

from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.config.paths import own_dirs
from rlmem.config.targets import build
from rlmem.core.errors import UserError
from rlmem.jobs.manifest import Job, Manifest
from rlmem.jobs.spec import SweepSpec
from rlmem.record import rundir
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.trust import SUPER_JOURNAL
from rlmem.run.stored import stored_config
from rlmem.run.train import train

SECRET = "a-secret-of-this-user"
OUTSIDE = "not to be touched\n"


@pytest.fixture(scope="module")
def own_run(tmp_path_factory) -> Path:
    run_dir = tmp_path_factory.mktemp("own") / "run"
    train(load([*CUE, f"run_dir={run_dir}"]))
    return run_dir


@pytest.fixture
def received(own_run, tmp_path, monkeypatch) -> Path:
    """`r`, a copy of a run with a module in it, in a folder where that can be imported; `home` lies beside it."""
    shutil.copytree(own_run, tmp_path / "r")
    canary = "open('canary', 'a').write(__name__)\n"
    (tmp_path / "r" / "evil.py").write_text(f"{canary}\nclass X:\n    def __init__(self, **kwargs):\n        {canary}")
    shutil.copy(tmp_path / "r" / "evil.py", tmp_path / "r-evil.py")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file.txt").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield tmp_path / "r"
    for name in [name for name in sys.modules if name == "r" or name.startswith("r.")]:
        del sys.modules[name]


# --- cases -----------------------------------------------------------------------------------------------------------

Spoil = Callable[[Path], None]


def setting(path: str, value: Any) -> Spoil:
    """The value at a dotted path of config.yaml."""

    return lambda run_dir: set_value(run_dir / "config.yaml", path, value)


def text(old: str, new: str, name: str = "config.yaml") -> Spoil:
    """One text in place of another, without the line of `rlmem.record.trust`, which would betray the change."""

    def spoil(run_dir: Path) -> None:
        content = (run_dir / name).read_text().replace(old, new, 1)
        (run_dir / name).write_text(re.sub(r"\A# sha256 .*\n", "", content))

    return spoil


def link(name: str, target: str) -> Spoil:
    """A link at `name` of the run to something beside the run."""

    def spoil(run_dir: Path) -> None:
        path = run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(run_dir.parent / target)

    return spoil


def pickled(run_dir: Path) -> None:
    """A checkpoint that would run code if it were unpickled, with the right checksum."""

    class Evil:
        def __reduce__(self) -> Any:
            return open, ("canary", "w")

    (path,) = Checkpoints(run_dir / "checkpoints").paths()
    resealed(path, {"agent": Evil(), "experiment": {}, "step": 32})


def pipe(run_dir: Path) -> None:
    (run_dir / "metrics.jsonl").unlink()
    os.mkfifo(run_dir / "metrics.jsonl")


def bomb(run_dir: Path) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
    (run_dir / "config.yaml").write_text("\n".join(lines))


FOREIGN = yaml.safe_load((ROOT / "tests/data/foreign.yaml").read_text(encoding="utf-8"))
CASES: dict[str, Spoil] = {
    **{name: setting(*item) for name, node in FOREIGN.items() for item in node.items()},
    "a server for W&B": lambda run_dir: (run_dir / "wandb").mkdir()
    or ((run_dir / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:1\n") and None),
    "a tag that is none": text("total_steps: 32", "total_steps: !!bool x"),
    "resumptions that are none": text('"choices"', '"resumed": 5, "choices"', "run.json"),
    "a tag of yaml": text("algo:\n", "evil: !!python/object/apply:os.system ['touch canary']\nalgo:\n"),
    "many aliases": bomb,
    "deep nesting": lambda run_dir: (run_dir / "config.yaml").write_text("[" * 5000) and None,
    "choices that are none": text('"choices": {', '"choices": [], "x": {', "run.json"),
    "overrides that are none": text('"overrides": [', '"overrides": [[1], ', "run.json"),
    "a checkpoint that is code": pickled,
    "a pipe": pipe,
    "a link to nothing": link("log.txt", "home/new.txt"),
    **{
        f"a link for the folder {name}": link(name, "home")
        for name in ("checkpoints", "analysis", "videos", "tensorboard", "wandb/latest-run")
    },
    **{
        f"a link for {name}": link(name, "home/file.txt")
        for name in (
            "log.txt", "metrics.jsonl", "episodes.jsonl", "eval.jsonl", "config.partial", "run.partial", ".lock",
            "summary.partial", "wandb_id.partial", "checkpoints/step_000000000064.partial", "wandb_id.json",
            "checkpoints/step_000000000064.pt", "analysis/sensitivity/data.csv",
        )
    },
}  # fmt: skip
COMMANDS: dict[str, list[str]] = {
    "eval": ["eval", "r", "--episodes", "2"],
    "resume": ["resume", "r", "total_steps=48"],
    "analyze": ["analyze", "sensitivity", "r", "--episodes", "2"],
    "init_from": ["train", *CUE, "run_dir=new", "init_from=r"],
    "dataset": ["dataset", "generate", "r", "--episodes", "2", "--out", "data.hdf5"],
    "sync": ["sync", "r", "--timeout", "1"],
    "plot": ["plot", "r", "--out", "plot.png"],
    "report": ["report", "r", "--out", "report.html"],
    "video": ["eval", "r", "--episodes", "2", "video=true"],
}
USUAL = ("eval", "resume", "analyze")
"""The commands that build something of a run: the fast tests hold every case to one of them, the slow ones to all."""


def harmless(command: str, capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code of a command that did nothing that it may not."""
    code = main(COMMANDS[command])
    said = capsys.readouterr()
    assert code in (0, 2), said.err
    assert "Traceback" not in said.err + said.out
    assert all(len(line) < 2000 for line in said.err.splitlines())
    assert not Path("canary").exists()
    assert not any(name == "r" or name.startswith("r.") for name in sys.modules)
    assert [(path.name, path.read_text()) for path in Path("home").iterdir()] == [("file.txt", OUTSIDE)]
    assert SECRET not in said.out + said.err
    kept = [path for path in Path().rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    return code


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("case", "command"),
    [
        pytest.param(case, command, marks=[] if command == USUAL[number % len(USUAL)] else [pytest.mark.slow])
        for number, case in enumerate(CASES)
        for command in COMMANDS
    ],
)
def test_what_somebody_else_wrote_is_not_run(received, capsys, case, command):
    CASES[case](received)
    harmless(command, capsys)


def test_a_refusal_names_the_target_and_the_flag(received, capsys):
    setting("memory._target_", "r.evil.X")(received)
    assert harmless("eval", capsys) == 2
    assert main(COMMANDS["eval"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "memory._target_" in line and "`r.evil.X`" in line and "--trust" in line and "RLMEM_KEY" in line


def test_an_edit_is_refused_by_what_it_names_or_as_an_edit(received, capsys):
    file = received / "config.yaml"
    own = file.read_text()
    file.write_text(own.replace("rlmem.memory.gru.GRU", "r.evil.X"))
    assert main(COMMANDS["eval"]) == 2
    assert "`r.evil.X` is code outside rlmem" in capsys.readouterr().err
    file.write_text(own.replace("rlmem.memory.gru.GRU", "rlmem.memory.gru.Elman"))
    assert main(COMMANDS["eval"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "config.yaml: was edited since it was written" in line and "--trust" in line


def test_rlmems_own_parts_need_no_flag_in_a_directory_that_somebody_else_made(received, monkeypatch, capsys):
    monkeypatch.setenv("RLMEM_KEY", "of somebody else")
    assert not rundir.is_own_run(received)
    assert harmless("eval", capsys) == 0
    assert harmless("resume", capsys) == 0
    assert rundir.is_own_run(received), "who resumes a run makes it his own"


def test_what_is_trusted_is_run(received, capsys):
    setting("memory._target_", "r.evil.X")(received)
    assert main([*COMMANDS["eval"], "--trust"]) == 2  # it is no memory
    assert Path("canary").exists()


OWN = """
from rlmem.memory.gru import GRU


class Own(GRU):
    pass
"""


def test_ones_own_memory_in_ones_own_module_needs_no_flag(in_tmp, monkeypatch, capsys):
    Path("own_memory_here.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(in_tmp))
    assert main(["train", *CUE, "memory._target_=own_memory_here.Own", "run_dir=r"]) == 0
    for command in (*USUAL, "init_from"):
        given = ["memory._target_=own_memory_here.Own"] if command == "init_from" else []
        assert main([*COMMANDS[command], *given]) == 0, capsys.readouterr().err
    monkeypatch.setenv("RLMEM_KEY", "of a cluster")
    with pytest.raises(UserError, match="own_memory_here"):
        stored_config(Path("r"))
    assert main(["resume", "r", "total_steps=64", "--trust"]) == 0
    stored_config(Path("r"))


def test_a_key_is_made_once_and_is_for_its_user_alone(in_tmp, monkeypatch):
    from rlmem.record.trust import is_changed, is_own, key_file, sealed

    monkeypatch.delenv("RLMEM_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(in_tmp / "config"))
    assert not is_own(f"# sha256 {'0' * 64} seal {'0' * 64}\nx: 1\n") and not key_file().exists()
    text = sealed("x: 1\n")
    assert key_file().stat().st_mode & 0o777 == 0o600
    assert [path.name for path in key_file().parent.iterdir()] == ["key"]
    assert yaml.safe_load(text) == {"x": 1}
    assert is_own(text) and sealed("x: 1\n") == text
    assert not is_own(text.replace("x", "y")) and not is_own("x: 1\n")
    assert is_changed(text.replace("x", "y")) and not is_changed(text) and not is_changed("x: 1\n")
    key_file().chmod(0o644)  # others may have read it
    assert not is_own(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(in_tmp / "file"))
    (in_tmp / "file").write_text("")
    text = sealed("x: 1\n")
    assert " seal none" in text and not is_own(text), "who can have no key has unsealed runs"
    assert is_changed(text.replace("x", "y"))


@pytest.mark.parametrize("value", ["${oc.env:HOME}", "\\${x}", "\\\\${x}", "a ${ b", "$", "${a}\\${b}", "C:\\${x}\\"])
def test_stored_values_mean_themselves(own_run, tmp_path, value):
    shutil.copytree(own_run, tmp_path / "r")
    setting("init_from", value)(tmp_path / "r")
    assert stored_config(tmp_path / "r").values["init_from"] == value
    assert stored_config(tmp_path / "r", ["threads=2"]).values["init_from"] == value


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("env._target_=subprocess.call", "gives no gymnasium"),
        (f"env._target_={__name__}.unannotated", "says so by its annotation"),
        (f"memory._target_={__name__}.unannotated", "gives no rlmem.memory"),
        ("memory._target_=os.system", "does not take `input_size`"),
        (f"batching._target_={__name__}.unannotated", "gives no rlmem.batching"),
    ],
)
def test_the_kind_is_asked_before_anything_is_called(in_tmp, capsys, override, what):
    group = override.partition(".")[0]
    with pytest.raises(UserError) as refused:
        train(load([*CUE, override, "run_dir=r"]))
    assert what in str(refused.value)
    assert group in str(refused.value)
    assert not CALLED and not Path("r").exists()


CALLED: list[str] = []


def unannotated(**keys: Any) -> Any:
    CALLED.append("called")


def plain(params: dict[str, Any]) -> Any:
    return params


def test_a_mapping_with_a_target_is_a_mapping_where_no_class_is_taken():
    inner = {"_target_": "no.such.module"}
    assert build({"_target_": f"{__name__}.plain", "params": inner}) == inner


# --- sweeps ----------------------------------------------------------------------------------------------------------


def swept(name: str, *overrides: str) -> Manifest:
    """A sweep of one job that was never begun."""
    Path(name).mkdir()
    manifest = Manifest(Path(name))
    manifest.submit(SweepSpec(overrides), [Job("one", overrides, "hash", 1, 32)])
    return manifest


@pytest.mark.parametrize(
    "override",
    [
        "memory._target_=r.evil.X",
        "env={_target_: r.evil.X}",
        "env.id=r.evil:X-v0",
        "env.id=r-evil:X-v0",
        "hydra/launcher=submitit_local",
        "launcher=submitit_local",
        "hydra.searchpath=[file://home]",
        "algo.replay_dir=home/replay",
        "init_from=home/run",
        "memory.hidden_size=${oc.env:SECRET}",
    ],
)
def test_jobs_that_somebody_else_wrote_name_no_code(received, monkeypatch, capsys, override):
    manifest = swept("sweep", *CUE, override)
    assert manifest.foreign() == []
    monkeypatch.setenv("RLMEM_KEY", "of somebody else")
    assert main(["sweep", "sweep"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert override in line and "--trust" in line and not Path("canary").exists()
    assert os.listdir("sweep") == ["sweep.sqlite"]


def test_one_job_that_was_edited_is_enough(received, capsys):
    manifest = swept("sweep", *CUE)
    changed = json.dumps([*CUE, "memory._target_=r.evil.X"])
    manifest.connection.execute("UPDATE jobs SET overrides = ?", [changed])
    assert main(["sweep", "sweep"]) == 2
    assert "memory._target_=r.evil.X" in capsys.readouterr().err


def test_nothing_of_a_sweep_is_a_link(received, capsys):
    swept("sweep", *CUE)
    Path("sweep/001-one").symlink_to(Path("home").absolute())
    assert main(["sweep", "sweep"]) == 2
    assert "sweep/001-one: is a link" in capsys.readouterr().err
    assert os.listdir("home") == ["file.txt"]


def test_jobs_that_somebody_else_wrote_choose_shipped_options(received, monkeypatch, capsys):
    """A folder `conf` may have come with them."""
    Path("conf/memory").mkdir(parents=True)
    Path("conf/memory/mine.yaml").write_text("_target_: r.evil.X\n")
    swept("sweep", *CUE, "memory=mine")
    monkeypatch.setenv("RLMEM_KEY", "of somebody else")
    monkeypatch.delenv("RLMEM_SEARCHPATH", raising=False)
    assert main(["sweep", "sweep"]) == 1
    assert "has no option mine" in capsys.readouterr().err and not Path("canary").exists()
    assert "RLMEM_SEARCHPATH" not in os.environ


def test_a_run_directory_brings_no_options(received, monkeypatch):
    monkeypatch.delenv("RLMEM_SEARCHPATH", raising=False)
    (received / "conf" / "env").mkdir(parents=True)
    (received / "conf" / "env" / "mine.yaml").write_text("_target_: r.evil.X\n")
    monkeypatch.chdir(received)
    assert own_dirs() == []
    (received / "run.json").unlink()
    assert own_dirs() == [received / "conf"]


@pytest.mark.parametrize("name", ["../r", "${oc.env:SECRET}", "-x", "", ".."])
def test_a_name_of_a_job_is_a_name(received, capsys, name):
    swept("sweep", *CUE).connection.execute("UPDATE jobs SET name = ?", [name])
    assert main(["sweep", "sweep"]) == 2
    assert "is no name of a job" in capsys.readouterr().err


def test_overrides_are_no_flags(received, capsys):
    swept("sweep", *CUE, "--help")
    assert main(["sweep", "sweep"]) == 2
    assert "are not all key=value" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["status", "go on", "report"])
def test_looking_at_a_manifest_deletes_and_changes_no_file(received, capsys, what):
    """SQLite deletes the file that a journal of several databases names, when such a journal is rolled back."""
    swept("sweep", *CUE)
    Path("sweep/sweep.sqlite-journal").write_bytes(b"x" * 512 + SUPER_JOURNAL)
    arguments = {"status": ["sweep", "status", "sweep"], "go on": ["sweep", "sweep"], "report": ["report", "sweep"]}
    assert main(arguments[what]) == 2
    assert "of several databases" in capsys.readouterr().err
    Path("sweep/sweep.sqlite-journal").unlink()
    shutil.move("sweep/sweep.sqlite", "home/other.sqlite")
    Path("sweep/sweep.sqlite").symlink_to(Path("home/other.sqlite").absolute())
    before = Path("home/other.sqlite").read_bytes()
    assert main(arguments[what]) == 2
    assert "is no regular file" in capsys.readouterr().err
    assert Path("home/other.sqlite").read_bytes() == before


JOB = """
import sys
sys.path = [folder for folder in sys.path if folder]
import os
from rlmem.core.processes import rlmem, start
job = start(rlmem, ["train", "version"], "log.txt", variables=os.environ, fresh=sys.argv[1] == "fresh")
job.join()
print(open("log.txt").read(), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [[workers.START], [JOB, "fresh"], [JOB, "forked"]], ids=["workers", "fresh", "forked"]
)
def test_other_processes_import_nothing_of_the_current_folder(received, command):
    for name in ("pickle", "signal", "ctypes", "rlmem", "multiprocessing", "torch"):
        shutil.copy("r/evil.py", f"{name}.py")
    done = subprocess.run([sys.executable, "-c", *command], input="", capture_output=True, text=True)
    assert "EOFError" in done.stderr or done.stderr.startswith("rlmem: error: version: "), done.stderr
    assert not Path("canary").exists()
