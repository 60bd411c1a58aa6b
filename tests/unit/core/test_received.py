"""Files that another user wrote: only regular files in the named folder are read, within bounds of memory and time.

Every file of a run, a sweep, a population, published results, a reproduction and a data set is replaced by a link, a
pipe, a device or a huge file. A command that reads it may refuse it in one line, and does no more.
"""

import gzip
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import yaml
from helpers import ROOT
from made_results import item_text
from small_runs import CUE
from spoilt import resealed, set_value

from rlmem.algos.supervised.dataset.file import Recording, write
from rlmem.algos.supervised.dataset.file import read as read_dataset
from rlmem.commands.cli import main
from rlmem.config import plainyaml
from rlmem.config.catalog import with_parents
from rlmem.config.compose import load
from rlmem.core import received
from rlmem.core.errors import UserError
from rlmem.evidence import catalog
from rlmem.evidence.folder import CELLS, foreign, remembered
from rlmem.evidence.items import runner_of
from rlmem.evidence.page import find
from rlmem.jobs.manifest import Job, Manifest
from rlmem.jobs.pool import Options
from rlmem.jobs.spec import SweepSpec
from rlmem.record.checkpoint import read, sha256
from rlmem.run.train import train
from rlmem.share.hub import _build

GB = 1 << 30
RESULTS = "ffm/figure6.laptop"
SAVED = "checkpoints/step_000000000032"
SMALL = item_text("tiny")
FOLDERS_OF_OTHERS = yaml.safe_load((ROOT / "tests/data/received.yaml").read_text(encoding="utf-8"))
KINDS: dict[str, list[str]] = {kind: each["files"] for kind, each in FOLDERS_OF_OTHERS.items()}
VERBS: dict[str, list[str]] = {kind: each["commands"] for kind, each in FOLDERS_OF_OTHERS.items()}


def words(command: str, folder: Path) -> list[str]:
    return re.sub(r"\bF\b", str(folder), command).split()


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> Path:
    """One folder of every kind, as another user wrote them."""
    root = tmp_path_factory.mktemp("originals")
    before, key = Path.cwd(), os.environ["RLMEM_KEY"]
    os.chdir(root)
    os.environ["RLMEM_KEY"] = "of another user"
    try:
        train(load([*CUE, "run_dir=run"]))
        Path("sweep").mkdir()
        manifest = Manifest(Path("sweep"))
        manifest.submit(SweepSpec(tuple(CUE)), [Job("one", tuple(CUE), "hash", 1, 32)])
        manifest.connection.execute("UPDATE jobs SET attempts = 1, state = 'failed'")
        manifest.connection.close()
        shutil.copytree("run", "sweep/001-one")
        about = {"overrides": CUE, "vary": ["algo.lr=1,2"], "agents": 2, "ready": 2, "window": 2, "every": 2}
        about |= {"level": 0.05, "seed": 0, "own": [["seed=1", "algo.lr=1"], ["seed=2", "algo.lr=2"]]}
        Path("population").mkdir()
        Path("population/population.yaml").write_text(yaml.safe_dump(about))
        rows = [{"round": 1, "agent": k, "step": 32, "other": 1 - k, "copied": False} for k in (0, 1)]
        Path("population/population.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for agent in ("agent_0", "agent_1"):
            shutil.copytree("run", f"population/{agent}")
        Path("results/ffm").mkdir(parents=True)
        for file in (ROOT / "results/ffm").glob("figure6.*"):
            shutil.copy(file, "results/ffm")
        Path("results/SHA256SUMS").write_text("0  x\n")
        Path("mine").mkdir()
        Path("mine/small.yaml").write_text(SMALL)
        experiment = catalog.find("mine/small.yaml")
        runner = runner_of(experiment.at("smoke"))
        runner.begin(runner.planned.cells(), Options())
        runner.written()
        write(Path("data/data.hdf5"), recording())
    finally:
        os.chdir(before)
        os.environ["RLMEM_KEY"] = key
    return root


def recording(number: int = 10) -> Recording:
    """Transitions of cart-pole that mean nothing."""
    ends = np.arange(number) % 10 == 9
    zeros = np.zeros((number, 4), np.float32)
    return Recording(zeros, zeros[:, :1], zeros[:, 0], ends, ends)


FOLDERS = {"reproduction": "reproduce/mine/small-smoke"}


@pytest.fixture
def folder(originals, tmp_path, monkeypatch) -> Callable[[str], Path]:
    """A function that copies a folder of a kind to the current one, which lies in an empty folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(originals / "mine", "mine")
    Path("outside").mkdir()

    def copy(kind: str) -> Path:
        path = Path(FOLDERS.get(kind, kind))
        shutil.copytree(originals / path, path)
        return path

    return copy


# --- what takes the place of a file ----------------------------------------------------------------------------------


def link(path: Path) -> None:
    """The file itself, moved out of the folder: a reader that follows the link would be content."""
    target = Path("outside", path.name).absolute()
    shutil.move(path, target)
    path.symlink_to(target)


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def pipe(path: Path) -> None:
    gone(path)
    os.mkfifo(path)


def device(path: Path) -> None:
    gone(path)
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """The file with 20 GB of zeros behind its end, which take no room on the disk."""
    if path.is_file():
        os.truncate(path, 20 * GB)


def bomb(path: Path) -> None:
    """2 GB that gzip has made small."""
    gone(path)
    with gzip.open(path, "wb", 1) as file:
        for _ in range(32):
            file.write(bytes(1 << 26))


def text(path: Path) -> None:
    """120 MB of brackets, commas and digits, in one line."""
    gone(path)
    path.write_bytes(b'{"a": [' + b"[],1," * (24 << 20) + b"1]}\n")


def rows(path: Path) -> None:
    """100 MB of short lines."""
    gone(path)
    path.write_bytes(b"{}\n" * (33 << 20))


QUICK = (link, pipe, device, sparse)
"""Those that are made at once."""

opened: list[str] = []
"""The files that this process has opened while it was `watching`."""
watching: list[bool] = []


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event == "open" and isinstance(arguments[0], str):
        opened.append(os.path.realpath(arguments[0]))


sys.addaudithook(_record)


@contextmanager
def bounded(seconds: int = 60, memory: int = GB) -> Iterator[None]:
    """Within, this process may take only so much time and additional memory, and opens nothing in `outside`."""

    def late(signum: int, frame: Any) -> None:
        raise TimeoutError("takes too long")

    size = int(re.findall(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
    limits, before = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, late)
    opened.clear()
    watching.append(True)
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, limits[1]))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        watching.clear()
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert not [path for path in opened if f"{Path.cwd()}/outside/" in path or path == "/dev/zero"]


def one_line(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command, which is right or refuses in one line."""
    with bounded():
        code = main(words(command, folder))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    lines = [line for line in said.err.splitlines() if line.startswith("rlmem: ")]
    assert code == (2 if lines else 1 if command.startswith("verify") and code else 0), said.err
    assert len(lines) <= 1, said.err


# A link as data set is not among them: the user names it, so it is the user's own.
CASES = [
    (kind, name, QUICK[(number + (kind == "data")) % len(QUICK)], VERBS[kind][number % len(VERBS[kind])])
    for kind, names in KINDS.items()
    for number, name in enumerate(names)
]
LARGE = [
    pytest.param(kind, names[0], weapon, VERBS[kind][0], marks=pytest.mark.slow)
    for kind, names in KINDS.items()
    for weapon in (bomb, text, rows)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "name", "weapon", "verb"), [*CASES, *LARGE], ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_link_a_pipe_a_device_or_a_huge_file_is_refused_in_one_line(folder, capsys, kind, name, weapon, verb):
    path = folder(kind)
    weapon(path / name)
    one_line(verb, path, capsys)


# --- what a file holds -----------------------------------------------------------------------------------------------


def hdf5(change: Callable[[h5py.File], None]) -> Callable[[], Path]:
    def make() -> Path:
        path = Path("data.hdf5")
        write(path, recording())
        write(Path("outside/other.hdf5"), recording())
        with h5py.File(path, "a") as file:
            change(file)
        return path

    return make


def replaced(name: str, value: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = value

    return change


def external(file: h5py.File) -> None:
    Path("outside/secret").write_bytes(bytes(160))
    del file["observations"]
    file.create_dataset("observations", (10, 4), "f4", external=[(str(Path("outside/secret").absolute()), 0, 160)])


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((10, 4), "f4")
    layout[:] = h5py.VirtualSource("outside/other.hdf5", "observations", (10, 4))
    del file["observations"]
    file.create_virtual_dataset("observations", layout)


def large(file: h5py.File) -> None:
    """Numbers that were never written, for which a file has no room."""
    for name in ("observations", "actions"):
        del file[name]
        file.create_dataset(name, (10**9, 4), "f8", chunks=(1000, 4), compression="gzip")


def unpacked(file: h5py.File) -> None:
    """A part that becomes 512 MB, more than it says."""
    del file["observations"]
    table = file.create_dataset("observations", (10, 4), "f4", chunks=(10, 4), compression="gzip")
    packing = zlib.compressobj(1)
    parts = [packing.compress(bytes(1 << 26)) for _ in range(8)]
    table.id.write_direct_chunk((0, 0), b"".join([*parts, packing.flush()]))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (hdf5(replaced("observations", h5py.ExternalLink("outside/other.hdf5", "observations"))), "is a link"),
        (hdf5(replaced("rewards", h5py.SoftLink("/actions"))), "is a link"),
        (hdf5(external), "is a link"),
        (hdf5(virtual), "is a link"),
        (hdf5(large), "bytes of memory"),
        (hdf5(unpacked), "larger than it says"),
        (hdf5(replaced("rewards", ["text"] * 10)), "expected numbers"),
    ],
    ids=["external link", "soft link", "external storage", "virtual", "large", "unpacked", "text"],
)
def test_a_data_set_is_in_its_file_and_no_larger_than_it(folder, make, what):
    path = make()
    with bounded(), pytest.raises(UserError, match=what):
        read_dataset(path)


def test_a_manifest_with_a_view_or_other_tables_is_refused(folder, capsys):
    path = folder("sweep") / "sweep.sqlite"
    for statement in (
        "CREATE VIEW x AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n ORDER BY i",
        "CREATE TRIGGER t AFTER UPDATE ON jobs BEGIN DELETE FROM sweep; END",
    ):
        connection = sqlite3.connect(path)
        connection.execute(statement)
        if "VIEW" in statement:
            connection.execute("ALTER TABLE jobs RENAME TO other")
            connection.execute("DROP VIEW x")
            connection.execute(statement.replace("VIEW x", "VIEW jobs"))
        connection.commit()
        connection.close()
        one_line("sweep status F", path.parent, capsys)
        assert main(["sweep", "status", "sweep"]) == 2
        assert "is not a table of a sweep" in capsys.readouterr().err
        shutil.rmtree("sweep")
        folder("sweep")


@pytest.mark.parametrize(
    ("method", "what"), [(zipfile.ZIP_DEFLATED, "it is compressed"), (zipfile.ZIP_STORED, "too many lists")]
)
def test_a_checkpoint_is_not_much_larger_than_its_file(folder, method, what):
    path = folder("run") / f"{SAVED}.pt"
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, b"]" * (1 << 25) if name.endswith(".pkl") else content)
    path.with_suffix(".sha256").write_text(sha256(path))
    with bounded(), pytest.raises(ValueError, match=what):
        read(path)


@pytest.mark.parametrize(
    "text",
    ["a: 1" + ":30" * 80_000, "a: !!int '1" + ":30" * 80_000 + "'", "a: " + "[" * 1000, "a: " + "9" * 5000,
     "a: &a\n  <<: *a", "a: 2001-99-99"],
    ids=["base 60", "base 60 by a tag", "nested", "digits", "merged", "a date"],
)  # fmt: skip
def test_yaml_takes_no_time_that_is_quadratic(text):
    with bounded(20):
        try:
            assert isinstance(plainyaml.load(text)["a"], str)
        except yaml.YAMLError:
            assert "base 60" not in text


def test_yaml_with_aliases_holds_no_more_values_than_a_long_file():
    names = "abcdefgh"
    lines = [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairwise(names)]
    for text in ("\n".join(["a: &a [1]", *lines]), "a: &a {b: *a}"):
        with bounded(20), pytest.raises(yaml.YAMLError, match="more than"):
            plainyaml.load(text)


@pytest.mark.parametrize(
    ("content", "what"),
    [("- 1", "no mapping"), ("a: &a {b: *a}", "more than"), ("\0", "cannot be read"), (b"\xff", "cannot be read"),
     ("defaults: [x, y]", None), ("defaults: 5", None), (pipe, None), (Path.mkdir, None), (sparse, "has 21,"),
     ("defaults: [../../../secret]", "leads out of"), (link, "is a link that leads"), ("size:\t5", None)],
    ids=range(12),
)  # fmt: skip
def test_the_options_of_somebodys_repository_are_listed_or_refused_in_one_line(folder, capsys, content, what):
    path = Path("conf/memory/x.yaml")
    path.parent.mkdir(parents=True)
    path.with_name("y.yaml").write_text("# Another\ndefaults: [x]\n")
    if callable(content):
        if content in (sparse, link):
            path.touch()
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with bounded():
        codes = {main(["train", "--help", "memory=x"]), main(["list", "memory"])}
    said = capsys.readouterr().err.splitlines()
    assert codes <= {0, 2}
    assert bool(what) == (2 in codes) and all(what and what in line for line in said), said


def test_an_option_that_an_option_builds_on_in_many_ways_is_read_once(folder):
    path = Path("conf/memory/a0.yaml")
    path.parent.mkdir(parents=True)
    for number in range(9):
        path.with_name(f"a{number}.yaml").write_text(
            f"defaults: [{', '.join([f'a{number + 1}'] * 50)}]\nb{number}: 1\n"
        )
    with bounded():
        assert [part.stem for part in with_parents(path)] == [f"a{number}" for number in range(8, -1, -1)]


@pytest.mark.parametrize(
    "option", ["_target_: os.mkdir\npath: canary", "_target_: 5", "level: [1]", "[", "", "backend: x"], ids=range(6)
)
def test_a_list_of_environments_calls_nothing_else(folder, capsys, option):
    Path("conf/env").mkdir(parents=True)
    Path("conf/env/own.yaml").write_text(option)
    assert main(["list", "env", "own"]) == (2 if option == "[" else 0)
    assert not Path("canary").exists()


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without its reader in C")
def test_yaml_is_read_by_the_faster_reader():
    assert issubclass(plainyaml.Loader, yaml.CSafeLoader)


def test_a_number_to_the_base_of_60_is_text_and_all_else_is_as_before():
    text = "{a: 1:20:30, b: 1:20.5, c: 12, d: 1.5e+3, e: 0x1f, f: 017, g: .inf, h: yes, i: null, j: '1:2', k: -3}"
    assert plainyaml.load(text) == yaml.safe_load(text) | {"a": "1:20:30", "b": "1:20.5"}


def test_rows_of_a_csv_file_have_the_columns_of_its_header(tmp_path):
    path = tmp_path / "x.csv"
    for content in (
        "a,b\n1\n",
        "a,b\n1,2,3\n",
        "a,b\n1,2\n" + "x" * (2 << 20),
        "a,a\n1,2\n",
        'a,b\n1,"' + "x" * 200_000,
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"row|line|field"):
            list(received.csv_rows(path))
    path.write_text('a,b\r\n1,"x\ny"\r\n\r\n3,4\n')
    assert list(received.csv_rows(path)) == [{"a": "1", "b": "x\ny"}, {"a": "3", "b": "4"}]


def test_a_link_within_a_folder_is_followed_and_one_out_of_it_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/file").write_text("1")
    Path("in/near").symlink_to("file")
    Path("out").write_text("2")
    Path("in/far").symlink_to("../out")
    Path("named").symlink_to("in")
    assert [received.text(Path(name)) for name in ("in/near", "named/file", "named/near")] == ["1", "1", "1"]
    for name in ("in/far", "named/far"):
        with pytest.raises(received.Unreadable, match="is a link that leads out of"):
            received.text(Path(name))
    with pytest.raises(received.Unreadable, match="leads out of in"):
        received.inside(Path("in"), "../out")


def test_a_report_leaves_out_folders_that_lie_elsewhere(folder, capsys):
    shutil.move(folder("run"), "outside/run")
    Path("mine/run").symlink_to(Path("outside/run").absolute())
    assert main(["report", "mine"]) == 2
    target = str(Path("outside/run").absolute())
    assert (
        f"mine/run: is a link, which is not followed; expected its target; e.g. {target}\n" in capsys.readouterr().err
    )
    assert main(["report", target]) == main(["report", "mine/run"]) == 0


def test_a_file_that_the_user_names_may_be_a_link_out_of_its_folder(folder, capsys):
    folder("data")
    Path("outside/sweep.yaml").write_text(f"overrides: {json.dumps(CUE)}\ngrid: {{seed: [0, 1]}}\n")
    for name, target in (("d.hdf5", "data/data.hdf5"), ("s.yaml", "outside/sweep.yaml"), ("e.yaml", "mine/small.yaml")):
        Path("named", name).parent.mkdir(exist_ok=True)
        Path("named", name).symlink_to(Path(target).absolute())
    env = "env=cartpole_p"
    for command in (
        "dataset info named/d.hdf5",
        f"dataset import named/d.hdf5 {env} --out out.hdf5",
        f"train --dry-run algo=decision_model algo.dataset=named/d.hdf5 {env}",
        "sweep named/s.yaml --dry-run",
        "reproduce named/e.yaml --budget smoke --dry-run",
    ):
        assert main(command.split()) == 0, capsys.readouterr().err


def test_a_report_has_no_control_characters(folder):
    file = folder("run") / "run.json"
    file.write_text(file.read_text().replace('"memory": "gru"', '"memory": "\\u001b[2J\\u0000\\u202e"', 1))
    assert main(["report", "run"]) == 0
    text = Path("report.html").read_text()
    assert "\ufffd[2J" in text and not {"\x1b", "\0", "\u202e"} & {*text}


OF_POPULATIONS: list[tuple[str, Any]] = [("agents", 2.5), ("agents", 0), ("agents", 10**9), ("every", -1), ("own", [])]
OF_POPULATIONS += [("total_steps", "x"), ("total_steps", None), ("total_steps", [1])]


@pytest.mark.parametrize(("key", "value"), OF_POPULATIONS)
def test_numbers_of_a_population_are_those_that_one_has(folder, capsys, key, value):
    path = folder("population") / ("agent_0/config.yaml" if key == "total_steps" else "population.yaml")
    set_value(path, key, value)
    assert main(["population", "status", "population"]) == 2
    assert f"{path}: is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", [lambda weights: {"a": weights}, lambda weights: dict.fromkeys(weights, 1)], ids="ab"
)
def test_weights_that_are_no_tensors_are_refused_in_one_line(folder, capsys, change):
    path = folder("run") / f"{SAVED}.pt"
    state = torch.load(path, weights_only=True)
    resealed(path, state | {"agent": change(state["agent"])})
    one_line("eval F --episodes 1", path.parents[1], capsys)


def test_the_pictures_of_a_page_are_bounded(folder, capsys):
    path = folder("results")
    for number in range(5):
        Path(path, f"{RESULTS}.p{number}.svg").write_bytes(bytes(15 << 20))
    assert main(["report", "results"]) == 2
    assert "expected at most 67,108,864 in a page" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "value"), [("logger", "x"), ("logger", {"wandb": [1]}), ("evaluation", "x")])
def test_a_run_of_a_wrong_shape_is_not_uploaded(folder, capsys, key, value):
    path = folder("run") / "config.yaml"
    set_value(path, key, value)
    assert main(["sync", "run"]) == 2
    assert "is damaged (" in capsys.readouterr().err


def test_values_are_counted_without_memory_for_each():
    with bounded(60, 1 << 26):
        assert sum(1 for _ in received.nodes([[]] * 2_000_000)) == 2_000_001


TEN = "{" + ", ".join(f"a{k}: []" for k in range(10)) + "}"


@pytest.mark.parametrize(
    ("old", "new"),
    [("seeds: 1", "seeds: 1000000000"), ("rows: {gru: []}", f"rows: [{', '.join([TEN] * 9)}]"),
     ("columns: {one: []}\nseeds: 1", f"columns: {TEN}\nseeds: 1001"),
     ("columns: {one: []}\nseeds: 1\nexpect: [gru > 0 on one]\nbudgets: {smoke: {}",
      f"columns: {TEN}\nseeds: 1\nexpect: [gru > 0 on 1]\nbudgets: {{smoke: {{seeds: 1001}}")],
    ids=["seeds", "rows", "runs", "budget"],
)  # fmt: skip
def test_an_experiment_has_a_bounded_number_of_runs(folder, capsys, old, new):
    path = folder("reproduction") / "experiment.yaml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new))
    one_line("report F", path.parent, capsys)
    assert main(["report", str(path.parent)]) == 2
    assert "expected at most 10,000" in capsys.readouterr().err


@pytest.mark.parametrize(
    "grid",
    ["{seed: 'range(0,1000000000)'}",
     "{memory: [gru], memory.gru.a: 'range(0,9999)', memory.gru.b: 'range(0,9999)', memory.gru.c: 'range(0,9999)'}"],
    ids=["range", "conditions"],
)  # fmt: skip
def test_a_sweep_file_has_a_bounded_number_of_jobs(folder, capsys, grid):
    Path("s.yaml").write_text(f"grid: {grid}\n")
    with bounded():
        assert main(["sweep", "s.yaml", "--dry-run"]) == 2
    assert "10,000" in capsys.readouterr().err


def test_a_file_of_holes_is_refused_before_it_is_read(folder):
    path = folder("run") / f"{SAVED}.pt"
    os.truncate(path, 1 << 40)
    with bounded(5), pytest.raises(ValueError, match="most of them never written"):
        read(path)
    with open("half", "wb") as file:
        file.write(bytes(received.ROOM // 64))
        file.truncate(received.ROOM + 1)
    received.opened(Path("half")).close()


def test_links_back_to_a_folder_cost_a_report_no_time(folder, capsys):
    where = folder("run").parent
    for number in range(30):
        (where / f"again{number}").symlink_to(".")
    assert len(find.run_dirs(where, [])) == 1


# --- what a configuration or a list of runs names --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [("env.file", "/dev/zero"), ("env.file", "pipe"), ("algo.dataset", "data/x.hdf5"),
     ("env.kwargs", {"xml_file": "/dev/zero"}), ("env.kwargs", {"xml_file": "./x.xml"}),
     ("wrapper.x", {"table": "~/x"})],
)  # fmt: skip
def test_a_configuration_of_another_user_names_no_file(folder, capsys, key, value):
    os.mkfifo("pipe")
    path = folder("run") / "config.yaml"
    set_value(path, key, value)
    one_line("eval F", path.parent, capsys)
    assert main(["eval", "run"]) == 2
    assert "may be a file outside the run" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_a_file_of_a_decision_process_is_a_regular_file(folder, capsys, name):
    os.mkfifo("pipe")
    with bounded():
        assert main(["train", "--dry-run", "env=pomdp", f"env.file={name}", "env.steps=10"]) == 2
    assert "is not a regular file" in capsys.readouterr().err


CANARY = "open('canary', 'a').write(__name__)\n"


def test_rows_of_another_user_name_no_code(folder, capsys):
    """Also with --dry-run; rows that set numbers and shipped options need no flag, nor do one's own."""
    path = folder("reproduction") / "cells.json"
    Path("evil_row.py").write_text(CANARY)
    again = ["reproduce", "mine/small.yaml", "--budget", "smoke", "--dry-run"]
    for lines, code in ((["memory._target_=evil_row.X"], 2), (["memory.hidden_size=5"], 0)):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": {"theirs": lines}}))
        assert main(again) == code
        assert not Path("canary").exists()
    assert main([*again, "--rows", "ours=memory._target_=evil_row.X"]) == 2
    assert Path("canary").exists(), "what the user names is imported"


def test_a_row_of_ones_own_is_known_by_its_seal(folder):
    folder("reproduction")
    experiment = catalog.find("mine/small.yaml")
    runner = runner_of(experiment.at("smoke"), rows={"ours": ("memory.hidden_size=5",)})
    file = runner.runs / CELLS
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"rows": {"theirs": ["memory.hidden_size=6"]}}))
    runner = runner_of(experiment.at("smoke"), rows={"ours": ("memory.hidden_size=5",)})
    runner.ask_for("config_hash", [])
    assert list(remembered(file)[0]) == ["theirs", "ours"]
    assert list(foreign(file)) == ["theirs"]


LOOKED_FOR = ("org", "cuda", "pynvml", "torchcomms", "dill", "opt_einsum", "monkeytype", "pydot", "gmpy2", "tabulate")
"""Modules that packages try to import and that need not be installed."""
OWN = """
import own_sibling
from rlmem.memory.gru import GRU


class Own(GRU):
    def __init__(self, *args, **kwargs):
        import own_later
        super().__init__(*args, **kwargs)
"""


@pytest.mark.parametrize(
    "command",
    [
        "train --dry-run memory._target_=own_part.Own memory.hidden_size=4",
        *(pytest.param(c, marks=pytest.mark.slow) for c in ("list memory", "report F", "eval F", "check memory=gru")),
    ],
)
def test_no_module_of_the_current_folder_is_imported_but_ones_own(folder, command):
    path = folder("run")
    for name in LOOKED_FOR:
        Path(f"{name}.py").write_text(CANARY)
    Path("own_part.py").write_text(OWN)
    Path("own_sibling.py").write_text("")
    Path("own_later.py").write_text("")
    done = subprocess.run([sys.executable, "-m", "rlmem", *words(command, path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not Path("canary").exists(), Path("canary").read_text()


# --- the Hub ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weapon", [link, pipe, device, sparse])
@pytest.mark.parametrize("name", ["config.yaml", "run.json", "model.safetensors"])
def test_a_repository_holds_regular_files(folder, weapon, name):
    path = folder("run")
    (path / "model.safetensors").write_bytes(b"x")
    weapon(path / name)
    with bounded(), pytest.raises(UserError):
        _build(path, Path("made"), "owner/name", "0" * 40)
