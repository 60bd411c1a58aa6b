"""Upload the record of a run to Weights & Biases after the run (`rlmem sync`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlmem.config.messages import shell
from rlmem.errors import Fault, UserError, first_line
from rlmem.record import rundir
from rlmem.record.loggers import NoKey, RunInfo, WandbRun
from rlmem.record.recorder import read_jsonl


@dataclass(frozen=True)
class Uploaded:
    """The result of an upload.

    sent: rows that the server did not have
    rows: rows of the run
    url: the page of the run
    """

    sent: int
    rows: int
    url: str


def upload(run_dir: Path, given: Mapping[str, Any], timeout: float) -> Uploaded:
    """Send to W&B the rows of metrics.jsonl that it does not have. The run directory keeps only the id.

    run_dir: the run directory
    given: project, entity, group and tags that replace those of the run's own logger=wandb; None: not replaced
    timeout: seconds to reach the server, and again to send the rest at the end

    Raises UserError if this is no run or if it is being trained, NoKey without an API key, and Fault if the server
    cannot be reached or does not take the rows.
    """
    again = f"the run directory has them all, and `rlmem sync {shell(run_dir)}` sends what is missing"
    values, _ = rundir.read(run_dir)
    defaults: dict[str, Any] = {"project": "rlmem", "entity": None, "group": None, "tags": []}
    chosen = defaults | values["logger"].get("wandb", {}) | {key: v for key, v in given.items() if v is not None}
    run, where = RunInfo(run_dir.resolve().name, values), {key: chosen[key] for key in defaults}
    with rundir.lock(run_dir), TemporaryDirectory() as folder:
        rows = _rows(run_dir / "metrics.jsonl")
        failed = not rows or rows[-1]["step"] < values["total_steps"]

        def send() -> WandbRun:
            logger = WandbRun(run_dir, run, "online", Path(folder), **where, timeout=timeout)
            for number, row in enumerate(rows):
                logger.log(number, row)
            logger.close(failed)
            return logger

        try:
            logger = send()
            # A server that refuses rows raises no error; how many it has is known when the run is opened again.
            arrived = len(rows) if logger.held >= len(rows) else send().held
        except NoKey:
            raise
        except Exception as error:  # of many kinds, of W&B and of its service
            raise Fault(f"{run_dir}: not uploaded: {first_line(error)}; {again}") from error
    if arrived < len(rows):
        raise Fault(f"{run_dir}: W&B took {arrived} of {len(rows)} rows; {again}")
    return Uploaded(max(0, len(rows) - logger.held), len(rows), logger.run.url)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return read_jsonl(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore the file") from error
