"""What breaks a run from outside becomes a Fault, so that the run ends with one line instead of a traceback."""

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rlmem.core.errors import Fault, first_line

SIZES = (
    "algo.batch_size",
    "algo.rollout_slots",
    "algo.capacity",
    "env.num_envs",
    "memory.hidden_size",
    "encoder.hidden_size",
)
"""Keys that a message for a lack of memory proposes to make smaller, if the run has them."""


@contextmanager
def as_faults(step: Callable[[], int], values: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn a dead process, a loss that is not finite, a full disk or a lack of memory into a Fault with the step.

    values: the configuration of the run, whose keys the Fault of a lack of memory names
    """
    try:
        yield
    except (FloatingPointError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, FloatingPointError):
            what = f"not a finite number: {error}; e.g. a smaller algo.lr, or on_nan=skip to pass over such batches"
        elif isinstance(error, ConnectionError):
            what = str(error)
        elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"{error.filename or 'a file'} cannot be written ({error.strerror})"
        elif not isinstance(error, OSError) and lacks_memory(error):
            parts = [(key, *key.split(".")) for key in SIZES]
            sizes = [key for key, group, name in parts if ((values or {}).get(group) or {}).get(name) is not None]
            what = f"out of memory ({first_line(error)}); e.g. a smaller {' or '.join(sizes) or 'network'}"
        else:
            raise
        raise Fault(f"step {step()}: {what}") from error


def lacks_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on the CPU or a GPU."""
    texts = ("can't allocate memory", "not enough memory", "out of memory")  # of torch's RuntimeErrors on the CPU
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(text in str(error) for text in texts)
