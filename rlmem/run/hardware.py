"""What a run uses of a machine: its device, and the threads and environments of each of its processes."""

import torch

from rlmem.algos.base import Algorithm
from rlmem.config.compose import Config
from rlmem.config.messages import to_text
from rlmem.config.schema import Settings
from rlmem.errors import NotHere, UserError
from rlmem.parallel import launched
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


def share_of_envs(config: Config, algo: Algorithm, device: torch.device) -> int | None:
    """Environments per process if several processes train one run; None for one process.

    Raises UserError if so many processes cannot train together.
    """
    devices, there = config.settings.trainer.devices, launched()
    where = f"trainer.devices={devices}"
    if there is not None and there.size != devices:
        raise UserError(
            f"{where}: this is one of {there.size} processes (WORLD_SIZE={there.size}); expected as many devices; "
            f"e.g. trainer.devices={there.size}"
        )
    if devices == 1:
        return None
    if algo.one_process is not None:
        what = f"algo={config.choices['algo']} {algo.one_process}, in one process"
        raise UserError(f"{where}: {what}; expected 1; e.g. algo=ppo")
    num_envs = config.values["env"].get("num_envs")
    if num_envs is None or num_envs % devices:
        raise UserError(
            f"env.num_envs={to_text(num_envs)}: cannot be divided among {where}; expected a multiple; "
            f"e.g. env.num_envs={devices * 32}"
        )
    needed = devices if there is None else there.local + 1
    if device.type == "cuda" and torch.cuda.device_count() < needed:
        raise UserError(
            f"{where}: each process takes a GPU, and there are {torch.cuda.device_count()} here; expected at most as "
            f"many; e.g. device=cpu"
        )
    return num_envs // devices
