"""Whatever is typed: exit code 0 or 2, one line per mistake, no traceback, nothing left behind, an answer in time.

The default test runs the same 27 command lines every time; `pytest -m slow tests/runs/test_fuzz_cli.py` runs 500 others
every time, and with RLMEM_FUZZ=5000 in the environment as many.
"""

import contextlib
import gc
import io
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from helpers import ROOT, SMALLEST
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from python_process import run_python

from rlmem.commands.cli import VERBS, main
from rlmem.config.catalog import leaves
from rlmem.config.paths import conf_dir

SECONDS = 3.0
"""CPU time within which every command line is answered, once everything is imported; of several jobs, each."""

RUN = "run"
"""A run of 32 steps; beside it lie `folder`, `file.txt` and `own.py`."""

OWN = """
class Plain: pass
def nothing(**keywords): return None
def falls(**keywords): raise KeyError("falls\\nover")
number = 3
"""


WORDS = json.loads((ROOT / "tests/data/words.json").read_text())
"""Words that are typed, by kind."""
COMMANDS = yaml.safe_load((ROOT / "tests/data/commands.yaml").read_text(encoding="utf-8"))
"""Forms of command lines, by verb."""

OPTIONS = sorted(
    f"{file.parent.name}={file.stem}" for file in conf_dir().glob("*/*.yaml") if not file.name.startswith("_")
)


def _keys() -> list[str]:
    """Every key of every option, as one types it."""
    found = {leaf.path for leaf in leaves(conf_dir() / "config.yaml") if not leaf.path.startswith("defaults")}
    for file in sorted(conf_dir().glob("[!_]*/*.yaml")):
        everywhere = file.read_text().startswith("# @package _global_")
        prefix = "" if everywhere else f"{file.parent.name}."
        found |= {prefix + leaf.path for leaf in leaves(file) if leaf.path != "defaults"}
    return sorted(found)


KEYS = _keys()
GROUPS = sorted({option.partition("=")[0] for option in OPTIONS})

TARGETS = WORDS["targets"]

TEXTS = WORDS["texts"]
TEXTS += [part * times for part, times in (("x", 300), ("x", 5000), ("9", 400), ("9", 5000), ("[", 200), ("1,", 3000))]
TEXTS += ["[" * 60 + "]" * 60, "{a:" * 40 + "1" + "}" * 40]

FLAGS = WORDS["flags"]
HYDRA = WORDS["hydra"]
HUGE = WORDS["huge"]


class Answer(NamedTuple):
    code: object
    out: str
    err: str
    seconds: float


def answer(arguments: list[str]) -> Answer:
    """What `rlmem ARGUMENTS` says, as UTF-8 streams would have it; an exception stands for its code."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    began, stdin, sys.stdin = time.process_time(), sys.stdin, io.StringIO()  # nobody types: `play` sees the end
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = main(arguments)
            out.flush()
        except BaseException as error:
            code = error
    sys.stdin = stdin
    seconds = time.process_time() - began
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return Answer(code, *said, seconds)


def left(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything in a folder, with sizes and times."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def faults(arguments: list[str], given: Answer, changed: bool) -> list[str]:
    """What is wrong with an answer."""
    found = []
    if given.code not in (0, 2) or isinstance(given.code, BaseException):
        found.append(f"exit code {given.code!r}")
    if "Traceback" in given.err + given.out:
        found.append("a traceback")
    errors = [line for line in given.err.splitlines() if line.startswith("rlmem: error: ")]
    if given.code == 2 and (not errors or len(errors) != len(given.err.splitlines())):
        found.append("exit code 2 with other lines than `rlmem: error: ...`")
    if given.code == 2 and not all(line.isprintable() for line in errors):
        found.append("unprintable characters")
    if given.seconds > SECONDS * max(1, given.out.count(", seed "), given.out.count("agent_")):
        found.append(f"{given.seconds:.1f} s")
    if changed and (given.code != 0 or "--dry-run" in arguments):
        found.append("something was written")
    return found


def misspelt(text: str, where: int, letter: str, how: str) -> str:
    """`text` at edit distance 1."""
    place = where % (len(text) + 1)
    before, after = text[:place], text[place:]
    return {
        "without": before + after[1:],
        "with": before + letter + after,
        "other": before + letter + after[1:],
        "swapped": before + after[1:2] + after[:1] + after[2:],
    }[how]


letters = st.sampled_from("abcxyz_.=-0 ,")
hows = st.sampled_from(["without", "with", "other", "swapped"])
values: SearchStrategy[str] = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS),
    st.sampled_from(TARGETS),
    st.integers(-3, 9).map(str),
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=20),
    st.text(st.characters(), max_size=8),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text("abc", max_size=3)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
        max_leaves=6,
    ).map(lambda value: str(value).replace("'", "").replace("None", "null")),
)
prefixes = st.sampled_from(["", "", "", "", "", "+", "++", "~", "+++", "~+", "-", "--", " "])
packages = st.sampled_from(["", "", "", "", "", "", "@x", "@_global_", "@", "/x", "@a:b", ".x", ".", "[0]"])
keys = st.one_of(st.sampled_from(KEYS), st.sampled_from(KEYS), st.sampled_from(GROUPS), st.text(max_size=5))
settings_of_one = st.builds(lambda *parts: "".join(parts), prefixes, keys, packages, st.just("="), values)
plain = st.builds(lambda key, value: f"{key}={value}", st.sampled_from(KEYS), values)
targets = st.builds(
    lambda group, target: f"{group}._target_={target}",
    st.sampled_from([*GROUPS, "memory.layer", "logger.wandb", "env.evaluation"]),
    st.sampled_from(TARGETS),
)
overrides = st.one_of(
    st.sampled_from(OPTIONS),
    st.sampled_from(OPTIONS),
    plain,
    plain,
    settings_of_one,
    targets,
    st.builds(misspelt, st.one_of(st.sampled_from(OPTIONS), plain), st.integers(0, 99), letters, hows),
    st.sampled_from(HYDRA),
    st.sampled_from(TEXTS),
)
garbage = st.one_of(overrides, overrides, overrides, overrides, st.sampled_from(FLAGS))
numbers = st.sampled_from(["1", "0", "-1", "x", "", "1.5", "٣", "99999999999999999999999"])
places = st.sampled_from([RUN, RUN, "folder", "file.txt", "nope", "", "\x00", "x" * 5000, "run/config.yaml", "/", "~"])
small = st.sampled_from(
    ["env=repeat_first", "env=two_step_cue", "env.level=easy", "env.level=nope", "env.num_envs=3", "-x"]
)


def _split(text: str) -> list[str]:
    """`memory=stack,memory.num_layers=9` as two overrides."""
    parts, depth, word = [], 0, ""
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts, word = [*parts, word], ""
        else:
            word += letter
    return [*parts, word]


PARTS: dict[str, SearchStrategy[list[str]]] = {
    "WORDS": st.lists(garbage, max_size=4),
    "FEW": st.lists(garbage, max_size=2),
    "PLACE": places.map(lambda place: [place]),
    "NUMBER": numbers.map(lambda number: [number]),
    "SMALL": st.lists(small, max_size=2),
    "PLAIN": st.lists(plain, max_size=1),
    "OPTIONS": st.lists(st.sampled_from(OPTIONS), max_size=4),
    "PLAYER": st.sampled_from(["random", "oracle", "x", ""]).map(lambda player: [player]),
    "NAMES": st.lists(st.one_of(st.sampled_from(GROUPS), values, st.sampled_from(FLAGS)), max_size=2),
    "HUGE": st.lists(st.sampled_from(HUGE), min_size=1, max_size=2).map(
        lambda several: [part for text in several for part in _split(text)]
    ),
}
"""What stands for a word of tests/data/commands.yaml."""


def filled(line: str) -> SearchStrategy[list[str]]:
    """Command lines of a form."""
    parts = [PARTS.get(word, st.just([word])) for word in line.split()]
    return st.tuples(*parts).map(lambda drawn: [word for part in drawn for word in part])


command_lines = st.one_of(
    *(filled(line) for verb in VERBS for line in COMMANDS[verb]),
    st.lists(st.one_of(st.sampled_from([*VERBS, "trian", ""]), garbage), max_size=4).map(
        lambda text: ["config", *text]
    ),
    st.lists(st.one_of(values, st.sampled_from(FLAGS)), max_size=3),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder of every command line; what the verbs import is imported."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "folder").mkdir()
    (folder / "file.txt").write_text("x")
    (folder / "own.py").write_text(OWN)
    before, path, sys.dont_write_bytecode = Path.cwd(), list(sys.path), True
    os.chdir(folder)
    for line in (["train", f"run_dir={RUN}", *SMALLEST], ["list", "env"], ["train", "-m", "--dry-run"], ["config"]):
        assert answer(line).code == 0
    gc.collect()
    gc.freeze()  # a command of its own process would not search the heap of pytest and Hypothesis for garbage
    yield folder
    gc.unfreeze()
    os.chdir(before)
    sys.path[:], sys.dont_write_bytecode = path, False


def is_answered(arguments: list[str], place: Path) -> None:
    before = left(place)
    given = answer(list(arguments))
    assert faults(arguments, given, left(place) != before) == [], given


@example(["train", "--dry-run", "memory._target_=builtins.breakpoint"])  # has no signature
@example(["train", "--dry-run", "encoder._target_=builtins.exit"])  # has no name
@example(["sweep", "--dry-run", "hydra.searchpath=[pkg://nope]", "seed=0,1"])
@example(["train", "--dry-run", "algo._target_=own.falls"])
@example(["train", "--dry-run", "env._target_=own.falls"])
@example(["train", "--dry-run", "env._target_=types.SimpleNamespace"])
@example(["train", "--dry-run", "env._target_=subprocess.call", "env.args=[touch,written]"])
@example(["train", "--dry-run", "encoder._target_=types.SimpleNamespace"])
@example(["train", "--dry-run", "batching._target_=unittest.mock.Mock"])
@example(["train", "--dry-run", "run_dir='a\nb'", "memory=a\x1b[31m"])
@example(["train", "--dry-run", "algo=dqn", "algo.replay_dir=replay"])
@example(["train", "-hm"])
@example(["train", "-m", "--dry-run", "seed=range(0,1000000000)"])
@example(["train", "-m", "--dry-run", "seed=range(0,1,0)"])
@example(["train", "-m", "--dry-run", "seed=shuffle(range(0,1000000000))"])
@example(["train", "-m", "--dry-run", "seed=range(0,5000)", "memory=ffm,gru,lru"])
@example(["eval", "x" * 5000])
@example(["population", "status", "x" * 5000])
@example(["train", "--dry-run", "seed=" + "9" * 5000])
@settings(max_examples=4, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(command_lines)
def test_every_command_line_is_answered(place, arguments):
    is_answered(arguments, place)


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=[pytest.mark.slow] * (i % 5 > 0)) for i, text in enumerate(HUGE)]
)
def test_what_is_valid_and_enormous_is_planned_or_refused(text, place):
    is_answered(["train", "--dry-run", *_split(text)], place)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(
    max_examples=int(os.environ.get("RLMEM_FUZZ", "500")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(command_lines)
def test_every_command_line_is_answered_at_random(place, arguments):
    is_answered(arguments, place)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--dry-run", "memory=fmf", "seed=\x1b[31m\n"],
        ["config", "--json", "run_dir=\udcff"],
    ],
)
def test_the_command_itself_answers_as_the_function_does(arguments, place):
    root = conf_dir().parent
    path = os.pathsep.join([str(root), str(root / "envs")])
    done = run_python(
        [sys.executable, "-m", "rlmem", *arguments],
        cwd=place,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        timeout=280,
    )
    given = Answer(done.returncode, done.stdout.decode(), done.stderr.decode(), 0.0)
    assert faults(arguments, given, False) == []
    assert given.code == answer(list(arguments)).code


@pytest.mark.slow
def test_every_example_of_a_refusal_is_accepted_when_it_is_typed(place):
    """Of the lines of the contract of refusals: the example is not refused for the reason for which it was given."""
    typed: dict[str, list[str]] = {}
    for line in yaml.safe_load((ROOT / "tests/data/refusals.yaml").read_text(encoding="utf-8")):
        arguments = shlex.split(line)
        error = answer(arguments).err.strip().partition(": error: ")[2]
        takes_its_place = "batching.rows=3" in arguments  # the example is another way to the same end
        if arguments[0] in ("train", "config") and not takes_its_place:
            typed |= {error: command} if (command := command_of(arguments, error)) else {}
    assert len(typed) > 20
    wrong = [f"{error} -> {command}" for error, command in typed.items() if error in answer(command).err]
    assert not wrong, "\n".join(wrong)


def command_of(arguments: list[str], line: str) -> list[str] | None:
    """The command that an example proposes, as one that only plans; None unless it is `rlmem train` or key=value.

    An example of keys and values replaces those of the same keys, and of keys below or above them.
    """
    example = line.rpartition("; e.g. ")[2]
    try:
        words = shlex.split(example)
    except ValueError:
        return None
    if words[:2] == ["rlmem", "train"]:
        return ["train", "--dry-run", *words[2:]]
    if words and all(re.fullmatch(r"[a-z][\w.]*=.*", word) for word in words):
        keys = {word.partition("=")[0] for word in words}
        given = {word: word.lstrip("+~").partition("=")[0] for word in arguments[1:] if "=" in word}
        same = lambda key: any(f"{key}.".startswith(f"{k}.") or f"{k}.".startswith(f"{key}.") for k in keys)  # noqa: E731
        others = [word for word, key in given.items() if not same(key)]
        return ["train", "--dry-run", *others, *words]
    return None
