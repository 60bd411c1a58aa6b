"""The files of a reproduction: its numbers, its table in three forms, and the shipped results."""

import json
import re
import shutil
from pathlib import Path

from rlmem.errors import UserError, writing
from rlmem.record import rundir
from rlmem.reproduce.outcome import RESULTS, Outcome, read_results, write_curves, write_results
from rlmem.reproduce.tables import tables
from rlmem.reproduce.verdict import judge

VERDICT, EXPERIMENT = "verdict.json", "experiment.yaml"


def write(outcome: Outcome, folder: Path) -> None:
    """Write results.csv, curves.csv, verdict.json, table.md, table.tex and table.csv into `folder`.

    The file of an experiment that is not shipped is kept there as experiment.yaml.
    """
    with writing(folder, "--dir /tmp/reproduce"):
        folder.mkdir(parents=True, exist_ok=True)
        write_results(outcome.records, folder / RESULTS)
        if outcome.curves:
            write_curves(outcome.curves, folder / "curves.csv")
        verdict = judge(outcome)
        about = {"item": outcome.name, "budget": outcome.budget, "verdict": verdict.word, "why": verdict.why}
        rundir.write_atomically(folder / VERDICT, json.dumps(about, indent=2) + "\n")
        _keep(outcome, folder / EXPERIMENT)
        for suffix, how in (("md", "markdown"), ("tex", "latex"), ("csv", "csv")):
            shown = tables(outcome, verdict, to_read=suffix != "csv")
            text = "\n".join(getattr(table, how)() for table in shown)
            rundir.write_atomically(folder / f"table.{suffix}", text.rstrip() + "\n")


def publish(outcome: Outcome, folder: Path) -> None:
    """Keep the numbers of every finished run, its curves and pictures in `folder`/<paper>/<item>.<budget>.csv, ...

    Raises UserError if the files cannot be written, or hold a run that this outcome lacks.
    """
    done = [record for record in outcome.records if record.state == "done"]
    path = folder / f"{outcome.name}.{outcome.budget}.csv"
    counting = lambda records: {(r.row, r.column, r.seed) for r in records if outcome.counts(r)}  # noqa: E731
    if lost := counting(read_results(path) if path.exists() else []) - counting(done):
        row, column, seed = min(lost)
        what = f"{len(lost)} of its runs would be lost, first {f'{row} {column}'.strip()} seed {seed}"
        raise UserError(f"{path}: {what}; finish them here, or delete that file first")
    with writing(path, "--publish results"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_results(done, path)
        if outcome.curves:
            write_curves(outcome.curves, path.with_suffix(".curves.csv"))
        _keep(outcome, path.with_suffix(".yaml"))
        for caption, picture in outcome.pictures.items():
            name = re.sub(r"[^\w-]+", "_", caption).strip("_")
            shutil.copyfile(picture, path.with_suffix(f".{name}{picture.suffix}"))
    print(f"wrote {path}")


def _keep(outcome: Outcome, path: Path) -> None:
    """Write the text of an experiment that is not shipped, which a report needs to judge its numbers."""
    if text := outcome.experiment.text:
        rundir.write_atomically(path, text)
    else:
        path.unlink(missing_ok=True)
