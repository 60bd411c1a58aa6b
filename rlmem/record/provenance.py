"""What a run was made by: versions, machine and commit; and whether another version or process can go on with it.

run.json and every checkpoint have the number of the format that they were written in. What lacks it is of format 0.

    0  rlmem 0.1.0 and early development versions of 0.2.0, which this version does not read
    1  rlmem 0.2.0

A change after which rlmem could not read what the last release wrote, or would read it as something else, takes three
things: `FORMAT` grows by one, `rundir.read` and `checkpoint.read` migrate what is of the format before, and
`tests/data/formats` gets runs of that format. Files change only when the run is resumed. A migration names no code but
rlmem's own, since a received run may choose it, and changes nothing of what it has migrated before: a kill may leave a
new config.yaml beside the run.json of before.
"""

import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rlmem import __version__
from rlmem.config.messages import sentence
from rlmem.core.errors import UserError
from rlmem.core.hardware import installed_version, machine_class

OLDEST, FORMAT = 1, 1
"""The first format that this version reads, and the one in which it writes."""

HOME = "https://github.com/rlmem/rlmem"


class OtherFormat(UserError):
    """A run or a checkpoint in a format that this version cannot read."""


def is_number(value: object) -> bool:
    """Whether `value` may be the number of a format."""
    return type(value) is int and 0 <= value < 1000


def require_readable(number: int, where: object, written: Mapping[str, Any]) -> None:
    """Raise OtherFormat, which says what can read it, unless this version reads format `number`.

    where: a run directory or a checkpoint
    written: the version and the commit that wrote it, `rlmem` and `git`, as far as they are known; it may be anybody's
    """
    if OLDEST <= number <= FORMAT:
        return
    version, commit = str(written.get("rlmem")), re.match(r"[0-9a-f]{40}", str(written.get("git")))
    by = f"rlmem {version}" if re.fullmatch(r"\d[\w.+]{,30}", version) else "another version of rlmem"
    problem = f"was written by {by} in format {number}; rlmem {__version__} reads formats {OLDEST} to {FORMAT}"
    example = f"pip install git+{HOME}{f'@{commit[0]}' if commit else ''}"
    if number < OLDEST and not commit:  # the newest version cannot read it either
        example = f"a clone of {HOME} at the commit that wrote it"
    raise OtherFormat(sentence(str(where), problem, example=example))


PACKAGES = (
    "torch", "numpy", "gymnasium", "popgym", "hydra-core", "omegaconf", "wandb", "tensorboard", "pybullet", "mujoco",
)  # fmt: skip


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
