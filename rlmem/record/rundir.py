"""The run directory: its name, its lock, and the description of the run in it (config.yaml and run.json)."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import yaml
from filelock import FileLock, Timeout

from rlmem.config import plainyaml
from rlmem.config.compose import Config
from rlmem.core import received
from rlmem.core.errors import UserError
from rlmem.record.provenance import FORMAT, is_number, provenance, require_readable
from rlmem.record.trust import is_changed, is_data, is_own, require_plain, sealed, synced


class NoRun(UserError):
    """A directory that holds no run, or one whose description cannot be read."""


def create(config: Config) -> Path:
    """Make the directory of a new run and return it.

    Without `run_dir` it is runs/<date>/<time>-<memory>-<algo>-<env>-s<seed>, with a number if that exists. With
    `on_exists=new`, `run_dir` gets a number, too. Raises UserError if it holds a run, or if it cannot be written.
    """
    settings = config.settings
    if settings.run_dir is None:
        now, env_id = datetime.now(), config.values["env"].get("id")  # such as CartPole-v1; else the option of conf/env
        env_name = re.sub(r"[^\w.+-]+", "_", env_id) if isinstance(env_id, str) else config.choices["env"]
        names = (now.strftime("%H%M%S"), config.choices["memory"], config.choices["algo"], env_name)
        return _numbered(Path("runs") / now.strftime("%Y-%m-%d") / "-".join([*map(str, names), f"s{settings.seed}"]))
    if not settings.run_dir:
        raise UserError("run_dir= (command line): expected a directory; e.g. run_dir=runs/my_run")
    path = Path(settings.run_dir)
    if settings.on_exists == "new" and path.exists():
        return _numbered(path)
    if _files_of_a_run(path):
        problem = "(command line): holds a run already; expected a new directory"
        example = "on_exists=resume to continue it, on_exists=new for another beside it"
        raise UserError(f"run_dir={settings.run_dir} {problem}; e.g. {example}")
    make(path)
    return path


def _numbered(first: Path) -> Path:
    """Make the first directory of `first`, `first`-2, `first`-3, ... that does not exist."""
    for number in range(1, 1000):
        path = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            make(path, exist_ok=False)
            return path
        except FileExistsError:
            continue
    raise UserError(f"{first}: a thousand runs have this name; choose a run_dir=...")


def make(path: Path, exist_ok: bool = True) -> None:
    """Make a directory, in which files can be written; else a UserError. FileExistsError unless `exist_ok`."""
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
        TemporaryFile(dir=path).close()
    except FileExistsError:
        if exist_ok:
            raise UserError(f"run_dir={path}: is a file; expected a directory; e.g. run_dir=runs/my_run") from None
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"run_dir={path}: cannot be written ({reason}); e.g. run_dir=/tmp/my_run") from error


RUN_FILES = ("config.yaml", "run.json", "metrics.jsonl", "episodes.jsonl", "checkpoints", "wandb_id.json")
"""The files of a run: its description, its record, its checkpoints, and its id at W&B."""


def video_path(path: Path, step: int) -> Path:
    """The animation of an episode with the agent after `step` environment steps."""
    return path / "videos" / f"step_{step}.gif"


def move_aside(path: Path) -> Path | None:
    """Move the files of a run in `path` into a new directory beside it, which is returned; None if there are none."""
    aside = None
    for item in _files_of_a_run(path):
        aside = aside or _numbered(path.with_name(f"{path.name}.damaged"))
        os.replace(item, aside / item.name)
    return aside


def _files_of_a_run(path: Path) -> list[Path]:
    """The files of a run in `path`. run.json alone does not count: that run ended before it had begun."""
    left = [path / name for name in RUN_FILES if (path / name).exists()]
    return [] if left == [path / "run.json"] else left


@contextmanager
def lock(path: Path, name: str = ".lock") -> Iterator[None]:
    """Keep every other process from training in this directory, or from holding another lock `name` in it.

    Raises UserError if another trains here, if the lock cannot be written, or as `require_plain` does.
    """
    require_plain(path)
    try:
        held = FileLock(path / name).acquire(timeout=0)
    except Timeout as error:
        raise UserError(f"{path}: is being trained by another process; wait for it, or choose another run") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); e.g. copy the run elsewhere") from error
    with held:
        yield


def is_locked(path: Path) -> bool:
    """True if a process trains in this directory; one that starts at this moment may be refused the lock."""
    try:
        return is_held(path / ".lock")
    except OSError:
        return False


def is_held(file: Path) -> bool:
    """True if a process holds this lock. Raises OSError if that cannot be seen."""
    if file.is_symlink() or not file.is_file():  # opening it would write through the link
        return False
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True


def describe(path: Path, config: Config, resumed_at: int | None = None) -> None:
    """Write run.json (choices, overrides, versions, machine, commit), then config.yaml (resolved and sealed).

    A run has begun when both exist. With `resumed_at`, the step from which it continues, run.json keeps how it began
    and gets an entry in `resumed`.
    """
    about: dict[str, Any] = {"format": FORMAT, "choices": config.choices, "overrides": list(config.overrides)}
    try:
        before = read(path)[1] if resumed_at is not None else {}
    except NoRun:
        before = {}
    about = before | about if before else about | provenance()
    if resumed_at is not None:
        about["resumed"] = [*before.get("resumed", []), {"step": resumed_at, **provenance()}]
    texts = {
        "run.json": json.dumps(about, indent=2) + "\n",
        "config.yaml": sealed(yaml.safe_dump(config.values, sort_keys=False)),
    }
    # A new run has begun with config.yaml. Of one that goes on, the format changes last.
    for name in texts if resumed_at is None else reversed(texts):
        write_atomically(path / name, texts[name])


def write_atomically(path: Path, text: str) -> None:
    """Write a file in one step: whoever reads it finds the old text or the new one, never a part."""
    partial = path.with_suffix(".partial")
    try:
        partial.unlink(missing_ok=True)
        with synced(partial, "x") as file:  # "x" follows no link
            file.write(text)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read(path: Path, strict: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of config.yaml and run.json in a run directory.

    strict: raise OtherFormat, a UserError, for a format that this version does not read

    Raises NoRun if they are missing or damaged.
    """
    try:
        described = (path / "config.yaml").is_file() and (path / "run.json").is_file()
    except OSError:  # a name that is too long, or a folder that may not be read
        described = False
    if not described:
        problem = "not a run directory (no config.yaml and run.json in it); expected the directory that `rlmem train`"
        raise NoRun(f"{path}: {problem} printed; e.g. runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0")
    try:
        name = "config.yaml"
        config = plainyaml.read(path / name)
        _require(isinstance(config, dict) and is_data(config))
        name = "run.json"
        about = received.json_of(path / name)
        _require(isinstance(about, dict) and is_data(about) and isinstance(about.get("choices"), dict))
        for key, kind in (("overrides", str), ("resumed", dict)):
            entries = about.get(key, [])
            _require(isinstance(entries, list) and all(isinstance(entry, kind) for entry in entries))
        _require("overrides" in about and is_number(about.get("format", 0)))
    except Exception as error:  # a file that holds anything can break the readers in any way
        # A parser explains an error in many lines, of which the last says where it is.
        mark = getattr(error, "problem_mark", None)
        reason = str(getattr(error, "problem", None) or error).splitlines() or [type(error).__name__]
        where = "" if mark is None else f", line {mark.line + 1}"
        raise NoRun(f"{path / name}{where}: is damaged ({reason[0][:100]}); restore it") from error
    if strict:
        require_readable(about.get("format", 0), path, [about, *about.get("resumed", [])][-1])
    return config, about


def is_own_run(path: Path) -> bool:
    """Whether this user wrote config.yaml of a run, and nobody has edited it since."""
    return is_own(received.text(path / "config.yaml", received.DESCRIPTION))


def is_edited(path: Path) -> bool:
    """Whether config.yaml of a run was edited since it was written, whoever wrote it."""
    return is_changed(received.text(path / "config.yaml", received.DESCRIPTION))


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("not what was written")
