"""The size of the house: files that one update runs, entries at the top, and code lines.

`python tests/docs/test_house.py` writes docs/one-update.md.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from rlmem.scan.library import missing

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rlmem"
PAGE = ROOT / "docs" / "one-update.md"
ON_POLICY = ("algo=ppo", "env=repeat_first", "algo.rollout_slots=64", "total_steps=256")
OFF_POLICY = (
    *("algo=sac", "env=position_only_pendulum", "algo.learning_starts=32", "algo.random_steps=32"),
    *("env.max_episode_steps=40", "algo.batch_size=32", "algo.record_every=100", "total_steps=300"),
)
BOTH = ("env.num_envs=2", "evaluation.episodes=1", "threads=1", "device=cpu")
MOST_FILES = {
    ("memory=gru", *ON_POLICY): 20,
    ("memory=ffm", *ON_POLICY): 20,
    ("memory=gru", *OFF_POLICY): 24,
}
"""Overrides of a run -> files of rlmem that its second iteration with an update may run."""
MOST_ENTRIES = 22
MOST_CODE = {("rlmem", "benchmarks", "experiments"): (26_250, 26_250), ("tests",): (24_000, 24_000)}
"""Folders -> code lines of their Python, which are neither blank, nor comment, nor docstring; and statements."""


@cache
def calls_of_an_update(*overrides: str, folder: Path) -> dict[Path, list[CodeType]]:
    """What the second iteration with an update runs: files of rlmem and their functions, in order of the first call."""
    from rlmem.config.compose import load
    from rlmem.loops.base import Loop
    from rlmem.record import recorder
    from rlmem.run.train import train

    calls: dict[Path, list[CodeType]] = {}
    updates = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            codes = calls.setdefault(path, [])
            if frame.f_code not in codes:
                codes.append(frame.f_code)

    def traced(loop: Loop) -> bool:
        nonlocal updates, calls
        if updates == 2:
            return iterate(loop)
        before, calls = loop.updates, {}
        sys.setprofile(note)
        try:
            return iterate(loop)
        finally:
            sys.setprofile(None)
            updates += loop.updates > before

    with pytest.MonkeyPatch.context() as patch:
        iterate = Loop.iterate
        patch.setattr(Loop, "iterate", traced)
        patch.setattr(recorder, "LINE_EVERY", float("inf"))  # a line of progress comes by the clock
        train(load([*overrides, *BOTH, f"run_dir={folder}"]))
    assert updates == 2
    return calls


def page(calls: dict[Path, list[CodeType]]) -> str:
    """docs/one-update.md: the files in the order in which data flow, with the functions of each."""
    head = """\
# One update, file by file

These are the files of `rlmem/` that the second iteration of `memory=gru algo=ppo env=repeat_first` runs, in the order
of their first call, with the public functions of each. An iteration collects a rollout and learns from it:
`Loop.iterate` calls `OnPolicyLoop.advance`, which calls `Collector.collect` and then `PPO.update`. That cuts the
rollout into rows (`cut`), reads all of them once and computes advantages (`PPO.evaluate_rollout`), and goes over them
in `InMinibatches.passes`. Each `minibatch` is `loss_gradients` and a `step`. A tracer writes this page, and a test
counts the files.

| file | functions | what comes in | what goes out |
|---|---|---|---|
"""
    return head + "".join(f"{row}\n" for path, codes in calls.items() for row in rows(path, codes))


def rows(path: Path, codes: list[CodeType]) -> Iterator[str]:
    """The rows of a file: its public functions, with the types of arguments and result."""
    shown = path.relative_to(PACKAGE).as_posix()
    public = [code for code in codes if not any(part.startswith(("_", "<")) for part in code.co_qualname.split("."))]
    for code in public:
        (node,) = (
            node
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
            and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno
        )
        arguments = [a for a in [*node.args.args, *node.args.kwonlyargs] if a.arg not in ("self", "cls")]
        given = ", ".join(f"{a.arg}: {ast.unparse(a.annotation)}" if a.annotation else a.arg for a in arguments)
        result = ast.unparse(node.returns) if node.returns else ""
        cells = (f"`{text}`".replace("|", "\\|") if text else "-" for text in (code.co_qualname, given, result))
        yield f"| {f'`{shown}`' if code is public[0] else ''} | {' | '.join(cells)} |"


def code_size(path: Path) -> tuple[int, int]:
    """Code lines and statements of a file. A line of a text over several lines is code if the text is no docstring."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    texts = [node for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    documents = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    lines = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    lines |= {n for node in texts for n in range(node.lineno, node.end_lineno + 1)}
    lines -= {n for node in documents if isinstance(node.value, str) for n in range(node.lineno, node.end_lineno + 1)}
    return len(lines), sum(isinstance(node, ast.stmt) for node in nodes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, len(MOST_FILES)))])
def test_one_update_runs_few_files(number, folder):
    overrides = list(MOST_FILES)[number]
    calls = calls_of_an_update(*overrides, folder=folder / str(number))
    files = [path.relative_to(PACKAGE).as_posix() for path in calls]
    assert "loops/base.py" in files and "memory/base.py" in files
    assert len(files) <= MOST_FILES[overrides], "\n".join(files)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="functions know their qualified names from Python 3.11 on")
@pytest.mark.skipif(missing() is not None, reason="without the native engine, other functions run")
def test_the_page_of_one_update_is_that_of_the_tracer(folder):
    text = page(calls_of_an_update("memory=gru", *ON_POLICY, folder=folder / "0"))
    assert PAGE.read_text(encoding="utf-8") == text, "python tests/docs/test_house.py writes it"


def test_few_entries_stand_at_the_top():
    entries = [path.name for path in PACKAGE.iterdir() if path.is_file() or any(path.glob("*.py"))]  # not old caches
    assert len(entries) <= MOST_ENTRIES, entries


@pytest.mark.parametrize("folders", MOST_CODE, ids="+".join)
def test_the_code_has_a_bounded_size(folders):
    sizes = [code_size(path) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    lines, statements = map(sum, zip(*sizes, strict=True))
    assert lines <= MOST_CODE[folders][0] and statements <= MOST_CODE[folders][1], (lines, statements)


def test_no_test_imports_a_test():
    """What several test files need lies in tests/support."""
    for path in (ROOT / "tests").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        parts = {part for module in modules for part in module.split(".")}
        assert not [part for part in parts if part == "conftest" or part.startswith("test_")], path


def test_code_lines_are_neither_blank_nor_comment_nor_docstring(tmp_path):
    file = tmp_path / "a.py"
    lines = ['"""Two', 'lines."""', "", "x = [", "    1,  # one", "    # two", "]", '"""Of x."""', "", "def f():"]
    lines += ['    """f."""', '    return """a', 'b"""']
    file.write_text("\n".join(lines))
    assert code_size(file)[0] == 6


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        PAGE.write_text(page(calls_of_an_update("memory=gru", *ON_POLICY, folder=Path(name) / "run")), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
