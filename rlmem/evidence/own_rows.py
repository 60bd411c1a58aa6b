"""Rows that a user adds to an item: `NAME=KEY=VALUE,KEY=VALUE`. They run in the item's folder, which remembers them."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlmem.config.messages import sentence
from rlmem.errors import UserError
from rlmem.evidence.parts import Lines
from rlmem.record.trust import is_own, mark
from rlmem.system import received

EXAMPLE = "--rows mine=memory=my_memory,memory.hidden_size=64"
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
NEXT = re.compile(r",(?=[+~]{0,2}[\w./@]+=)")
"""The comma before a further override; those within a value are followed by no key."""


def parse(texts: Sequence[str]) -> dict[str, Lines]:
    """Name -> overrides, of the values of `--rows`. Raises UserError."""
    found: dict[str, Lines] = {}
    for text in texts:
        name, _, overrides = text.partition("=")
        lines = tuple(NEXT.split(overrides))
        if not NAME.fullmatch(name) or not all(re.match(r"[+~]{0,2}[\w./@]+=", line) for line in lines):
            raise UserError(
                sentence(f"--rows {text}", "expected NAME=KEY=VALUE, and more with commas", example=EXAMPLE)
            )
        if name in found:
            raise UserError(sentence(f"--rows {text}", f"a second row {name}", example=EXAMPLE))
        found[name] = lines
    return found


def remembered(file: Path) -> dict[str, Lines]:
    """The rows that a folder's list of runs remembers; {} where there is no list that can be read."""
    try:
        rows = received.json_of(file).get("rows", {})
        return {str(name): tuple(map(str, lines)) for name, lines in rows.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def seals(file: Path, rows: Mapping[str, Lines]) -> dict[str, str]:
    """Name -> seal of each row (`rlmem.record.trust`); a row that another user wrote keeps the seal that it has."""
    theirs = foreign(file)
    kept = _seals(file)
    return {n: kept.get(n, "") if theirs.get(n) == lines else mark(_text(n, lines)) for n, lines in rows.items()}


def foreign(file: Path) -> dict[str, Lines]:
    """The rows that a folder's list of runs remembers and another user wrote."""
    kept = _seals(file)
    return {n: lines for n, lines in remembered(file).items() if not is_own(f"{kept.get(n)}\n{_text(n, lines)}")}


def _seals(file: Path) -> dict[str, str]:
    try:
        return {str(name): str(seal) for name, seal in received.json_of(file).get("seals", {}).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _text(name: str, lines: Lines) -> str:
    return json.dumps([name, *lines])
