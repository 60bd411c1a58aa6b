"""What this process may use of its machine, which kind that is, and where packages and the user's own modules lie."""

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The name of the processor where the system has it (Linux), else its architecture."""
    name = next(_processor_lines("model name"), "").partition(":")[2].strip()
    return name or platform.processor() or platform.machine()


def processor_features() -> str:
    """What the processor can do (Linux), which distinguishes those of machines that share a cache folder."""
    return next(_processor_lines("flags", "Features"), platform.processor())


def _processor_lines(*names: str) -> Iterator[str]:
    """The lines of /proc/cpuinfo that begin with one of these names."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    return (line for line in lines if line.startswith(names))


def cache_folders() -> list[Path]:
    """Folders for what is made once per machine, best first; see `own_folder`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    own = os.environ.get("RLMEM_CACHE") or os.path.join(base, "rlmem")
    user = os.getuid() if hasattr(os, "getuid") else ""
    return [Path(own), Path(tempfile.gettempdir()) / f"rlmem-{user}"]


def own_folder(folder: Path) -> Path:
    """`folder`, made if need be. Raises OSError if it cannot be, or is another user's, whose files must not be used."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} is another user's")
    return folder


def machine_class() -> str:
    """What timings here depend on, without a host name: `2 cores, AMD EPYC`, and the GPU if one is in use."""
    import torch

    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_initialized() else ""
    return f"{cores()} cores, {processor()}{gpu}"


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    with suppress(PackageNotFoundError):
        return version(package)
    return None


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
