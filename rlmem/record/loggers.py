"""Loggers show the metrics of a run in TensorBoard and Weights & Biases, also after the run (`rlmem sync`).

Both are imported only when they are used.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from uuid import uuid4

from rlmem.config.messages import shell
from rlmem.config.targets import build
from rlmem.core import received
from rlmem.core.errors import Fault, UserError, first_line, reading
from rlmem.core.types import PositiveInt
from rlmem.record import rundir
from rlmem.record.checkpoint import BEST
from rlmem.record.facts import finished
from rlmem.record.recorder import Logger, read_jsonl


@dataclass(frozen=True)
class RunInfo:
    """What a logger shows of a run beside its metrics."""

    name: str
    config: dict[str, Any]


def make_loggers(values: Mapping[str, Any], run_dir: Path, say: Callable[[str], None]) -> dict[str, Logger]:
    """The loggers of a configuration, by name. One that cannot start is reported to `say` and left out."""
    run, loggers = RunInfo(run_dir.name, dict(values)), dict[str, Logger]()
    for name, node in values["logger"].items():
        if "_target_" not in node:
            continue
        try:
            logger = build(node, run_dir=run_dir, run=run)
        except Exception as error:  # a logger must never stop a run, whatever its library raises
            say(f"logger={name} could not start: {first_line(error)}; the run goes on, metrics.jsonl has every row")
        else:
            loggers[name] = logger
            if note := getattr(logger, "note", None):
                say(note)
    return loggers


def video_of(run_dir: Path, row: Mapping[str, float]) -> Path | None:
    """The animation of an episode with the agent that a row of metrics is about, if it is an evaluation with one."""
    path = rundir.video_path(run_dir, int(row["step"]))
    return path if any(name.startswith("eval/") for name in row) and path.is_file() else None


class TensorBoardLogger:
    """Writes a scalar per metric, and videos as animated images, to event files in <run>/tensorboard.

    A resumed run writes all of them again.
    """

    def __init__(self, run_dir: Path, run: RunInfo):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.run_dir = run_dir
        for earlier in (run_dir / "tensorboard").glob("events.out.tfevents.*"):
            earlier.unlink()
        self.writer = EventFileWriter(str(run_dir / "tensorboard"))

    def log(self, number: int, row: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "step"]
        if video := video_of(self.run_dir, row):
            values.append(
                Summary.Value(tag="eval/video", image=Summary.Image(encoded_image_string=received.content(video)))
            )
        self.writer.add_event(Event(wall_time=time.time(), step=int(row["step"]), summary=Summary(value=values)))

    def close(self, failed: bool) -> None:
        self.writer.close()


class WandbRun:
    """The W&B run of an rlmem run, continued by the id in <run>/wandb_id.json.

    Row k of metrics.jsonl is W&B's step k, so W&B knows how many rows it has and a row is never there twice; charts
    are over `step`, the environment steps.

    mode: online, offline or disabled
    folder: where W&B keeps its files
    timeout: seconds to reach the server at the start, and again to send the rest at the end; then an error is raised
    keys: project, entity, group and tags of the run at W&B, and artifact: whether its best agent is uploaded at the end
    """

    def __init__(self, run_dir: Path, run: RunInfo, mode: str, folder: Path, timeout: float, keys: Mapping[str, Any]):
        self.wandb = wandb = fresh_wandb(mode)
        self.run_dir, self.artifact = run_dir, keys["artifact"]
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            raise NoKey("no W&B API key on this machine; expected one; e.g. `wandb login`, or set WANDB_API_KEY")
        self.run = wandb.init(
            mode=mode,
            dir=str(folder.resolve()),  # the service may have started in another directory
            **{key: keys[key] for key in ("project", "entity", "group")},
            tags=list(keys["tags"]) or None,  # [] would remove what was tagged by hand
            name=run.name,
            config=run.config,
            id=None if mode == "disabled" else _stored_id(run_dir),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                init_timeout=timeout,
                finish_timeout=timeout,
                finish_timeout_raises=True,
                x_graphql_retry_max=2,  # a refusal fails soon; rows have their own, patient retries
                x_graphql_retry_wait_max_seconds=1,
                console="off",
                silent=True,
            ),
        )
        self.run.define_metric("step", hidden=True)
        self.run.define_metric("*", step_metric="step")
        self.held: int = self.run.starting_step
        """The number of rows that the server had before."""

    def log(self, number: int, row: Mapping[str, float]) -> None:
        if number >= self.held:
            video = video_of(self.run_dir, row)
            shown = {} if video is None else {"eval/video": self.wandb.Video(str(video), format="gif")}
            self.run.log(dict(row) | shown, step=number, commit=True)

    def close(self, failed: bool) -> None:
        best = self.run_dir / "checkpoints" / BEST
        try:
            try:
                if self.artifact and best.exists():
                    agent = self.wandb.Artifact(f"{self.run.id}-best", type="model")
                    for file in (best, self.run_dir / "config.yaml"):
                        agent.add_file(str(file))
                    self.run.log_artifact(agent)
            finally:
                self.run.finish(exit_code=int(failed))
        except Exception:
            forget_wandb()
            raise


class WandbLogger(WandbRun):
    """One W&B run per rlmem run, in <run>/wandb.

    Online mode goes offline by itself, and says so, if there is no API key or the server does not answer in time.

    run_dir: the run directory
    run: its name and configuration
    mode: online, offline or disabled; None: what the environment says (WANDB_MODE, `wandb offline`), else online
    project: project of the run
    entity: user or team that owns the project; None: the user's default
    group: group of the run in the project
    tags: tags of the run
    artifact: whether to upload the best agent as an artifact, with its configuration, when the run ends
    init_timeout: seconds to reach the server, at the start and at the end
    """

    def __init__(
        self,
        run_dir: Path,
        run: RunInfo,
        mode: Literal["online", "offline", "disabled"] | None = None,
        project: str = "rlmem",
        entity: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        artifact: bool = False,
        init_timeout: PositiveInt = 6,
    ):
        keys = {"project": project, "entity": entity, "group": group, "tags": tags, "artifact": artifact}
        self.later = f"upload what is missing with    rlmem sync {shell(run_dir)}"
        self.note: str | None = None
        chosen = mode or {"dryrun": "offline", "run": "online"}.get(
            environment_mode := fresh_wandb().setup().settings.mode, environment_mode
        )
        try:
            super().__init__(run_dir, run, chosen, run_dir, init_timeout, keys)
        except Exception as error:  # of many kinds, of W&B and of its service
            if chosen == "offline":
                raise
            self.note = f"logger=wandb goes offline ({first_line(error)}); {self.later}"
            super().__init__(run_dir, run, "offline", run_dir, init_timeout, keys)
        if chosen == "online" and self.note is None:
            self.note = f"logger=wandb: {self.run.url}"


class NoKey(UserError):
    """This machine has no API key for W&B."""


def fresh_wandb(mode: Any = None) -> Any:
    """The wandb module, set up from the environment as it is now.

    Otherwise a mode, an id in use or a dead service of an earlier run would last as long as this process.
    """
    # W&B's reports of its own errors go to the same server; if it does not answer, the process ends 20 s later.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    if wandb.run is None:  # else the caller has a W&B run of its own
        forget_wandb()
    wandb.setup(wandb.Settings(silent=True) if mode is None else wandb.Settings(silent=True, mode=mode))
    return wandb


def forget_wandb() -> None:
    """End W&B's service; another is started when it is needed."""
    import wandb

    with suppress(Exception):  # it may be dead
        wandb.teardown()


def _stored_id(run_dir: Path) -> str:
    """The W&B id of the run, which is drawn once and kept in the run directory."""
    path = run_dir / "wandb_id.json"
    if not path.exists():
        rundir.write_atomically(path, json.dumps(uuid4().hex[:8]))
    return received.json_of(path)


def upload(run_dir: Path, replaced: Mapping[str, Any], timeout: float) -> str:
    """Send to W&B the rows of metrics.jsonl that it does not have; returns how many were sent, and the run's page.

    The run directory keeps only the id.

    run_dir: the run directory
    replaced: project, entity, group and tags that replace those of the run's own logger=wandb; None: not replaced
    timeout: seconds to reach the server, and again to send the rest at the end

    Raises UserError if this is no run or if it is being trained, NoKey without an API key, and Fault if the server
    cannot be reached or does not take the rows.
    """
    again = f"the run directory has them all, and `rlmem sync {shell(run_dir)}` sends what is missing"
    values, _ = rundir.read(run_dir)
    keys: dict[str, Any] = {"project": "rlmem", "entity": None, "group": None, "tags": [], "artifact": False}
    with reading(run_dir / "config.yaml"):
        keys |= values["logger"].get("wandb", {}) | {key: value for key, value in replaced.items() if value is not None}
    run = RunInfo(run_dir.resolve().name, values)
    with rundir.lock(run_dir), TemporaryDirectory() as folder:
        with reading(run_dir / "metrics.jsonl"):
            rows = read_jsonl(run_dir / "metrics.jsonl")
            failed = not finished(values, rows)

        def send() -> WandbRun:
            logger = WandbRun(run_dir, run, "online", Path(folder), timeout, keys)
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
