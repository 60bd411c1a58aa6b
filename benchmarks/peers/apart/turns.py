"""The side of `apart.py` that runs in a peer's own environment: a training that waits for its turn.

    python turns.py PROGRAM SETTING

PROGRAM is a file beside this one, whose `train(setting, turn)` trains for ever and calls `turn(steps)` before each
iteration, `steps` being the environment steps so far. SETTING is JSON. A line on the standard input lets it do one
iteration; the answer is a line of JSON on the standard output. What else the program prints goes to the standard error.
"""

import json
import multiprocessing
import os
import platform
import runpy
import sys
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any, TextIO


class Turn:
    """Called before each iteration: answers what the last one took, and waits until the next one may begin.

    The first answer says what is installed. When the standard input ends, the program does.
    """

    def __init__(self, packages: list[str], answers: TextIO):
        self.packages, self.answers = packages, answers
        self.steps, self.began = 0, (0.0, 0.0)

    def __call__(self, steps: int) -> None:
        ended = clocks()
        if self.packages:
            versions = {name: version(name) for name in self.packages}
            self.answer({"python": platform.python_version()} | versions)
            self.packages = []
        else:
            cpu, wall = (now - then for now, then in zip(ended, self.began, strict=True))
            self.answer({"steps": steps - self.steps, "cpu": cpu, "wall": wall})
        if multiprocessing.active_children():
            raise RuntimeError("the processor time of living child processes is not counted")
        if not sys.stdin.readline():
            raise SystemExit
        self.steps, self.began = steps, clocks()

    def answer(self, found: dict[str, Any]) -> None:
        print(json.dumps(found), file=self.answers, flush=True)


def clocks() -> tuple[float, float]:
    """Seconds of the processor, of this process and of children that have ended, and of the clock on the wall."""
    times = os.times()
    return process_time() + times.children_user + times.children_system, perf_counter()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    setting = SimpleNamespace(**json.loads(sys.argv[2]))
    train = runpy.run_path(str(Path(__file__).parent / sys.argv[1]))["train"]
    train(setting, Turn(setting.packages, answers))


if __name__ == "__main__":
    main()
