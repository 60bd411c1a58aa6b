"""Upload the record of a run to Weights & Biases after the run (`rlmem sync`)."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlmem.config.messages import shell
from rlmem.core.errors import Fault, UserError, first_line, reading
from rlmem.record import rundir
from rlmem.record.facts import finished
from rlmem.record.loggers import NoKey, RunInfo, WandbRun
from rlmem.record.recorder import read_jsonl


def upload(run_dir: Path, given: Mapping[str, Any], timeout: float) -> str:
    """Send to W&B the rows of metrics.jsonl that it does not have; returns how many were sent, and the run's page.

    The run directory keeps only the id.

    run_dir: the run directory
    given: project, entity, group and tags that replace those of the run's own logger=wandb; None: not replaced
    timeout: seconds to reach the server, and again to send the rest at the end

    Raises UserError if this is no run or if it is being trained, NoKey without an API key, and Fault if the server
    cannot be reached or does not take the rows.
    """
    again = f"the run directory has them all, and `rlmem sync {shell(run_dir)}` sends what is missing"
    values, _ = rundir.read(run_dir)
    defaults: dict[str, Any] = {"project": "rlmem", "entity": None, "group": None, "tags": []}
    with reading(run_dir / "config.yaml"):
        chosen = defaults | values["logger"].get("wandb", {}) | {key: v for key, v in given.items() if v is not None}
    run, place = RunInfo(run_dir.resolve().name, values), {key: chosen[key] for key in defaults}
    with rundir.lock(run_dir), TemporaryDirectory() as folder:
        try:
            rows = read_jsonl(path := run_dir / "metrics.jsonl")
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); restore the file") from error
        with reading(run_dir):
            failed = not finished(values, rows)

        def send() -> WandbRun:
            logger = WandbRun(run_dir, run, "online", Path(folder), timeout, place, bool(chosen.get("artifact")))
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
    sent = max(0, len(rows) - logger.held)
    said = f"{sent} of {len(rows)} rows sent" if sent else f"all {len(rows)} rows were there already"
    return f"{run_dir}: {said}; {logger.run.url}"
