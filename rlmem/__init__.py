"""rlmem: memory in partially observable reinforcement learning.

    run = rlmem.train("memory=gru", "env=repeat_previous", total_steps=200_000)
    agent = rlmem.load("runs/gru@best")

See docs/library.md. What is offered is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev1"

if TYPE_CHECKING:
    from rlmem.api import ActingState, Run, TrainedAgent, load, make_env, make_memory, train
    from rlmem.errors import Fault, UserError

__all__ = ["ActingState", "Fault", "Run", "TrainedAgent", "UserError", "load", "make_env", "make_memory", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rlmem.errors" if name in ("Fault", "UserError") else "rlmem.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
