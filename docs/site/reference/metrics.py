"""The page of all metrics: what is logged, and what tables and verdicts are made of."""

from collections import defaultdict

from reference.markdown import Page, cell, code, prose, sections, table
from rlmem.evidence.metrics import METRICS as OF_TABLES
from rlmem.evidence.metrics import REDUCTIONS
from rlmem.record.metrics import METRICS

UP = "../"
TITLES = {
    "": "Counting", "train": "Training episodes and data", "eval": "Evaluation", "ALGO": "Learning",
    "explore": "Exploration", "batch": "Batches", "replay": "Replay", "actors": "Actors", "nan": "Numerical faults",
    "time": "Time",
}  # fmt: skip
"""First word of a metric's name -> the heading over it."""


def pages() -> dict[str, Page]:
    return {"reference/metrics.md": page()}


def page() -> Page:
    kinds: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for name, (by, text) in METRICS.items():
        kinds[name.rpartition("/")[0].partition("/")[0]].append((code(name), prose(cell(text), UP), by))
    said = (
        "`metrics.jsonl` in a run directory has a row for every iteration and every evaluation. `ALGO` stands for the "
        "algorithm's name, such as `ppo`, `POLICY` for `greedy` or `sampled`, `RATE` for a probability, "
        "`PART` for a part of the network. "
        "`rlmem list metric` shows the same, and `rlmem plot RUN --out curve.png --metric NAME` draws one."
    )
    logged = [(TITLES[kind], table(("name", "meaning", "logged by"), rows)) for kind, rows in kinds.items()]
    of_tables = [(code(name), text, code(f"{how} {key}")) for name, (text, key, how) in OF_TABLES.items()]
    more = (
        "Experiments, reports and verdicts reduce a logged metric to one number for each run. "
        f"`HOW NAME` is a metric of any name, where `HOW` is one of {', '.join(map(code, REDUCTIONS))}; "
        f"`normalised METRIC` puts a random policy at 0 and an expert at 100. [More]({UP}experiments.md)."
    )
    tables = f"{more}\n\n{table(('name', 'meaning', 'made of'), of_tables)}"
    return Page(sections("# Metrics", said, *logged, ("Metrics of tables", tables)), "rlmem/record/metrics.yaml")
