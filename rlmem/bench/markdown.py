"""The measured table of docs/memory.md: `python -m rlmem.bench.markdown bench-memory.json docs/memory.md`.

Reads what `rlmem bench memory` wrote, and replaces what stands between the two comments of the document.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rlmem.bench.memory_report import PEER, cell, mib, notes, ratio, scaled
from rlmem.bench.output import number
from rlmem.errors import UserError

BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
LENGTH = 1024
COLUMNS = ("option", "`segment` / GRU", "`tape` / GRU", "step, µs", "step / GRU", "peak, MiB")


def main(json_path: Path, document: Path) -> None:
    """Write the table into the document."""
    text = document.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise UserError(f"{document}: has no {BEGIN} ... {END}")
    before, _, rest = text.partition(BEGIN)
    filled = f"{before}{BEGIN}\n{table(json.loads(json_path.read_text()))}\n{END}{rest.partition(END)[2]}"
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
    main(*map(Path, sys.argv[1:]))
