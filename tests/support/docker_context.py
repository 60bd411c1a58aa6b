"""The files of the repository that Docker sends to its engine."""

import os
import re
import shutil
from pathlib import Path

from helpers import ROOT

UNSHIPPED = (".git", ".venv")
"""What is not looked through: large, and shut out by every pattern."""


def let_in(path: str, patterns: list[str]) -> bool:
    """True if Docker sends a file: the last pattern that names it, or a folder around it, decides; `!` lets in."""
    parts, found = path.split("/"), True
    names = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    for line in patterns:
        pattern = line.removeprefix("!")
        assert re.fullmatch(r"[\w.*/-]+", pattern), f"{line}: a form that is not interpreted here"
        words = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(words, name) for name in names):
            found = line.startswith("!")
    return found


def patterns_of(file: Path) -> list[str]:
    return [line for line in map(str.strip, file.read_text().splitlines()) if line and not line.startswith("#")]


def copy_context(target: Path) -> Path:
    """Copy what `docker build` sends to the engine, and nothing else."""
    patterns = patterns_of(ROOT / ".dockerignore")
    for folder, inner, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        inner[:] = [name for name in inner if (here / name).as_posix() not in UNSHIPPED]
        for name in files:
            if let_in((here / name).as_posix(), patterns):
                (target / here).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / here / name, target / here / name)
    return target
