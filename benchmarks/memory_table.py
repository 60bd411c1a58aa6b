"""Write the measured table of docs/memory.md between its two comments, from the numbers of `run.py memory`.

python benchmarks/memory_table.py bench-memory.json docs/memory.md
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "envs")]

from benchmarks.memory import PEER, cell_of, mib, notes_on, ratio  # noqa: E402
from rlmem.evidence.bench.skeleton import quotient  # noqa: E402

BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
LENGTH = 1024
COLUMNS = ("option", "`segment` / GRU", "`tape` / GRU", "step, µs", "step / GRU", "live tensors at the peak, MiB")


def main() -> None:
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__)
    parser.add_argument("json", type=Path, help="what `run.py memory` wrote")
    parser.add_argument("document", type=Path, help=f"has {BEGIN} and {END}; what is between them is replaced")
    args = parser.parse_args()
    try:
        result, text = json.loads(args.json.read_text(encoding="utf-8")), args.document.read_text(encoding="utf-8")
        if LENGTH not in result.get("setting", {}).get("lengths", ()):
            parser.error(f"{args.json}: not the numbers of `run.py memory` at the length {LENGTH}")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        parser.error(f"{args.document}: has no {BEGIN} ... {END}")
    args.document.write_text(f"{before}{BEGIN}\n{measured(result)}\n{END}{after}", encoding="utf-8")


def measured(result: dict[str, Any]) -> str:
    """The machine, one row for each model that was measured, and every note."""
    setting, machine, models = result["setting"], result["machine"], result["models"]
    rows = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1))]
    for name, model in models.items():
        if "error" not in model:
            segment, tape, step = cell_of(model, "segment", LENGTH), cell_of(model, "tape", LENGTH), model["latency"][0]
            ratios = [number(ratio(row), ".2f") for row in (segment, tape, step)]
            microseconds, peak = number(quotient(step["seconds"], 1e-6)), number(mib(segment))
            rows.append((name if name == PEER else f"`{name}`", *ratios[:2], microseconds, ratios[2], peak))
        model["cells"] = [cell for cell in model.get("cells", ()) if cell["length"] == LENGTH]
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    caption = (
        f"{max(1, setting['slots'] // LENGTH):,} episodes of {LENGTH:,} slots, D = {setting['input_size']}, "
        f"H = {setting['hidden_size']}; {where}, {machine['threads']} threads, torch {machine['torch']}; "
        f"medians of {setting['rounds']} rounds."
    )
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([caption, "", *table, "", *(f"- {note}" for note in notes_on(models))]).rstrip()


def number(value: float | None, digits: str = ".3g") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if digits == ".3g" and abs(value) >= 100 else f"{value:{digits}}"


if __name__ == "__main__":
    main()
