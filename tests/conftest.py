"""Settings of all tests: recordings as parameters, shared fixtures, one thread."""

import os
import signal
from pathlib import Path

os.environ["WANDB_MODE"] = "offline"  # no test reaches a server, whatever key this machine has
os.environ["HF_HUB_OFFLINE"] = "1"  # nor does any reach the Hub, but for those of test_hub.py, which bring one
os.environ.setdefault("RLMEM_KEY", "of the tests")  # tests make no key in the user's home
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a test per core; more threads would wait by spinning
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the many processes that tests start find the modules compiled

import golden_env
import pytest
import torch
from browser import chrome  # noqa: F401  (a fixture)
from golden import FOLDER, recordings
from helpers import once_per_class

from rlmem.core import processes

torch.set_num_threads(1)

# In the background of a shell or under nohup, tests would ignore the signals that they send.
for _name, _usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) == signal.SIG_IGN:
        signal.signal(getattr(signal, _name), _usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-memory", action="append", default=[], metavar="DIR", help="more recordings to check")
    parser.addoption(
        "--golden-env", action="append", default=[], metavar="DIR", help="more recorded episodes to replay"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.recorded(kind, has=...)`: once for every recording of that kind, ours and those of --golden-memory.

    `@pytest.mark.recorded_env(stem)`: once for every `path` of recorded episodes whose name begins so, of ours and of
    --golden-env. Those of tests/golden/test_environments.py are episodes.
    """
    marker = metafunc.definition.get_closest_marker("recorded")
    if marker:
        folders = [FOLDER, *map(Path, metafunc.config.getoption("golden_memory"))]
        records = [record for folder in folders for record in recordings(folder)]
        (kind,), needed = marker.args, marker.kwargs.get("has", "")
        found = [r for r in records if kind == r.kind and any(name.startswith(needed) for name in r.arrays)]
        metafunc.parametrize("recording", found, ids=lambda r: r.name)
    marker = metafunc.definition.get_closest_marker("recorded_env")
    if marker:
        files = [path for path in golden_env.recordings(metafunc.config) if path.stem.startswith(marker.args)]
        metafunc.parametrize("path", files, ids=lambda path: path.stem)


@pytest.fixture(params=once_per_class())
def memory_name(request) -> str:
    """Every yaml of conf/memory; a second yaml of the same class only in the slow tests."""
    return request.param


processes.PRELOADED += (
    *("torch.distributed", "scipy.stats", "popgym", "rlmem.commands.resume", "rlmem.commands.eval"),
    *("rlmem.commands.sweep", "rlmem.commands.population", "rlmem.commands.list", "rlmem.run.evaluate"),
    *("rlmem.jobs.run", "rlmem.jobs.search", "rlmem.jobs.population.rounds", "rlmem.config.catalog"),
)


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
