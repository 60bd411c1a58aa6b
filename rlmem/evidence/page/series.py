"""What `rlmem plot` draws: curves of any metric from several sections, with one colour for each row."""

from collections.abc import Sequence
from dataclasses import replace

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.evidence.page.bands import Panel, panels
from rlmem.evidence.page.facts import key_in_words, unseen
from rlmem.evidence.page.groups import Section, of_metric
from rlmem.record.facts import RunRecord


def shown(
    sections: Sequence[Section], metric: str | None, smooth: int = 1, columns: Sequence[str] = ()
) -> tuple[list[Panel], list[str]]:
    """The panels of all sections, and sentences that name the runs that are left out, or shown without a mean.

    Each section shows the metric of its own curves where `metric` is None, and all columns where `columns` is empty.
    Raises UserError if nothing is left to draw.
    """
    known = list(dict.fromkeys(name for section in sections for name in section.axes[1] if name))
    for name in columns:
        if name not in known:
            what = "no such column" if known else "no such column; these runs have none"
            raise UserError(sentence(f"--columns {name}", what, near=nearest(name, known), accepted=known))
    rows = list(dict.fromkeys(row for section in sections for row in section.axes[0]))
    made, said = [], []
    for section in sections:
        key = section.key if metric is None else metric
        curves = section.curves if key == section.key else of_metric(section.records, key)
        ranges = section.ranges if key == section.key else {}
        wanted = [column for column in section.axes[1] if not columns or column in columns]
        for panel in panels(curves, rows, wanted, key_in_words(key), smooth, ranges):
            parts = [section.label if len(sections) > 1 or not panel.title else "", panel.title]
            made.append(replace(panel, title=": ".join(filter(None, parts))))
        runs = [run for run in section.records if not columns or run.column in columns]
        said += [f"{section.label}: {text}" for text in [*unseen(runs, curves, key), *section.left_out]]
    if not made:
        raise UserError(_nothing(sections, metric))
    return made, said


def _nothing(sections: Sequence[Section], metric: str | None) -> str:
    names = ", ".join(section.label for section in sections)
    if metric is None:
        return f"{names}: no learning curves there; no run has an evaluation that can be read"
    found = [RunRecord(run.run_dir) for section in sections for run in section.records if run.run_dir is not None]
    if known := sorted({key for run in found for row in run.rows for key in row} - {"step"}):
        return sentence(f"--metric {metric}", "no run has it", near=nearest(metric, known), accepted=known)
    known = sorted({section.key for section in sections})
    return sentence(f"--metric {metric}", f"{names}: of published results, one metric is kept", accepted=known)
