"""The tables of a reproduction, on the screen and in files: our numbers beside the paper's, and expectations."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from textwrap import fill

import numpy as np

from rlmem.config.paths import results_dir
from rlmem.core.errors import UserError, printable, writing
from rlmem.core.received import dumps
from rlmem.evidence import catalog, drawings, registration, twins
from rlmem.evidence.expect import NOT_TESTABLE, Scores
from rlmem.evidence.folder import ELSEWHERE
from rlmem.evidence.leaderboard import games, ranking, standings
from rlmem.evidence.metrics import BESIDE, in_words
from rlmem.evidence.published import described
from rlmem.evidence.records import (
    CURVES,
    RESULTS,
    SERIES,
    Record,
    read_results,
    series_of,
    write_curves,
    write_results,
    write_series,
)
from rlmem.evidence.sections import Twins
from rlmem.evidence.statistics import POCOCK
from rlmem.evidence.verdict import MEAN, BesidePrinted, Outcome
from rlmem.record import rundir
from rlmem.record.tables import UNBOUNDED, Cell, Table, Value
from rlmem.record.trust import sealed

WIDEST = 6
"""The greatest number of columns that are printed side by side."""
COLOURS = {"supported": "green", "contradicted": "red", "undecided": "yellow"}
"""Verdict -> its colour on a terminal."""
MARGIN = 9
"""The width of the headings beside sentences."""
VERDICT, EXPERIMENT = "verdict.json", "experiment.yaml"


def print_outcome(outcome: Outcome, where: str) -> None:
    """Print the tables of an outcome, its claim and its verdict, and `where` its runs lie."""
    verdict = outcome.verdict
    states = Counter(record.state for record in outcome.ours)
    counted = ", ".join(f"{number} {state}" for state, number in states.items())
    lines = [
        *(("note", sentence) for sentence in outcome.notes()),
        *(("beside", f"{row}: {about}") for row, about in described(outcome.planned, outcome.records).items()),
        ("claim", " ".join(outcome.planned.experiment.claim.split())),
        ("verdict", f"{verdict.word}: {verdict.why}"),
        *([("changed", verdict.changed)] if verdict.changed else []),
        ("runs", f"{counted or 'none'}; {where}"),
    ]
    _show(tables(outcome), lines)


def _show(parts: Iterable[Table], sentences: Iterable[tuple[str, str]]) -> None:
    """Print tables, and below them sentences with their headings.

    On a terminal they are folded to its width, and the words of COLOURS are coloured.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    width = console.width if console.is_terminal else UNBOUNDED
    texts = [table.text(width) for table in parts]
    folded = (f"{heading:<{MARGIN}}{sentence}" for heading, sentence in sentences)
    texts += [fill(line, width, subsequent_indent=" " * MARGIN, break_long_words=False) for line in folded]
    for shown in texts:
        text = Text(printable(shown, keep="\n"))
        for word, colour in COLOURS.items():
            text.highlight_regex(rf"\b{word}\b", colour)
        console.print(text)


def write(outcome: Outcome, folder: Path) -> None:
    """Write results.csv, curves.csv, verdict.json, table.md, table.tex and table.csv into `folder`.

    The file of an experiment that is not shipped is kept there as experiment.yaml.
    """
    with writing(folder, ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        _write_numbers(outcome, folder / RESULTS, folder / CURVES, folder / EXPERIMENT, sealed)
        verdict, about = outcome.verdict, {"item": outcome.name, "budget": outcome.budget}
        about |= {"verdict": verdict.word, "why": verdict.why}
        about |= {"changed": verdict.changed} if verdict.changed else {}
        findings = [asdict(finding) for finding in verdict.findings]
        whole = {**about, "peers": described(outcome.planned, outcome.records), "findings": findings}
        rundir.write_atomically(folder / VERDICT, dumps(whole, indent=2) + "\n")
        for suffix, form in (("md", Table.markdown), ("tex", Table.latex), ("csv", Table.csv)):
            text = "\n".join(map(form, tables(outcome, to_read=suffix != "csv")))
            rundir.write_atomically(folder / f"table.{suffix}", text.rstrip() + "\n")


def publish(outcome: Outcome, folder: Path) -> None:
    """Keep the numbers of every finished run, what they are read from (`rlmem.evidence.records`), its curves and
    pictures in `folder`/<paper>/<item>.<budget>.csv, ...

    Raises UserError if the files cannot be written, or hold a run that this outcome lacks, and for numbers that nobody
    could make again, if they are to be shipped with rlmem.
    """
    done = replace(outcome, records=[record for record in outcome.records if record.state == "done"])
    path = folder / f"{outcome.name}.{outcome.budget}.csv"
    shipped = (root := results_dir()) is not None and folder.resolve() == root.resolve()
    if problem := provenance_problem(done.ours):
        if shipped:
            again = f"e.g. rm -r reproduce/{outcome.name}-{outcome.budget}"
            raise UserError(f"{path}: {problem}; run them again from one commit; {again}")
        print(f"note     {problem}")
    counting = lambda records: {record.place for record in records if outcome.counts(record)}  # noqa: E731
    if lost := counting(read_results(path) if path.exists() else []) - counting(done.records):
        row, column, seed = min(lost)
        problem = f"{len(lost)} of its runs would be lost, first {f'{row} {column}'.strip()} seed {seed}"
        raise UserError(f"{path}: {problem}; finish them here, or delete that file first")
    with writing(path, "--publish results"):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_numbers(done, path, path.with_suffix(".curves.csv"), path.with_suffix(".yaml"))
        write_series(series_of(done.ours), path.with_suffix(SERIES))
        if shipped and not outcome.planned.experiment.text:
            place = catalog.registry(outcome.planned.experiment, outcome.name), outcome.name, outcome.budget
            registration.write(*place, registration.known(*place).with_runs(outcome.planned.registration))
        for caption, picture in outcome.pictures.items():
            name = re.sub(r"[^\w-]+", "_", caption).strip("_")
            shutil.copyfile(picture, path.with_suffix(f".{name}{picture.suffix}"))
    print(f"wrote {path}")


def provenance_problem(records: Sequence[Record]) -> str | None:
    """Why nobody could make these numbers again, in a phrase; None if they come from one commit of rlmem."""
    commits = sorted({record.commit for record in records})
    if "" in commits:
        return "some runs name no commit"
    if changed := [commit for commit in commits if commit.endswith("+changes")]:
        return f"some runs are of code that is in no commit ({changed[0]})"
    return f"runs are of {len(commits)} commits ({', '.join(commits)})" if len(commits) > 1 else None


def _write_numbers(
    outcome: Outcome, results: Path, curves: Path, experiment: Path, signed: Callable[[str], str] = str
) -> None:
    """Write the records, the curves if there are any, and the text of an experiment that is not shipped.

    A report needs this text to judge the numbers; `signed` gives the form in which it is kept.
    """
    write_results(outcome.records, results)
    if outcome.curves:
        write_curves(outcome.curves, curves)
    if text := outcome.planned.experiment.text:
        rundir.write_atomically(experiment, signed(text))
        if outcome.planned.registration != registration.Registration():
            file = experiment.with_name(registration.FILE)
            registration.write(file, outcome.name, outcome.budget, outcome.planned.registration)
    else:
        experiment.unlink(missing_ok=True)


def tables(outcome: Outcome, *, to_read: bool = True) -> list[Table]:
    """The ranking of a leaderboard, the numbers of every cell, the findings of the expectations, and what twins tell.

    What an item has not is left out.

    to_read: for people, as a grid where that fits; else for programs, with a line for each cell
    """
    board = standings(outcome)
    ranked = [ranking(board), games(board)] if board and board.scores else []
    return [*ranked, _numbers(outcome, to_read), *_expected(outcome, to_read), *_diagnosis(outcome)]


def _numbers(outcome: Outcome, to_read: bool) -> Table:
    """The numbers of every cell, beside the paper's."""
    planned, cells = outcome.planned, outcome.verdict.cells
    title = f"{outcome.name}, budget {outcome.budget}: {in_words(planned.metric)}"
    title += "" if planned.scale == 1 else f", times {planned.scale:g}"
    if to_read and planned.experiment.draw:
        return drawings.means(title, cells)
    names = [name for name in dict.fromkeys([*planned.experiment.also, *BESIDE]) if name != planned.metric]
    others = {name: scores for name in names if (scores := outcome.scores(name))}
    fits = 1 < len({cell.column for cell in cells}) <= WIDEST and len({cell.ours.n for cell in cells} - {0}) == 1
    if to_read and fits and not others and all(cell.paper is None for cell in cells):
        return _grid(title, cells)
    ours = "mean" if planned.experiment.peers else "ours"
    return _list(title, cells, ours, len(planned.experiment.columns) > 1, others)


def _expected(outcome: Outcome, to_read: bool) -> list[Table]:
    """What is expected of the numbers and how it came out, if anything is."""
    verdict, planned = outcome.verdict, outcome.planned
    if not verdict.findings:
        return []
    level = f"{100 * POCOCK[planned.registration.allowed(planned.looks) - 1]:.4g} % CI"
    head = ["what the claim says", "expected", "where", "left", "right", f"difference [{level}]", "came out"]
    head += ["runs that are so", "new seeds that would decide"]
    lines: list[list[Cell]] = [
        [
            f.clause,
            f.text,
            f.where,
            f.left,
            f.right,
            Value(f.difference, low=f.low, high=f.high),
            f.state,
            f.runs,
            f.needed,
        ]
        for f in verdict.findings
    ]
    for clause in outcome.planned.untestable:
        lines.append([clause.clause, "", "", None, None, None, f"{NOT_TESTABLE}, {clause.reason}", "", ""])
    clauses = [line[0] for line in lines]
    if to_read:
        for k in range(len(lines) - 1, 0, -1):
            lines[k][0] = "" if clauses[k] == clauses[k - 1] else clauses[k]
    shown = [k for k in range(len(head)) if k in range(1, 7) or any(line[k] for line in lines)]
    title = f"What the claim expects of {outcome.name}: {verdict.word}"
    return [Table(title, [head[k] for k in shown], [[line[k] for k in shown] for line in lines])]


def _diagnosis(outcome: Outcome) -> list[Table]:
    """What the runs on games and on their fully observed twins tell, if there are such runs."""
    planned, scores = outcome.planned, outcome.scores()
    if planned.experiment.twins is None:
        return []
    memoryless, agents = planned.experiment.twins.memoryless, {}
    for row, column in product(planned.twin_of.values(), planned.experiment.columns):
        runs, without = (
            [scores[name, column] for name in (agent, Twins.name(agent)) if (name, column) in scores]
            for agent in (row, memoryless)
        )
        if len(runs) == 2:
            agents[row, column] = [*runs, *(without if row != memoryless else ())]
    return [twins.table(outcome.name, agents, planned.higher)] if agents else []


def _list(title: str, cells: Sequence[BesidePrinted], ours: str, several: bool, others: Mapping[str, Scores]) -> Table:
    """A line for each cell, with its mean called `ours`, the column if there are `several`, and `others` at its end."""
    published = any(cell.paper is not None for cell in cells)
    head = ["row", *(["column"] if several else []), f"{ours} [95 % CI]", "runs"]
    head += ["paper", "difference", "verdict"] if published else []
    lines: list[list[Cell]] = []
    columns = list(dict.fromkeys(cell.column for cell in cells if cell.column != MEAN))
    for cell in cells:
        line: list[Cell] = [cell.row, *([cell.column] if several else []), cell.ours, cell.ours.n]
        if published:
            line += [cell.paper, cell.difference, cell.verdict]
        for scores in others.values():
            places = [(cell.row, column) for column in (columns if cell.column == MEAN else [cell.column])]
            whole = all(place in scores for place in places)
            line.append(float(np.mean([scores[place].mean() for place in places])) if whole else None)
        lines.append(line)
    return Table(title, [*head, *others], lines)


def _grid(title: str, cells: Sequence[BesidePrinted]) -> Table:
    """A grid of rows by columns, for cells that are one number of equally many runs."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    means = {(cell.row, cell.column): cell.ours for cell in cells}
    lines = [[row, *(means.get((row, column)) for column in columns)] for row in dict.fromkeys(row for row, _ in means)]
    runs = max(cell.ours.n or 0 for cell in cells)
    interval = " [95 % CI]" if runs > 1 else ""
    return Table(f"{title}{interval}, runs of each: {runs}", ["row", *columns], lines)
