"""How large networks would be, told by the shapes of their tensors: nothing is allocated, and nothing is computed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class Made(TorchFunctionMode):
    """Counts the tensors that are made inside.

    total: bytes of all of them;  largest: bytes of the largest
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = self.largest = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.total += tensor.numel() * tensor.element_size()
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


@contextmanager
def shapes_only() -> Iterator[Made]:
    """Inside, new tensors have a shape and a type, and no numbers."""
    with torch.device("meta"), Made() as made:
        yield made


def tensor_bytes(tree: Any) -> int:
    """Of all tensors in a pytree."""
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def memory_of(device: torch.device) -> float:
    """Bytes of a GPU, or of this machine; infinite where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return float("inf")


def size(number: float) -> str:
    """Bytes as one reads them."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def parameters(module: torch.nn.Module) -> int:
    """Numbers that are learnt."""
    return sum(parameter.numel() for parameter in module.parameters())
