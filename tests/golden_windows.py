"""Adapters of the models that see a window of slots: frame stack and POPGym's TCN."""

import torch
from golden import ADAPTERS, Adapter, Record
from torch import Tensor

from rlmem.memory.frame_stack import FrameStack
from rlmem.memory.tcn import TCN


def framestack(record: Record) -> FrameStack:
    meta = record.meta
    return FrameStack(meta["d"], meta["H"], meta["stack"])


def tcn(record: Record) -> TCN:
    meta = record.meta
    return TCN(meta["d"], meta["H"], meta["stack"], num_layers=1, form="linear")


def to_state(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """A recorded state is frames of zeros at the episode's start, so every one of them counts as read."""
    frames = arrays[""]
    return {"age": torch.full((len(frames),), float(frames.shape[1])), "frames": frames}


def from_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"": state["frames"]}


for name, build in {"framestack": framestack, "tcn": tcn}.items():
    ADAPTERS[name] = Adapter(build, to_state, from_state)
