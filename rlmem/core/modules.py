"""Modules of the user's own in the current folder, which Python finds only while one of them is imported or called."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_folder: str | None = None
"""A folder to look in as well as in the current one, in a process that works elsewhere."""


def find_modules_in(folder: str) -> None:
    """Look for modules of the user's own in `folder`, too, in this process."""
    global _folder
    _folder = folder


@contextmanager
def own_modules() -> Iterator[None]:
    """Within, Python looks for modules in the current folder, too, behind all others.

    Outside, nothing is imported from there, since torch and other packages try to import modules that are not
    installed, and a file of such a name may lie in a folder that another user made. What a module of the user's own
    imports while it is imported or called may lie there, too; what it imports later needs PYTHONPATH.
    """
    import torch  # noqa: F401 - it looks for modules while it is imported

    folders = [_folder]
    with suppress(FileNotFoundError):  # the current folder was deleted
        folders.insert(0, os.getcwd())
    added = [folder for folder in folders if folder and folder not in sys.path]
    sys.path += added
    try:
        yield
    finally:
        for folder in added:
            with suppress(ValueError):
                sys.path.remove(folder)
