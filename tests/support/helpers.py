"""Shared helpers of the tests: small runs, comparison of runs, kills, and the memories of `conf/`."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import count
from pathlib import Path
from subprocess import Popen
from typing import Any, Literal, TypeVar, get_args, get_origin

import pytest
import torch
import yaml
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from rlmem.agents.trunk import Trunk, Trunks
from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.config.paths import conf_dir
from rlmem.config.targets import annotation, build, locate, parameters
from rlmem.loops.base import Loop
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.metrics import METRICS
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import resume, train
from rlmem.scan import library

ROOT = Path(__file__).resolve().parents[2]
"""The root of the repository."""

TINY = (
    "env=repeat_first", "env.num_envs=2", "algo.num_minibatches=1", "algo.rollout_slots=64", "algo.epochs=1",
    "evaluation.episodes=2", "encoder.hidden_size=8", "total_steps=128", "threads=1", "device=cpu",
)  # fmt: skip
"""A run of PPO with any memory: one update and one evaluation."""

SMALLEST = (
    "env=repeat_first", "env.num_envs=2", "memory=mlp", "memory.hidden_size=4", "encoder.hidden_size=4",
    "algo.rollout_slots=16", "algo.num_minibatches=1", "algo.epochs=1", "total_steps=32", "evaluation.episodes=2",
    "env.max_episode_steps=20", "evaluation.max_steps=20",
)  # fmt: skip
"""The smallest run that writes every file a run can write."""

Found = TypeVar("Found")


class EmulatedCapture:
    """Stands in for `Capture` without a GPU: a replay runs the method again, on the graph's memory, and writes over
    what the method returned when it was recorded."""

    without_waiting = staticmethod(nullcontext)

    def __call__(self, run):
        made = run()

        def replay():
            fresh = tree_leaves(run())
            with torch.no_grad():
                for old, new in zip(tree_leaves(made), fresh, strict=True):
                    if isinstance(old, torch.Tensor):
                        old.copy_(new)

        return made, replay


def small_run(*overrides: str, run_dir: str | Path = "run", base: Sequence[str] = SMALLEST) -> Path:
    """Train with the overrides `base` and then `overrides`, and return the run directory."""
    train(load([*base, f"run_dir={run_dir}", *overrides]))
    return Path(run_dir)


def changed(path: Path, old: str, new: str) -> Path:
    """Replace `old`, which must be there, in a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def without_time(run_dir: str | Path, keep: Callable[[dict[str, Any]], bool] = lambda row: True) -> list[dict]:
    """The rows of a run's metrics for which `keep` holds, without measured times."""
    rows = read_jsonl(Path(run_dir) / "metrics.jsonl")
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows if keep(row)]


def weights(run_dir: str | Path) -> dict[str, Any]:
    """The agent's state_dict in a run's newest checkpoint."""
    return Checkpoints(Path(run_dir) / "checkpoints").load()[1]["agent"]


def assert_same_weights(first: str | Path, second: str | Path) -> None:
    """The newest checkpoints of two runs hold the same agent, bit for bit."""
    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]) if torch.is_tensor(value) else value == other[name], name


def saved(run_dir: str | Path) -> dict[str, Any]:
    """Everything in the newest checkpoint, by where it stands; rings as one piece, wherever they wrap."""
    checkpoint = Checkpoints(Path(run_dir) / "checkpoints").load()[1]
    for ring in ("slots", "states", "table") if "replay" in checkpoint else ():
        rows = checkpoint["replay"][ring]["rows"]
        checkpoint["replay"][ring]["rows"] = {name: torch.cat(spans) for name, spans in rows.items()}
    leaves, _ = tree_flatten_with_path(checkpoint)
    return {keystr(path): leaf for path, leaf in leaves}


def assert_same_end(first: str | Path, second: str | Path) -> None:
    """Two runs have the same record and the same checkpoint: parameters, replay, generators and all."""
    assert without_time(first) == without_time(second)
    if (episodes := Path(first) / "episodes.jsonl").exists():
        assert episodes.read_text() == (Path(second) / "episodes.jsonl").read_text()
    one, other = saved(first), saved(second)
    assert one.keys() == other.keys()
    timed = ("elapsed", "time", "clock", "record")  # the size of the record depends on the digits of times
    for name, value in one.items():
        if not any(word in name for word in timed):
            assert torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name], name


def wait_for(happened: Callable[[], Found], process: Popen | None = None, seconds: float = 240) -> Found:
    """Poll `happened` until it returns something true, and return that.

    process: fail at once if this process ends first
    seconds: fail after this time, which is generous because the machine may be busy
    """
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        if process is not None and process.poll() is not None:
            found = happened()  # it may have happened at the very end
            assert found, f"the process ended with {process.returncode}: {process.communicate()}"
            break
        assert time.monotonic() < deadline, f"waited {seconds} seconds in vain"
        time.sleep(0.005)
    return found


class Killed(Exception):
    """Ends a run in `killed_at`."""


@contextmanager
def killed_at(iteration: int) -> Iterator[None]:
    """In this context, training dies before the given iteration of its loop, without saving."""
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


def assert_resumes_exactly(train: Callable[[str], Any], iteration: int = 4) -> None:
    """A run that dies before an iteration and is resumed ends as one that went through: same record, same agent.

    train: trains in the run directory of this name; `whole` and `cut` must not be there yet
    """
    train("whole")
    with killed_at(iteration):
        train("cut")
    assert len(without_time("cut")) < len(without_time("whole")), "there is something to resume"
    resume(Path("cut"), [])
    assert_same_end("whole", "cut")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a command answers, with exit code 2."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rlmem: error: ")
    return line.removeprefix("rlmem: error: ")


def options(group: str) -> list[str]:
    """The options of a config group, so that a new yaml enrols itself in the tests."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml") if not path.stem.startswith("_"))


def memory_node(name: str) -> dict[str, Any]:
    """The content of conf/memory/<name>.yaml."""
    return yaml.safe_load((conf_dir() / "memory" / f"{name}.yaml").read_text())


def make_memory(name: str, input_size: int, dtype: torch.dtype = torch.float32, **sizes):
    """A small memory of conf/memory/<name>.yaml."""
    node = memory_node(name)
    torch.manual_seed(0)
    return build(node | {"hidden_size": 16} | sizes, input_size=input_size).to(dtype)


def make_trunks(make_trunk: Callable[[], Trunk], separate: bool) -> Trunks:
    """The trunks of actor and critic, one each if `separate`."""
    return Trunks(make_trunk(), make_trunk() if separate else None)


@cache
def one_of_each_class() -> list[str]:
    """One option of `memory` for each class: the yaml that is named after the module of the class."""
    found: dict[str, str] = {}
    for name in options("memory"):
        target = memory_node(name)["_target_"]
        if name == target.split(".")[-2] or target not in found:
            found[target] = name
    return sorted(found.values())


def once_per_class() -> list[Any]:
    """Parameters for a test of every memory: fast tests have one yaml of each class, slow tests the others."""
    fast = set(one_of_each_class())
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in options("memory")]


def fast_only(fast: Iterable[Any] | Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the cases, of which those are slow that are not in `fast`, or for which it is not true."""
    is_fast = fast if callable(fast) else set(fast).__contains__
    slow = lambda case: pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)  # noqa: E731
    return [case if is_fast(case) else slow(case) for case in cases]


def variants() -> list[tuple[str, dict[str, object]]]:
    """(yaml of conf/memory, {option: value}) for every other value that an option of its class may take."""
    found, seen = [], set()
    for name in options("memory"):
        node = memory_node(name)
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


def forget_kernels() -> None:
    """Look for the compiled kernels again at their next use, as a new process does."""
    library.missing.cache_clear()
    library.library.cache_clear()


@cache
def entry(key: str) -> str | None:
    """The name in `METRICS` of a key of metrics.jsonl; None: it is not described."""
    places = {"ALGO": r"\w+", "POLICY": "(?:greedy|sampled)", "RATE": r"[\d.e-]+", "PART": r"\w+"}
    patterns = {name: re.sub("|".join(places), lambda match: places[match[0]], name) for name in METRICS}
    return key if key in METRICS else next((name for name in METRICS if re.fullmatch(patterns[name], key)), None)
