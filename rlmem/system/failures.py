"""Names for what breaks a run from outside, so that it ends with one line instead of a traceback."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rlmem.errors import Fault

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""How the system says that a disk, or what a user may have of it, is full."""

NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""How torch says so on the CPU, in a RuntimeError."""


SIZES = (
    "algo.batch_size",
    "algo.rollout_slots",
    "algo.capacity",
    "env.num_envs",
    "memory.hidden_size",
    "encoder.hidden_size",
)
"""Keys that may be made smaller where memory lacks, if a run has them."""


def smaller(values: Mapping[str, Any]) -> str:
    """Those of SIZES that a configuration has, joined by `or`; `network` if it has none."""
    found = []
    for key in SIZES:
        section, _, name = key.partition(".")
        if (values.get(section) or {}).get(name) is not None:
            found.append(key)
    return " or ".join(found) or "network"


@contextmanager
def named(step: Callable[[], int], values: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn a dead process, a loss that is not finite and a lack of memory into a Fault that names the step.

    values: the configuration of the run, whose keys a lack of memory names
    """
    try:
        yield
    except FloatingPointError as error:
        what = f"not a finite number: {error}; e.g. a smaller algo.lr, or on_nan=skip to pass over such batches"
        raise Fault(f"step {step()}: {what}") from error
    except ConnectionError as error:
        raise Fault(f"step {step()}: {error}") from error
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise Fault(f"step {step()}: {error.filename or 'a file'} cannot be written ({error.strerror})") from error
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        told = str(error).splitlines()[0] if str(error) else "MemoryError"
        what = f"out of memory ({told}); e.g. a smaller {smaller(values or {})}"
        raise Fault(f"step {step()}: {what}") from error


def lacks_memory(error: BaseException) -> bool:
    """Whether memory could not be had, on the CPU or a GPU."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(said in str(error) for said in NO_MEMORY)
