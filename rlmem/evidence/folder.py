"""The folder of a reproduction's runs: `cells.json` lists them, and the rows that a user has added."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from rlmem.config.messages import mistake
from rlmem.core import received
from rlmem.core.errors import UserError, writing
from rlmem.evidence.experiment import BUDGETS
from rlmem.evidence.sections import Lines
from rlmem.record.trust import is_own, mark

CELLS = "cells.json"
"""The file with the item and budget of a reproduction, and the job or folder of every run."""
ELSEWHERE = "--dir /tmp/reproduce"
"""The example for a directory that cannot be used."""
EXAMPLE = "--rows mine=memory=my_memory,memory.hidden_size=64"
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
NEXT = re.compile(r",(?=[+~]{0,2}[\w./@]+=)")
"""The comma before a further override; those within a value are followed by no key."""


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a file that only one of the processes that share a reproduction holds at a time; the others wait.

    Raises UserError if it cannot be written.
    """
    with writing(lock.parent, ELSEWHERE):
        lock.parent.mkdir(parents=True, exist_ok=True)
        acquired = FileLock(lock).acquire()
    with acquired:
        yield


def read_about(file: Path) -> dict[str, Any]:
    """The content of a CELLS, or of another file that names an item and a budget. Raises UserError."""
    try:
        about = received.json_of(file)
        sound = isinstance(about, dict) and isinstance(about.get("item"), str) and about.get("budget") in BUDGETS
        if not sound or (file.name == CELLS and not all(map(_is_cell, about["cells"]))):
            raise ValueError("it lacks keys, or has others")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: cannot be read ({error}); expected what `rlmem reproduce` wrote") from error
    return about


def _is_cell(cell: Any) -> bool:
    """True for an entry of CELLS: a run, with its job or its folder, which must lie in the folder of the runs."""
    if not isinstance(cell, dict):
        return False
    texts = all(isinstance(cell.get(name, ""), str) for name in ("config_hash", "folder"))
    named = all(isinstance(cell.get(name), kind) for name, kind in (("row", str), ("column", str), ("seed", int)))
    return texts and named and Path(cell.get("folder", "")).name == cell.get("folder", "")


def parse_rows(texts: Sequence[str]) -> dict[str, Lines]:
    """Name -> overrides, of the values of `--rows`: `NAME=KEY=VALUE,KEY=VALUE`. Raises UserError."""
    rows: dict[str, Lines] = {}
    for text in texts:
        name, _, overrides = text.partition("=")
        lines = tuple(NEXT.split(overrides))
        if not NAME.fullmatch(name) or not all(re.match(r"[+~]{0,2}[\w./@]+=", line) for line in lines):
            raise mistake(f"--rows {text}", "expected NAME=KEY=VALUE, and more with commas", example=EXAMPLE)
        if name in rows:
            raise mistake(f"--rows {text}", f"a second row {name}", example=EXAMPLE)
        rows[name] = lines
    return rows


def foreign(file: Path) -> dict[str, Lines]:
    """The rows that a CELLS remembers and another user wrote."""
    rows, seals = remembered(file)
    return {name: lines for name, lines in rows.items() if not is_own(f"{seals.get(name)}\n{_text(name, lines)}")}


def seals(file: Path, rows: Mapping[str, Lines]) -> dict[str, str]:
    """Name -> seal of each row (`rlmem.record.trust`); a row that another user wrote keeps the seal that it has."""
    theirs, sealed = foreign(file), remembered(file)[1]
    return {n: sealed.get(n, "") if theirs.get(n) == lines else mark(_text(n, lines)) for n, lines in rows.items()}


def remembered(file: Path) -> tuple[dict[str, Lines], dict[str, str]]:
    """The rows that a CELLS remembers, and their seals, each as far as it can be read."""
    try:
        about = received.json_of(file)
        rows = {str(name): tuple(map(str, lines)) for name, lines in about.get("rows", {}).items()}
        stored = about.get("seals", {})
        return rows, {str(name): str(seal) for name, seal in stored.items()} if isinstance(stored, dict) else {}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}, {}


def _text(name: str, lines: Lines) -> str:
    return json.dumps([name, *lines])
