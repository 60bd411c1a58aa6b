"""Where the shipped YAML lies: inside the package in a wheel, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def conf_dir() -> Path:
    """The folder of config.yaml and of the config groups."""
    return next(folder for folder in _candidates("conf") if (folder / "config.yaml").is_file())


def experiments_dir() -> Path | None:
    """The folder of experiment files, or None where none is shipped."""
    return next((folder for folder in _candidates("experiments") if any(folder.rglob("*.yaml"))), None)


def results_dir() -> Path | None:
    """The folder of the results that are shipped, or None."""
    return next((folder for folder in _candidates("results") if any(folder.glob("*/*.csv"))), None)


def display(file: Path) -> str:
    """`conf/algo/ppo.yaml` for a shipped file, the whole path for any other."""
    root = conf_dir().parent
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)


def _candidates(name: str) -> tuple[Path, Path]:
    return PACKAGE / name, PACKAGE.parent / name
