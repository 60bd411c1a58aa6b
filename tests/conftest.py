"""Shared fixtures: small agents and environments, one thread."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal, get_args, get_origin

os.environ["WANDB_MODE"] = "offline"  # no test reaches a server, whatever key this machine holds
os.environ.setdefault("RLMEM_KEY", "of the tests")  # none is made in the home of who runs them
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a test per core; more threads would wait by spinning

import golden_env
import pytest
import torch
import yaml
from golden import FOLDER, Record

from rlmem.config.paths import conf_dir
from rlmem.config.targets import annotation, build, locate, parameters
from rlmem.loops.base import Loop

torch.set_num_threads(1)

# Started in the background of a shell or by nohup, tests would be deaf to the signals that they send.
for _name, _usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) == signal.SIG_IGN:
        signal.signal(getattr(signal, _name), _usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-memory", action="append", default=[], metavar="DIR", help="more recordings to check")
    parser.addoption(
        "--golden-env", action="append", default=[], metavar="DIR", help="more recorded episodes to replay"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.recorded(kind, has=...)`: once for every recording of that kind, of ours and of --golden-memory.

    `@pytest.mark.recorded_env(stem)`: once for every recorded `episode` of the files whose names begin so (or once for
    each file, as `path`), of ours and of --golden-env.
    """
    marker = metafunc.definition.get_closest_marker("recorded")
    if marker:
        folders = [FOLDER, *map(Path, metafunc.config.getoption("golden_memory"))]
        records = [Record.read(path) for folder in folders for path in sorted(folder.glob("*.npz"))]
        (kind,), needed = marker.args, marker.kwargs.get("has", "")
        found = [r for r in records if kind == r.kind and any(name.startswith(needed) for name in r.arrays)]
        metafunc.parametrize("recording", found, ids=lambda r: r.name)
    marker = metafunc.definition.get_closest_marker("recorded_env")
    if marker:
        files = [path for path in env_recordings(metafunc.config) if path.stem.startswith(marker.args)]
        if "path" in metafunc.fixturenames:
            metafunc.parametrize("path", files, ids=lambda path: path.stem)
        else:
            found = [episode for path in files for episode in golden_env.episodes(path)]
            metafunc.parametrize("episode", found, ids=lambda episode: episode.name)


def env_recordings(config: pytest.Config) -> list[Path]:
    """The recorded environment files of ours and of --golden-env."""
    folders = [golden_env.FOLDER, *map(Path, config.getoption("golden_env"))]
    if empty := [str(folder) for folder in folders if not any(folder.glob("*.npz"))]:
        raise pytest.UsageError(f"--golden-env {', '.join(empty)}: no recordings (*.npz) there")
    return [path for folder in folders for path in sorted(folder.glob("*.npz"))]


class Killed(Exception):
    """What ends a run in `killed_at`."""


@contextmanager
def killed_at(iteration: int) -> Iterator[None]:
    """The training inside dies before this iteration of its loop, with nothing saved at that moment."""
    calls = count(1)

    def iterate(loop: Loop) -> bool:
        if next(calls) == iteration:
            raise Killed
        return original(loop)

    original, Loop.iterate = Loop.iterate, iterate
    try:
        with pytest.raises(Killed):
            yield
    finally:
        Loop.iterate = original


def options(group: str) -> list[str]:
    """The options of a config group: a new yaml enrols itself in the tests."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml") if not path.stem.startswith("_"))


def make_memory(name: str, input_size: int, dtype: torch.dtype = torch.float32, **sizes):
    """A small memory of conf/memory/<name>.yaml."""
    node = yaml.safe_load((conf_dir() / "memory" / f"{name}.yaml").read_text())
    torch.manual_seed(0)
    return build(node | {"hidden_size": 16} | sizes, input_size=input_size).to(dtype)


@pytest.fixture(params=options("memory"))
def memory_name(request) -> str:
    return request.param


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def variants() -> list[tuple[str, dict[str, object]]]:
    """(yaml of conf/memory, {option: value}) for every other value that an option of its class may take."""
    found, seen = [], set()
    for name in options("memory"):
        node = yaml.safe_load((conf_dir() / "memory" / f"{name}.yaml").read_text())
        target = locate(node["_target_"])
        if target in seen:
            continue
        seen.add(target)
        for key, parameter in parameters(target).items():
            kind = annotation(parameter, target)
            values = get_args(kind) if get_origin(kind) is Literal else (True, False) if kind is bool else ()
            if key != "engine":
                found += [(name, {key: value}) for value in values if value != node[key]]
    return found
