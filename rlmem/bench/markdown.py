"""The measured table of docs/memory.md: `python -m rlmem.bench.markdown bench-memory.json docs/memory.md`.

Reads what `rlmem bench memory` wrote, and replaces what stands between the two comments of the document.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rlmem.bench.memory_report import PEER, cell, mib, notes, ratio, scaled
from rlmem.bench.output import number
from rlmem.errors import UserError

BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
LENGTH = 1024
COLUMNS = ("option", "`segment` / GRU", "`tape` / GRU", "step, µs", "step / GRU", "live tensors at the peak, MiB")


class Parser(argparse.ArgumentParser):
    """argparse whose errors are UserErrors."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; e.g. {self.prog} bench-memory.json docs/memory.md")


def command(argv: Sequence[str] | None = None) -> int:
    """Fill a document from the command line; its exit code."""
    parser = Parser("python -m rlmem.bench.markdown", description="Write the measured table into a document.")
    parser.add_argument("json", type=Path, help="what `rlmem bench memory` wrote")
    parser.add_argument("document", type=Path, help=f"has {BEGIN} and {END}; what is between them is replaced")
    try:
        args = parser.parse_args(argv)
        main(args.json, args.document)
    except (UserError, OSError) as error:
        problems = error.problems if isinstance(error, UserError) else [f"{error.filename}: {error.strerror}"]
        for problem in problems:
            print(f"{parser.prog}: error: {problem}", file=sys.stderr)
        return 2
    return 0


def main(json_path: Path, document: Path) -> None:
    """Write the table into the document."""
    try:
        result = json.loads(json_path.read_text(encoding="utf-8"))
    except ValueError:
        result = {}
    if not isinstance(result, dict) or "lengths" not in result.get("setting", {}):
        raise UserError(f"{json_path}: not the numbers of `rlmem bench memory`")
    text = document.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise UserError(f"{document}: has no {BEGIN} ... {END}")
    before, _, rest = text.partition(BEGIN)
    filled = f"{before}{BEGIN}\n{table(result)}\n{END}{rest.partition(END)[2]}"
    document.write_text(filled, encoding="utf-8")


def table(result: dict[str, Any], length: int = LENGTH) -> str:
    """One row for each model that was measured, the machine, and every note."""
    setting, machine = result["setting"], result["machine"]
    if length not in setting["lengths"]:
        raise UserError(f"measured lengths {setting['lengths']}; the table needs {length}")
    rows = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1))]
    for name, model in result["models"].items():
        if "error" in model:
            continue
        segment, tape, step = cell(model, "segment", length), cell(model, "tape", length), model["latency"][0]
        ratios = [number(ratio(row) if row["seconds"] else None, ".2f") for row in (segment, tape, step)]
        shown = name if name == PEER else f"`{name}`"
        rows.append((shown, *ratios[:2], number(scaled(step, 1e6)), ratios[2], number(mib(segment))))
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    caption = (
        f"{max(1, setting['slots'] // length):,} episodes of {length:,} slots, D = {setting['input_size']}, "
        f"H = {setting['hidden_size']}; {where}, {machine['threads']} threads, torch {machine['torch']}; "
        f"medians of {setting['rounds']} rounds."
    )
    table_rows = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([caption, "", *table_rows, "", *(f"- {note}" for note in said(result["models"], length))]).rstrip()


def said(models: dict[str, Any], length: int) -> list[str]:
    """The notes on what the table shows."""
    shown = {
        name: model if "error" in model else model | {"cells": [c for c in model["cells"] if c["length"] == length]}
        for name, model in models.items()
    }
    return notes(shown)


if __name__ == "__main__":
    sys.exit(command())
