"""Names for what breaks a run from outside, so that it ends with one line instead of a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from rlmem.errors import Fault

NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""How torch says so on the CPU, in a RuntimeError."""


@contextmanager
def named(step: Callable[[], int]) -> Iterator[None]:
    """Turn a dead process, a loss that is not finite and a lack of memory into a Fault that names the step."""
    try:
        yield
    except FloatingPointError as error:
        what = f"not a finite number: {error}; e.g. a smaller algo.lr, or on_nan=skip to pass over such batches"
        raise Fault(f"step {step()}: {what}") from error
    except BrokenPipeError:  # whoever read this process's output has gone
        raise
    except ConnectionError as error:
        raise Fault(f"step {step()}: {error}") from error
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and not _no_memory(str(error)):
            raise
        told = str(error).splitlines()[0] if str(error) else "MemoryError"
        what = f"out of memory ({told}); e.g. a smaller algo.batch_size, algo.capacity, env.num_envs or memory"
        raise Fault(f"step {step()}: {what}") from error


def _no_memory(text: str) -> bool:
    return any(said in text for said in NO_MEMORY)
