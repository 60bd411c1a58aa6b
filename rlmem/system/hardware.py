"""What this process may use of its machine, what kind of machine that is, and which packages are installed there."""

import os
import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cuda_devices() -> int:
    """GPUs that this process may use."""
    import torch

    return torch.cuda.device_count()


def processor() -> str:
    """The name of the processor where the system has it (Linux), else its architecture."""
    info = Path("/proc/cpuinfo")
    name = re.search(r"^model name.*?:(.*)", info.read_text(), re.MULTILINE) if info.exists() else None
    return name[1].strip() if name else platform.processor() or platform.machine()


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
