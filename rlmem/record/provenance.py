"""What a run was made by: versions, machine and commit; and whether another process is alike."""

import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rlmem import __version__
from rlmem.core.hardware import installed_version, machine_class

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
    "mujoco",
)


def provenance() -> dict[str, Any]:
    """When, where and with which versions this process runs."""
    return {
        "started": datetime.now().isoformat(timespec="seconds"),
        "rlmem": __version__,
        "git": git_commit(),
        "python": platform.python_version(),
        "versions": {package: installed_version(package) for package in PACKAGES},
        "host": platform.node(),
        "platform": platform.platform(),
        "machine": machine_class(),
        "command": sys.argv,
    }


def why_digits_differ(about: Mapping[str, Any]) -> str | None:
    """Why the last digits of a run that goes on in this process may differ from those of a run without interruption.

    about: the contents of its run.json; {} if they are not known

    None if processor and torch are those of the process before.
    """
    before = [about, *about.get("resumed", [])][-1]
    versions = before.get("versions")
    pairs = {
        "processor": (str(before.get("machine", "")).partition(", ")[2] or None, machine_class().partition(", ")[2]),
        "torch": (versions.get("torch") if isinstance(versions, dict) else None, installed_version("torch")),
    }
    changes = [
        f"{name}: {''.join(filter(str.isprintable, was[:100]))} before, {now} now"  # run.json may be anybody's
        for name, (was, now) in pairs.items()
        if isinstance(was, str) and was != now
    ]
    return f"last digits may differ ({'; '.join(changes)})" if changes else None


def git_commit() -> str | None:
    """The commit of the source checkout, with `+changes` if files differ from it; None for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        ask = lambda *command: subprocess.run(  # noqa: E731
            ["git", "-C", str(root), *command], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        return ask("rev-parse", "HEAD") + ("+changes" if ask("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None
