"""The page of `rlmem report`: one HTML file that needs nothing but itself, no script either.

What can be shown and hidden are check boxes that the style sheet reads, and the page forbids everything that would
come from elsewhere, so that no name of a run can make it do more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from rlmem.report.chart import chart, row_rules
from rlmem.report.facts import (
    INTERVALS,
    axes_of,
    curve_name,
    departures,
    facts,
    runs,
    uncounted,
    unreadable,
    unseen,
    words,
)
from rlmem.report.find import Item, Section
from rlmem.report.groups import Group
from rlmem.report.html import Html, badge, grid, join, table, tag
from rlmem.report.picture import embedded
from rlmem.report.returns import returns
from rlmem.reproduce.outcome import Record
from rlmem.reproduce.show import tables
from rlmem.stats.tables import Cell, show

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
RUN_COLUMNS = (
    "row", "column", "seed", "state", "steps", "seconds", "config hash", "version", "commit", "machine", "overrides"
)  # fmt: skip


def page(sections: Sequence[Section], title: str) -> str:
    """The whole file. The same sections give the same text."""
    numbers = itertools.count(1)
    made = [_section(section, next(numbers)) for section in sections]
    names = [_names(section) for section in sections]
    style = files("rlmem.report").joinpath("page.css").read_text(encoding="utf-8") + row_rules(max(map(len, names)))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(style)),
    )
    first = tag("header", tag("h1", title), tag("p", _count(sections)), _summary(sections), tag("p", INTERVALS))
    return f"<!doctype html>\n{tag('html', head, tag('body', first, tag('main', *made)), lang='en')}\n"


def _section(section: Section, number: int) -> Html:
    return _item(section, number) if isinstance(section, Item) else _group(section, number)


def _item(item: Item, number: int) -> Html:
    outcome, prefix = item.outcome, f"s{number}"
    experiment, verdict = outcome.experiment, item.verdict
    rows, columns = axes_of(outcome)
    parts = [
        tag("h2", f"{outcome.name} ", tag("small", f"budget {outcome.budget}"), " ", badge(verdict.word), id=prefix),
        tag("p", experiment.title, class_="lead"),
        _described(
            {
                "claim": experiment.claim,
                "source": experiment.source,
                "verdict": f"{verdict.word}: {verdict.why}",
                "this budget": experiment.budget(outcome.budget).note,
                **facts(outcome.records),
                "runs": f"{runs(outcome)} done",
            }
        ),
        _departures(item),
        tag("h3", "Learning curves") if outcome.curves else None,
        chart(outcome.curves, rows, columns, curve_name(outcome), prefix) if outcome.curves else None,
        tag("h3", "Numbers"),
        *(table(shown) for shown in tables(outcome, verdict)),
        *_pictures(item),
        *_last(outcome.records, item.command),
    ]
    return tag("section", *parts, aria_labelledby=prefix)


def _group(group: Group, number: int) -> Html:
    prefix, (rows, columns) = f"s{number}", group.axes
    parts = [
        tag("h2", group.name, id=prefix),
        _described(facts(group.records) | {f"set in {who}": keys for who, keys in group.alike.items()}),
        tag("h3", "Learning curves") if group.curves else None,
        chart(group.curves, rows, columns, words(group.key or ""), prefix) if group.curves else None,
        *_notes(unreadable(group.half)),
        *_notes(unseen(group.records, group.curves, group.key or "any return")),
        tag("h3", "Numbers"),
        table(returns(group)),
        *_notes(uncounted(group.records, group.metric)),
        *_last(group.records, group.command, group.metric),
    ]
    return tag("section", *parts, aria_labelledby=prefix)


def _notes(sentences: Sequence[str]) -> Iterator[Html]:
    return (tag("p", f"{sentence[:1].upper()}{sentence[1:]}.", class_="note") for sentence in sentences)


def _names(section: Section) -> list[str]:
    return axes_of(section.outcome)[0] if isinstance(section, Item) else section.axes[0]


def _count(sections: Sequence[Section]) -> str:
    items = sum(isinstance(section, Item) for section in sections)
    records = sum(len(s.outcome.records if isinstance(s, Item) else s.records) for s in sections)
    told = [f"{items} table{'' if items == 1 else 's'} or figure{'' if items == 1 else 's'} of papers"] if items else []
    return ", ".join([*told, f"{records} run{'' if records == 1 else 's'}"])


def _summary(sections: Sequence[Section]) -> Html:
    judged = any(isinstance(section, Item) for section in sections)
    lines: list[list[Cell | Html]] = []
    for number, section in enumerate(sections, 1):
        if isinstance(section, Item):
            outcome = section.outcome
            claim = tag("span", outcome.experiment.claim, class_="claim")
            own = [badge(section.verdict.word), runs(outcome), outcome.budget, claim]
        else:
            done = sum(record.state == "done" for record in section.records)
            own = [*([""] if judged else []), f"{done} of {len(section.records)}", *(["", ""] if judged else [])]
        name = section.outcome.name if isinstance(section, Item) else section.name
        lines.append([tag("a", name, href=f"#s{number}"), *own])
    return grid("Summary", ["item", "verdict", "runs", "budget", "claim"] if judged else ["item", "runs"], lines)


def _described(texts: Mapping[str, str | None]) -> Html:
    lines = [(name, text) for name, text in texts.items() if text]
    return tag("dl", *(join([tag("dt", name), tag("dd", text)]) for name, text in lines))


def _departures(item: Item) -> Html | None:
    found = departures(item.outcome)
    if not found:
        return None
    listed = [tag("li", f"{reason} ", tag("small", f"({which})" if which else "")) for reason, which in found]
    return join([tag("h3", "Exceptions and what is left out"), tag("ul", *listed)])


def _pictures(item: Item) -> Iterator[Html]:
    shown = [made for caption, path in item.outcome.pictures.items() if (made := embedded(caption, path)) is not None]
    if shown:
        yield tag("h3", "Analyses")
        yield tag("div", *shown, class_="panels")


def _last(records: Sequence[Record], command: str | None, metric: str | None = None) -> Iterator[Html]:
    """metric: one that every run is listed with"""
    own = [] if metric is None else [metric]
    head = [*RUN_COLUMNS[:4], *own, *RUN_COLUMNS[4:]]
    lines: list[list[Cell | Html]] = [
        [record.row, record.column, record.seed, badge(record.state),
         *(show(record.metrics.get(name)) for name in own), record.steps, record.seconds, record.config_hash,
         record.version, record.commit, record.machine, tag("code", record.overrides)]
        for record in records
    ]  # fmt: skip
    yield tag("h3", "Runs")
    summary = tag("summary", f"{len(lines)} runs with their configurations")
    yield tag("details", summary, grid("Runs", head, lines, digits=0))
    if command:
        yield tag("h3", "Command")
        yield tag("pre", tag("code", command))
