"""rlmem: memory in partially observable reinforcement learning.

    run = rlmem.train("memory=gru", "env=repeat_previous", total_steps=200_000)
    agent = rlmem.load("runs/gru@best")

See docs/library.md. What is offered is imported when it is first asked for.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlmem.core.moved import OldModules

__version__ = "0.2.0.dev1"

if TYPE_CHECKING:
    from rlmem.api.items import Reproduction as Reproduction
    from rlmem.api.items import reproduce as reproduce
    from rlmem.api.make import make_env as make_env
    from rlmem.api.make import make_memory as make_memory
    from rlmem.api.runs import Run as Run
    from rlmem.api.runs import load as load
    from rlmem.api.runs import pull as pull
    from rlmem.api.runs import train as train
    from rlmem.core.errors import Fault as Fault
    from rlmem.core.errors import UserError as UserError
    from rlmem.loops.parts import Callback as Callback
    from rlmem.run.trained import ActingState as ActingState
    from rlmem.run.trained import TrainedAgent as TrainedAgent

_OFFERED = {
    "rlmem.api.items": ("Reproduction", "reproduce"),
    "rlmem.api.make": ("make_env", "make_memory"),
    "rlmem.api.runs": ("Run", "load", "pull", "train"),
    "rlmem.run.trained": ("ActingState", "TrainedAgent"),
    "rlmem.core.errors": ("Fault", "UserError"),
    "rlmem.loops.parts": ("Callback",),
}
sys.meta_path.insert(0, OldModules())  # before the finder that would read a moved package's folder again
_PLACES = {name: module for module, names in _OFFERED.items() for name in names}


if not TYPE_CHECKING:  # which would find every name here

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*_PLACES, "__version__"])
