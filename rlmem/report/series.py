"""What `rlmem plot` draws: the curves of several sections, of any metric, with the same colour for the same row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.report.bands import Panel, panels
from rlmem.report.facts import axes_of, unreadable, unseen, words
from rlmem.report.find import Item, Section
from rlmem.report.groups import of_metric
from rlmem.reproduce.metrics import curve_key, record
from rlmem.reproduce.outcome import Curve, Record
from rlmem.reproduce.verdict import TRAINED


def shown(sections: Sequence[Section], metric: str | None, smooth: int = 1, columns: Sequence[str] = ()) -> list[Panel]:
    """The panels.

    metric: a key of metrics.jsonl, None for that of the curves;  columns: those alone, () for all. Raises UserError.
    """
    _require_columns(sections, columns)
    rows = list(dict.fromkeys(row for section in sections for row in _axes(section)[0]))
    made = []
    for section in sections:
        wanted = [column for column in _axes(section)[1] if not columns or column in columns]
        for panel in panels(_curves(section, metric), rows, wanted, words(metric or _key(section)), smooth):
            parts = [name_of(section) if len(sections) > 1 or not panel.title else "", panel.title]
            made.append(replace(panel, title=": ".join(part for part in parts if part)))
    if not made:
        raise UserError(_nothing(sections, metric))
    return made


def left_out(sections: Sequence[Section], metric: str | None, columns: Sequence[str] = ()) -> list[str]:
    """What `shown` does not show, or not as a mean, one sentence for each section that has such runs."""
    said = []
    for section in sections:
        runs = [run for run in _records(section) if not columns or run.column in columns]
        told = unseen(runs, _curves(section, metric), metric or _key(section))
        told += [] if isinstance(section, Item) else unreadable(section.half)
        said += [f"{name_of(section)}: {sentence}" for sentence in told]
    return said


def name_of(section: Section) -> str:
    return f"{section.outcome.name} {section.outcome.budget}" if isinstance(section, Item) else section.name


def _axes(section: Section) -> tuple[list[str], list[str]]:
    return axes_of(section.outcome) if isinstance(section, Item) else section.axes


def _key(section: Section) -> str:
    if not isinstance(section, Item):
        return section.key or ""
    experiment = section.outcome.experiment
    return curve_key(experiment.metric) if experiment.run in TRAINED else ""  # a measurement has no curves


def _records(section: Section) -> Sequence[Record]:
    return section.outcome.records if isinstance(section, Item) else section.records


def _curves(section: Section, metric: str | None) -> list[Curve]:
    """Those that were collected, or those of another metric from the records of the runs."""
    if metric is None or metric == _key(section):
        return list(section.outcome.curves if isinstance(section, Item) else section.curves)
    return of_metric(_records(section), metric)


def _require_columns(sections: Sequence[Section], columns: Sequence[str]) -> None:
    known = list(dict.fromkeys(name for section in sections for name in _axes(section)[1] if name))
    for name in columns:
        if name not in known:
            what = "no such column" if known else "no such column; these runs have none"
            raise UserError(sentence(f"--columns {name}", what, near=nearest(name, known), accepted=known))


def _nothing(sections: Sequence[Section], metric: str | None) -> str:
    names = ", ".join(name_of(section) for section in sections)
    if metric is None:
        return f"{names}: no learning curves there; no run has an evaluation that can be read"
    run_dirs = [run.run_dir for section in sections for run in _records(section) if run.run_dir is not None]
    known = sorted({key for run_dir in run_dirs for line in record(run_dir) for key in line} - {"step"})
    if not known:
        known = sorted({_key(section) for section in sections})
        return sentence(f"--metric {metric}", f"{names}: of published results, one metric is kept", accepted=known)
    return sentence(f"--metric {metric}", "no run has it", near=nearest(metric, known), accepted=known)
