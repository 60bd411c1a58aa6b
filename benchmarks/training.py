"""Training runs in processes of their own, for the scripts beside this file."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from rlmem.commands.cli import main as rlmem

LOG = Path("log.txt")


@contextmanager
def temporary_folder() -> Iterator[None]:
    """Work in a folder that is deleted at the end."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def start(arguments: list[str]) -> BaseProcess:
    """Fork a process that runs `rlmem ARGUMENTS` and appends what it prints to LOG; nothing is imported again."""
    process = multiprocessing.get_context("fork").Process(target=_command, args=(arguments,))
    process.start()
    return process


def _command(arguments: list[str]) -> None:
    with open(LOG, "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.exit(rlmem(arguments))
