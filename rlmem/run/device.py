"""The device of a run and the threads of its processes."""

from __future__ import annotations

import torch

from rlmem.config.schema import Settings
from rlmem.errors import NotHere
from rlmem.system.hardware import cores


def choose_device(name: str) -> torch.device:
    """The device called cpu, cuda or auto, which is cuda if there is one. Raises NotHere without a GPU for `cuda`."""
    if name == "cuda" and not torch.cuda.is_available():
        raise NotHere("device=cuda: no CUDA device is available here; accepted: cpu, auto; e.g. device=auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    # cuDNN's recurrent kernels round to TF32 by default: training would not read what acting read.
    torch.backends.cudnn.allow_tf32 = False
    return torch.device(name)


def learning_threads(settings: Settings) -> int:
    """The CPU threads of each process of a run while it learns."""
    return settings.threads or max(1, cores() // settings.trainer.devices)
