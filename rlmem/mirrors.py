"""The mirrors that a configuration chooses, and W&B filled from a run directory afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlmem import rundir
from rlmem.config.targets import build
from rlmem.errors import Fault, UserError
from rlmem.loggers import NoKey, RunInfo, WandbRun, reason
from rlmem.recorder import Logger, read_jsonl


def make_loggers(
    values: Mapping[str, Any], run_dir: Path, say: Callable[[str], None]
) -> list[tuple[str, Logger]]:
    """The chosen mirrors; one that cannot start is said and left out."""
    run = RunInfo(run_dir.name, dict(values))
    loggers: list[tuple[str, Logger]] = []
    for name, node in values["logger"].items():
        if "_target_" not in node:
            continue
        try:
            logger = build(node, run_dir=run_dir, run=run)
        except Exception as error:  # a mirror must never stop a run, whatever its library raises
            say(f"logger={name} could not start: {reason(error)}; the run goes on, metrics.jsonl has every row")
            continue
        if note := getattr(logger, "note", None):
            say(note)
        loggers.append((name, logger))
    return loggers


@dataclass(frozen=True)
class Uploaded:
    """What became of an upload: rows that were sent, rows of the run, and where to look at them."""

    sent: int
    rows: int
    url: str


def upload(run_dir: Path, given: Mapping[str, Any], timeout: float) -> Uploaded:
    """Send to W&B the rows of metrics.jsonl that it does not have; the run directory keeps only the id.

    given: project, entity, group and tags that win over those of the run's own logger=wandb; None: not given
    timeout: seconds to reach the server, and again to send what is left at the end

    Raises UserError if this is no run, if it is being trained, or without an API key; Fault if the server cannot be
    reached or does not take the rows.
    """
    values, _ = rundir.read(run_dir)
    defaults = {"project": "rlmem", "entity": None, "group": None, "tags": []}
    chosen = defaults | values["logger"].get("wandb", {}) | {key: v for key, v in given.items() if v is not None}
    with rundir.lock(run_dir), TemporaryDirectory() as folder:
        try:
            rows = read_jsonl(run_dir / "metrics.jsonl")
        except (OSError, ValueError) as error:
            raise UserError(f"{run_dir / 'metrics.jsonl'}: cannot be read ({error}); restore the file") from error
        try:
            run = RunInfo(run_dir.resolve().name, values)
            where = {key: chosen[key] for key in defaults}
            mirror = WandbRun(run_dir, run, "online", Path(folder), **where, timeout=timeout)
            url = mirror.run.url
            for number, row in enumerate(rows):
                mirror.log(number, row)
            mirror.close(failed=not rows or rows[-1]["step"] < values["total_steps"])
        except NoKey as error:
            raise UserError(f"{run_dir}: {error}; expected one; e.g. `wandb login`, or set WANDB_API_KEY") from error
        except Exception as error:  # of many kinds, of W&B and of its service
            raise Fault(
                f"{run_dir}: not uploaded ({reason(error)}); nothing is lost; once the server can be reached, "
                f"    rlmem sync {run_dir}    sends what is missing"
            ) from error
    return Uploaded(max(0, len(rows) - mirror.held), len(rows), url)
