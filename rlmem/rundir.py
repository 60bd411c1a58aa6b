"""The run directory: its name, and what is written once at the start."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from rlmem import __version__
from rlmem.errors import UserError

PACKAGES = (
    "torch",
    "numpy",
    "gymnasium",
    "popgym",
    "hydra-core",
    "omegaconf",
    "wandb",
    "tensorboard",
    "pybullet",
)


def create(run_dir: str | None, choices: Mapping[str, Any], seed: int) -> Path:
    """Make the directory of a new run: `run_dir`, or runs/<date>/<time>-<memory>-<algo>-<env>-s<seed>.

    A default name that is taken gets a number. Raises UserError if a chosen directory holds a run already, or if
    nothing can be written there.
    """
    if run_dir is not None:
        if not run_dir:
            raise UserError("run_dir= (command line): expected a directory; e.g. run_dir=runs/my_run")
        path = Path(run_dir)
        if (path / "config.yaml").exists():
            raise UserError(
                f"run_dir={run_dir} (command line): holds a run already; expected a new directory; "
                f"e.g. `rlmem resume {run_dir}` to continue it"
            )
        _make(path, exist_ok=True)
        return path
    now = datetime.now()
    name = "-".join([now.strftime("%H%M%S"), *(str(choices[g]) for g in ("memory", "algo", "env")), f"s{seed}"])
    parent = Path("runs") / now.strftime("%Y-%m-%d")
    for number in range(1, 1000):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            _make(path, exist_ok=False)
            return path
        except FileExistsError:
            continue
    raise UserError(f"{parent / name}: a thousand runs of this name started this second; choose a run_dir=...")


def _make(path: Path, exist_ok: bool) -> None:
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
        (path / ".writable").touch()
        (path / ".writable").unlink()
    except FileExistsError:
        if exist_ok:
            raise UserError(f"run_dir={path}: is a file; expected a directory; e.g. run_dir=runs/my_run") from None
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"run_dir={path}: cannot be written ({reason}); e.g. run_dir=/tmp/my_run") from error


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keep every other process from training in this directory.

    Raises UserError if one is, or if the lock cannot be written.
    """
    held = FileLock(path / ".lock")
    try:
        held.acquire(timeout=0)
    except Timeout as error:
        raise UserError(f"{path}: is being trained by another process; wait for it, or choose another run") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); e.g. copy the run elsewhere") from error
    try:
        yield
    finally:
        held.release()


def describe(path: Path, config: Mapping[str, Any], choices: Mapping[str, Any], overrides: tuple[str, ...]) -> None:
    """Write config.yaml (resolved), and run.json: choices, overrides, versions, machine, git commit."""
    about = {
        "choices": dict(choices),
        "overrides": list(overrides),
        **_here_and_now(),
    }
    _replace(path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))
    _replace(path / "run.json", json.dumps(about, indent=2) + "\n")


def describe_resumption(path: Path, config: Mapping[str, Any], overrides: tuple[str, ...], step: int) -> None:
    """Update config.yaml, and add to run.json that, where and with what the run was resumed at `step`."""
    _, about = read(path)
    about["overrides"] = list(overrides)
    about.setdefault("resumed", []).append({"step": step, **_here_and_now()})
    _replace(path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))
    _replace(path / "run.json", json.dumps(about, indent=2) + "\n")


def _here_and_now() -> dict[str, Any]:
    return {
        "started": datetime.now().isoformat(timespec="seconds"),
        "rlmem": __version__,
        "git": git_commit(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
        "host": platform.node(),
        "platform": platform.platform(),
        "command": sys.argv,
    }


def _replace(path: Path, text: str) -> None:
    """Write a file so that it is either the old or the new one, never half."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.yaml and run.json of a run. Raises UserError if `path` is not a run directory."""
    if not (path / "config.yaml").is_file() or not (path / "run.json").is_file():
        raise UserError(
            f"{path}: not a run directory (no config.yaml and run.json in it); expected the directory that "
            f"`rlmem train` printed; e.g. runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0"
        )
    try:
        config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
        return config, json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (yaml.YAMLError, json.JSONDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: config.yaml or run.json is damaged ({reason}); restore it") from error


def git_commit() -> str | None:
    """Commit of the source checkout, with `+changes` if files differ from it; None for an installed package."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        ask = lambda *command: subprocess.run(  # noqa: E731
            ["git", "-C", str(root), *command], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        return ask("rev-parse", "HEAD") + ("+changes" if ask("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
