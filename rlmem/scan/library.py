"""The kernels of the `native` engine, compiled when first used: a library for each real type.

docs/memory.md ("Scans and engines") has the environment variables that it reads, and docs/design.md its design.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from rlmem.core.command import show
from rlmem.core.hardware import cache_folders, own_folder, processor_features

SOURCES = Path(__file__).parent
"""The folder of kernels, each in a file beside its operation's."""
FLAGS = [
    "-std=gnu++17",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fPIC",
    "-shared",
]


@cache
def missing() -> str | None:
    """The reason why the native engine cannot run here; None if it can."""
    try:
        library("float")
    except (OSError, AttributeError, RuntimeError, subprocess.SubprocessError) as error:
        return str(error)
    return None


@cache
def library(real: str) -> ctypes.CDLL:
    """The compiled kernels for numbers of type `real`, float or double.

    Raises OSError, RuntimeError or CalledProcessError if there are none.
    """
    compiler = shlex.split(os.environ.get("CXX", "")) or [next(filter(shutil.which, ("c++", "g++", "clang++")), "")]
    if not compiler[0]:
        raise OSError("needs a C++ compiler, and none is installed (c++, g++ or clang++)")
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    command = [
        *compiler,
        *FLAGS,
        f"-DREAL={real}",
        "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native",
    ]
    files = b"".join(file.read_bytes() for kind in ("h", "cpp") for file in sorted(SOURCES.glob(f"*.{kind}")))
    key = hashlib.sha256(files + version + " ".join(command).encode() + processor_features().encode()).hexdigest()[:16]
    why: OSError | None = None
    for folder in cache_folders():
        try:
            path = own_folder(folder) / f"kernels-{key}.so"
            if not path.exists():
                _compile(command, path)
                if why:
                    _say(f"the compiled kernels are kept in {folder}, since {why}")
            kernels = _load(path)
        except OSError as error:  # not writable, not executable, or half a file: the next folder may do
            why = why or error
            continue
        _keep_memory()
        return kernels
    _say(f"the kernels cannot be kept, so every start is slow or goes without them: {why}")
    raise OSError(f"found no folder to keep the compiled kernels in ({why}); set RLMEM_CACHE to one")


def _say(line: str) -> None:
    example = "e.g. set RLMEM_CACHE to a folder that can be written"
    show(f"rlmem: {line}; {example}", error=True)


def _compile(command: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:  # several processes may compile at once
        built = Path(aside) / path.name
        files = map(str, sorted(SOURCES.glob("*.cpp")))
        done = subprocess.run([*command, *files, "-o", str(built)], capture_output=True, timeout=300)
        if done.returncode:
            message = done.stderr.decode(errors="replace")[:300]
            raise RuntimeError(f"{command[0]} cannot compile the kernels: {message}")
        built.replace(path)


def _load(path: Path) -> ctypes.CDLL:
    try:
        kernels = ctypes.CDLL(str(path))
        kernels.real_forward  # noqa: B018  a symbol that is not exported fails here
    except (OSError, AttributeError) as error:
        path.unlink(missing_ok=True)  # the next process compiles it anew
        raise OSError(str(error)) from error
    return kernels


def _keep_memory() -> None:
    wanted = platform.system() == "Linux" and os.environ.get("RLMEM_MALLOC") != "system"
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None) if wanted else None:
        M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_MMAP_MAX = -3, -1, -4
        if not mallopt(M_MMAP_THRESHOLD, 2**28):  # older glibc allows 32 MiB at most
            mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
