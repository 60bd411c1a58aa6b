"""`rlmem eval`: play episodes with the agent of a run."""

import os
import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from rlmem.commands.toolkit import Count, Flag, Natural, OutFile, SomeWords, Step, Trust, stdout_to_stderr
from rlmem.config.messages import mistake, shell
from rlmem.core.command import show
from rlmem.core.errors import Fault, UserError, writing
from rlmem.core.received import dumps

EXAMPLE = "--csv /tmp/table.csv"


def run(
    runs: SomeWords,
    *,
    trust: Trust = False,
    episodes: Count = 100,
    seed: Natural | None = None,
    step: Step = None,
    json: Flag = False,
    csv: OutFile | None = None,
) -> int:
    """Play episodes with the agent of a run, greedy and sampled. Only env.* and evaluation.max_steps may be
    replaced. Several runs, a sweep or a folder of runs give one table, with means over seeds.

    runs RUN: run directories, sweeps or folders of runs; then env.key=value, evaluation.max_steps=N, or video=true
    episodes: episodes of each kind
    seed S: root of the random streams (the run's own)
    json: print JSON only
    csv: also write a line for every run to a CSV file

    Examples:
        runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0
        RUN --episodes 100 env.level=hard --json
        RUN video=true          an animation of one greedy episode in RUN/videos
        sweeps/my_sweep --step best --csv table.csv
    """
    from rlmem.record.rundir import NoRun
    from rlmem.run.evaluate import ACCEPTED, evaluate_run
    from rlmem.run.stored import refuse_others

    changes = [word for word in runs if _is_override(word)]
    places = [place for word in runs if not _is_override(word) for place in _matching(word, step)]
    if not places:
        raise mistake(changes[0], "a run is missing", example=f"rlmem eval RUN {shell(changes[0])}")
    overrides = [override for override in changes if not override.startswith("video=")]
    video = [override.lower() for override in changes if override.startswith("video=")]
    if wrong := [text for text in video if text not in ("video=true", "video=false")]:
        raise mistake(wrong[0], "expected true or false", example="rlmem eval RUN video=true")
    settings, more = (episodes, seed, overrides), ("video=true" in video, trust)
    problems, agents = list[str](), places
    if len(places) > 1 or not os.path.isfile(places[0][0] / "config.yaml"):
        from rlmem.evidence.page.find import run_dirs

        expanded = [(run_dir, which) for place, which in places for run_dir in run_dirs(place, problems)]
        agents = list(dict.fromkeys(expanded))
    if agents == places and len(agents) == 1 and not csv:
        (run_dir, step), *_ = agents
        with stdout_to_stderr():
            result = evaluate_run(run_dir, *settings, step, *more)
        show(dumps(result, indent=2) if json else _table(result))
        return 0
    command = f"rlmem eval {shell(*(place for place, _ in places))} env.level=medium"
    refuse_others(overrides, ACCEPTED, "cannot be evaluated differently; evaluation accepts", command)
    if csv:
        _require_writable(csv)
    rows, why_not, mistakes = [], {line.partition(": ")[0]: line for line in problems}, 0
    with stdout_to_stderr():
        for number, (run_dir, step) in enumerate(agents, 1):
            try:
                rows.append(evaluate_run(run_dir, *settings, step, *more))
            except (UserError, Fault) as error:
                mistakes += isinstance(error, NoRun)
                why_not[str(run_dir)] = " ".join(str(error).split("\n"))
            show(f"{number}/{len(agents)} {run_dir}: {'not evaluated' if str(run_dir) in why_not else 'evaluated'}")
    if not rows and mistakes == len(agents):
        raise UserError(*why_not.values())
    _print_many(rows, why_not, overrides, json, csv)
    return 1 if why_not else 0


def _is_override(word: str) -> bool:
    return re.match(r"[+~]*[\w.]+=", word) is not None and not os.path.isdir(word)


Source = tuple[Path, int | str | None]
"""A directory, and which checkpoint of its runs; None: the newest."""


def _matching(word: str, step: int | str | None) -> list[Source]:
    """A path, those that match a quoted pattern, or a run with its checkpoint: RUN@best."""
    if os.path.lexists(word):
        return [(Path(word), step)]
    from rlmem.run.stored import checkpoint_of

    return [(Path(path), step) for path in sorted(glob(word))] or [checkpoint_of(word, step)]


def _require_writable(path: Path) -> None:
    """Raise UserError if a file cannot be written; it stays as it is."""
    with writing(path, EXAMPLE):
        (open(path, "ab") if path.exists() else TemporaryFile(dir=path.parent)).close()


def _print_many(
    rows: Sequence[dict[str, Any]], why_not: dict[str, str], overrides: Sequence[str], json: bool, csv: Path | None
) -> None:
    from rlmem.evidence.page.evaluations import evaluated, means, means_table, runs_table
    from rlmem.record.tables import Table

    runs = evaluated(rows, shell(*overrides))
    cells = means(runs)
    lines = [run.flat() for run in runs]
    if json:
        left_out = [{"run": run_dir, "why": why} for run_dir, why in why_not.items()]
        show(dumps({"runs": lines, "cells": [cell.flat() for cell in cells], "not_evaluated": left_out}, indent=2))
    else:
        if runs:
            show(runs_table(runs).text())
        if len(cells) < len(runs):
            show(means_table(cells).text())
        for run_dir, why in why_not.items():
            show(f"not evaluated: {why if why.startswith(run_dir) else f'{run_dir}: {why}'}")
    if csv and lines:
        columns = list(dict.fromkeys(key for line in lines for key in line))
        table = Table("", columns, [[line.get(key) for key in columns] for line in lines])
        with writing(csv, EXAMPLE):
            csv.write_text(table.csv(), encoding="utf-8")


def _table(result: dict[str, Any]) -> str:
    from rlmem.record.facts import played

    where = f"{result['run']} at step {result['step']:,}"
    if "held_out" in result:
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in result["held_out"].items())
        return f"{where}: held-out {numbers} ({result['episodes']:,})"
    kinds = played(result)
    known = all("success_rate" in row for row in kinds.values())
    head = f"{'':<8}  {'mean return':>20}  {'mean length':>11}{'  success rate' if known else ''}"
    lines = [f"{where}: {result['episodes']} episodes each; ± is the standard error of the mean", head]
    for kind, row in kinds.items():
        score = f"{row['return_mean']:.4f} ± {row['return_sem']:.4f}"
        success = f"  {row['success_rate']:>12.3f}" if known else ""
        lines.append(f"{kind:<8}  {score:>20}  {row['length_mean']:>11.1f}{success}")
    if "video" in result:
        part = "" if result["video_whole"] else f", its first {result['video_steps']:,} steps"
        lines.append(f"a greedy episode{part}: {result['video']}")
    return "\n".join(lines)
