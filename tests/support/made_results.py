"""Results of experiments that nobody ran, for the tests of reports."""

import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from helpers import ROOT

from rlmem.config.compose import load
from rlmem.evidence import catalog
from rlmem.evidence.catalog import read
from rlmem.evidence.experiment import Cell
from rlmem.evidence.metrics import NORMALISED, Reference, reduced, reference_of
from rlmem.evidence.records import Curve, Record
from rlmem.evidence.tables import publish
from rlmem.evidence.verdict import Outcome
from rlmem.record import rundir

ITEMS = ("memoroids/figure4", "rethinking_transformers/table2")
STEPS = range(1000, 11_000, 1000)


def item_text(name: str) -> str:
    """The text of an experiment file of tests/data/items."""
    return (ROOT / "tests/data/items" / f"{name}.yaml").read_text(encoding="utf-8")


BOARD = item_text("board")


def outcome(name: str = "memoroids/figure4", budget: str = "laptop") -> Outcome:
    """Every run of an experiment, each with returns that rise; those of earlier rows rise higher."""
    planned, rng = catalog.find(name).at(budget), np.random.default_rng(0)
    records, curves = [], []
    for k, cell in enumerate(planned.cells()):
        for seed in cell.seeds:
            noise = 0.03 * rng.normal(size=len(STEPS))
            values = [(1 - np.exp(-step / 4000)) / (1 + k) + e for step, e in zip(STEPS, noise, strict=True)]
            points = list(zip(STEPS, values, strict=True))
            metrics = dict.fromkeys([planned.metric, "final_eval"])
            found = {name: reduced(name, points, _reference(name, cell)) for name in metrics}
            records.append(
                Record(
                    cell.row, cell.column, seed, "done", found, STEPS[-1], 12.5, f"{k:06x}{seed:06x}", "1.2.3",
                    "0123456789ab", "2 cores, a processor", " ".join(cell.lines(seed)),
                )
            )  # fmt: skip
            curves.append(Curve(cell.row, cell.column, seed, list(STEPS), values))
    return Outcome(planned, records, curves)


def _reference(metric: str, cell: Cell) -> Reference | None:
    """What normalises a metric of a cell: the reference of its environment."""
    given = dict(line.partition("=")[::2] for line in cell.overrides)
    return reference_of(given["env"]) if metric.startswith(NORMALISED) else None


def results(folder: Path) -> Path:
    """A folder of two published items, one with numbers of its paper, and a picture of an analysis."""
    for name in ITEMS:
        publish(outcome(name), folder)
    (folder / "memoroids" / "figure4.laptop.decays.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20"><rect id="s1" width="40" height="20"/></svg>'
    )
    return folder


def ranked(path: Path, values: dict[str, list[list[float]]], budget: str = "laptop") -> Outcome:
    """An outcome of row -> returns [seed, column], with NaN for a run that has not ended."""
    planned = read(path).at(budget).with_rows({row: () for row in values if row not in ("gru", "mlp")})
    records = [
        Record(
            row, column, seed, "done", {"final_eval": value, "area_eval": -value, "last time/cpu": 10.0 * (seed + 1)}
        )
        for row, seeds in values.items()
        for seed, runs in enumerate(seeds)
        for column, value in zip(("first", "copy"), runs, strict=True)
        if not np.isnan(value)
    ]
    return Outcome(planned, records)


KEY = "eval/greedy/return_mean"


def run_folder(folder: Path, overrides: str, values: Sequence[float | None], every: int = 100, begin: int = 1) -> Path:
    """A directory as a run leaves it, with one evaluation for each value."""
    words = ("threads=1 encoder.hidden_size=16 " + overrides).split()
    config = load(words)
    folder.mkdir(parents=True)
    rundir.describe(folder, config)
    rows = [{"step": every * k, KEY: value} for k, value in enumerate(values, begin)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class Page(HTMLParser):
    """Rows of tables and contents of images of a page, and how many means, bands and dots these have (`drawn`)."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.images: list[str] = []
        self.drawn: Counter[str] = Counter()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "img":
            self.images.append(b64decode(dict(attrs)["src"].partition(",")[2]).decode(errors="replace"))
            self.drawn.update(re.findall('id="(mean|band|dot)-', self.images[-1]))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self.open = tag

    def handle_data(self, data):
        self.text += data
        if self.rows and self.rows[-1] and self.open not in ("tr", "table", "tbody"):
            self.rows[-1][-1] += data

    def all(self, name: str) -> list[str]:
        return [value for _, own in self.tags for key, value in own.items() if key == name and value is not None]
