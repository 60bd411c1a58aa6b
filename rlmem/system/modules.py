"""Modules of the user's own in the current folder, which Python finds only while one of them is imported or called."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_folder: str | None = None
"""The folder to look in, in a process that works elsewhere; None: the current one."""


def find_modules_in(folder: str) -> None:
    """Look for modules of the user's own in `folder`, in this process."""
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

    try:
        folder = _folder or os.getcwd()
    except FileNotFoundError:  # the current folder was deleted
        folder = ""
    if not folder or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)
