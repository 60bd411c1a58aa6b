"""NVIDIA's Multi-Process Service (MPS): kernels of several processes run on a GPU at the same time, not in turns."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
SECONDS = 20
"""For the daemon to start, and to end."""


@contextmanager
def shared_gpus(per_gpu: int, say: Callable[[str], None]) -> Iterator[None]:
    """Within, processes that are started share GPUs by an MPS daemon of their own.

    Nothing is started for a single job on a GPU, where MPS is not installed, or where the user has a daemon: its folder
    is in CUDA_MPS_PIPE_DIRECTORY, or the default one exists.
    """
    program = shutil.which(PROGRAM)
    if per_gpu < 2 or program is None or PIPES in os.environ or Path("/tmp/nvidia-mps/control").exists():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        os.environ |= {PIPES: folder, LOGS: folder}
        try:
            subprocess.run([program, "-d"], check=True, capture_output=True, timeout=SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            say(f"jobs on one GPU take turns: {PROGRAM} does not start ({error})")
            program = None
            del os.environ[PIPES], os.environ[LOGS]
        else:
            say("jobs on one GPU compute at the same time (CUDA MPS)")
        try:
            yield
        finally:
            if program is not None:
                with suppress(OSError, subprocess.SubprocessError):
                    subprocess.run([program], input=b"quit\n", capture_output=True, timeout=SECONDS)
                del os.environ[PIPES], os.environ[LOGS]
