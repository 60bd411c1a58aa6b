"""Callbacks: code of a user's own that a run calls as it goes on."""

import traceback
from copy import deepcopy
from pathlib import Path
from typing import Any

from rlmem.core.errors import Fault, UserError, one_line


class Callback:
    """What a run calls; a subclass writes the methods that it needs.

    What they are given are copies: a callback watches a run and cannot change its numbers. An exception that it raises
    ends the run like any fault, and a resumed run goes on from the newest checkpoint.
    """

    def on_start(self, run_dir: Path, config: dict[str, Any]) -> None:
        """The run begins or continues. `config`: what its config.yaml holds, nested."""

    def on_iteration(self, row: dict[str, float]) -> None:
        """An iteration has ended; `row` is its row of metrics.jsonl."""

    def on_evaluation(self, step: int, results: dict[str, dict[str, float]]) -> None:
        """The agent was evaluated after `step` environment steps: {"greedy": {"return_mean": ...}, "sampled": ...}."""

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint was written."""

    def on_end(self) -> None:
        """The run has reached its end."""


def notify(name: str, callback: Callback, event: str, *arguments: Any) -> None:
    """Call the method `event` of a callback with copies of the arguments. Raises Fault for an exception."""
    try:
        getattr(callback, event)(*deepcopy(arguments))
    except (UserError, Fault):
        raise
    except Exception as error:  # whatever a user's code raises
        raise Fault(f"callbacks.{name}: {event} raised {one_line(error)}", traceback.format_exc()) from error
