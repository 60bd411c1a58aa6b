"""Folders of YAML: the shipped ones lie in the package in a wheel, beside it in a checkout; the user's in ./conf."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import yaml

from rlmem.core.errors import UserError

SEARCHPATH = "RLMEM_SEARCHPATH"
"""The environment variable with the user's folders, separated as in PATH; without it, ./conf is one."""


@cache
def conf_dir() -> Path:
    """The folder of config.yaml and of the config groups."""
    return next(_folders("conf", "config.yaml"))


def own_dirs(lines: Iterable[str] = ()) -> list[Path]:
    """The user's folders, whose options are added to the shipped ones and do not replace them.

    They are those of RLMEM_SEARCHPATH, or else ./conf if it has options, is not the shipped folder and does not lie in
    a run directory, which another user may have made; and those of `hydra.searchpath=[file://FOLDER]` among `lines`.
    Raises UserError if RLMEM_SEARCHPATH names no folder.
    """
    if SEARCHPATH in os.environ:
        folders = [Path(text).expanduser() for text in os.environ[SEARCHPATH].split(os.pathsep) if text]
        if missing := [str(folder) for folder in folders if not folder.is_dir()]:
            expected = "expected folders that hold groups; e.g. my_conf with my_conf/memory/mine.yaml in it"
            raise UserError(f"{SEARCHPATH}: no folder {missing[0]}; {expected}")
    else:
        here = Path("conf")
        groups = [folder.name for folder in conf_dir().iterdir() if folder.is_dir()]
        a_run = Path("run.json").exists() and Path("config.yaml").exists()
        own = here.resolve() != conf_dir() and any(any((here / group).glob("*.yaml")) for group in groups)
        folders = [here] if own and not a_run else []
    folders = [folder.resolve() for folder in folders]
    for line in lines:
        if line.startswith("hydra.searchpath="):
            with suppress(yaml.YAMLError):  # Hydra says what is wrong with such a line
                listed = yaml.safe_load(line.partition("=")[2])
                paths = [str(item).removeprefix("file://") for item in listed] if isinstance(listed, list) else []
                folders += [folder for folder in map(Path, paths) if folder.is_dir()]
    return folders


@contextmanager
def shipped_options() -> Iterator[None]:
    """Use only the shipped options, in this process and in those that it starts meanwhile."""
    before = os.environ.get(SEARCHPATH)
    os.environ[SEARCHPATH] = ""
    try:
        yield
    finally:
        del os.environ[SEARCHPATH]
        if before is not None:
            os.environ[SEARCHPATH] = before


def experiments_dir() -> Path | None:
    """The folder of experiment files, or None where none is shipped."""
    return next(_folders("experiments", "**/*.yaml"), None)


def experiment_modules() -> list[str]:
    """The folders of shipped experiments that hold Python: analyses and benchmarks that no other experiment needs."""
    root = experiments_dir()
    return sorted({str(file.parent) for file in root.glob("*/*.py")}) if root else []


def results_dir() -> Path | None:
    """The folder of the results that are shipped, or None."""
    return next(_folders("results", "*/*.csv"), None)


def _folders(name: str, holds: str) -> Iterator[Path]:
    """The folders of that name in which a file matches `holds`."""
    package = Path(__file__).resolve().parent.parent
    return (folder for folder in (package / name, package.parent / name) if any(folder.glob(holds)))
