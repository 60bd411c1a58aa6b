"""Mirrors of the run's record: TensorBoard and Weights & Biases. Their libraries are imported only when used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from rlmem.types import PositiveInt


@dataclass(frozen=True)
class RunInfo:
    """What a mirror shows of a run; `step` is where a resumed run starts again, None for a new run."""

    name: str
    config: dict[str, Any]
    step: int | None


class TensorBoardLogger:
    """Event files in <run>/tensorboard, one scalar per metric over environment steps."""

    def __init__(self, run_dir: Path, run: RunInfo):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=None if run.step is None else run.step + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self, failed: bool) -> None:
        self.writer.close()


class WandbLogger:
    """One W&B run per rlmem run, continued by its stored id, in <run>/wandb.

    Online mode goes offline by itself, with a line that says so, if there is no API key or the server does not
    answer within `init_timeout` seconds.
    """

    def __init__(
        self,
        run_dir: Path,
        run: RunInfo,
        mode: Literal["online", "offline"] = "online",
        project: str = "rlmem",
        entity: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        init_timeout: PositiveInt = 15,
    ):
        import wandb

        arguments: dict[str, Any] = {
            "dir": str(run_dir.resolve()),  # the service may have started in another directory
            "project": project,
            "entity": entity,
            "group": group,
            "tags": list(tags),
            "name": run.name,
            "config": run.config,
            "id": _stored_id(run_dir),
            "resume": "allow",
            "settings": wandb.Settings(
                init_timeout=init_timeout, finish_timeout=2 * init_timeout, console="off", silent=True
            ),
        }
        self.note: str | None = None
        try:
            if mode == "online" and not wandb.login(prompt=False):
                raise wandb.errors.UsageError("no API key, see `wandb login`")
            self.run = wandb.init(mode=mode, **arguments)
        except wandb.errors.Error as error:
            if mode == "offline":
                raise
            self.note = f"logger=wandb goes offline ({str(error).splitlines()[0]}); upload later with `wandb sync`"
            self.run = wandb.init(mode="offline", **arguments)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log({"step": step, **metrics}, step=step)

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


def _stored_id(run_dir: Path) -> str:
    """The run's W&B id, drawn once and kept in the run directory."""
    path = run_dir / "wandb_id.json"
    if not path.exists():
        path.write_text(json.dumps(uuid4().hex[:8]))
    return json.loads(path.read_text())
