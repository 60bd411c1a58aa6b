"""Pulling an agent from the Hub into a run directory, which is somebody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import yaml

from rlmem.api.hub.client import answered, client
from rlmem.api.hub.contents import EXAMPLE, FILES, REQUIRED, WEIGHTS, foreign_values, unpack
from rlmem.config.messages import shell
from rlmem.errors import UserError, writing
from rlmem.record import rundir
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.formats import FORMAT
from rlmem.run.stored import experiment_of


class Pulled(NamedTuple):
    """What was pulled.

    path: the run directory
    commit: the commit, in hexadecimal
    step: environment steps that the agent has learnt from
    foreign: `key=value` of the configuration that needs trust, such as code outside rlmem
    """

    path: Path
    commit: str
    step: int
    foreign: list[str]


def pull(repo: str, path: Path | None = None, revision: str | None = None) -> Pulled:
    """Download the agent of a repository into a new run directory, which appears once it is complete.

    See `rlmem.pull`.
    """
    if not all(repo.split("/")):
        raise UserError(f"{repo!r}: is no name of a repository; e.g. OWNER/NAME")
    path = path or Path("runs") / repo.rpartition("/")[2]
    if os.path.lexists(path):
        raise UserError(f"{path}: is there already; e.g. --out {shell(path)}-2")
    hub, example = client(), "--out /tmp/run"
    with answered(hub, repo):
        info = hub.model_info(repo, revision=revision)
    there, commit = {file.rfilename for file in info.siblings or ()}, str(info.sha)
    if missing := [name for name in REQUIRED if name not in there]:
        raise UserError(f"{repo}: holds no agent of rlmem (no {', '.join(missing)}); {EXAMPLE}")
    with writing(path, example):
        path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path, example), TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        received, made = Path(folder) / "received", Path(folder) / "run"
        with answered(hub, repo):
            for name in FILES:
                if name in there:
                    hub.hf_hub_download(repo, name, revision=commit, local_dir=received)
        try:
            step, code = _build(received, made, repo, commit)
        except UserError as error:  # which names files in a folder that is gone
            raise UserError(*(line.replace(str(received), repo) for line in error.problems)) from error
        made.rename(path)
    return Pulled(path, commit, step, code)


def _build(received: Path, made: Path, repo: str, commit: str) -> tuple[int, list[str]]:
    """Make a run directory of the files of a repository; returns the agent's step and what names code."""
    config, about = rundir.read(received, strict=True)
    weights, step = unpack(received / WEIGHTS)
    code = foreign_values(config)
    made.mkdir()
    text = yaml.safe_dump(config, sort_keys=False)  # without any seal, since it comes from elsewhere
    (made / "config.yaml").write_text(text, encoding="utf-8")
    about |= {"format": FORMAT, "hub": {"repo": repo, "commit": commit}}
    (made / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    for name in FILES:
        if name not in REQUIRED and (received / name).exists():
            (received / name).rename(made / name)
    state = {"agent": weights, "experiment": experiment_of(config), "step": step}
    Checkpoints(made / "checkpoints").save(step, state)
    return step, code
