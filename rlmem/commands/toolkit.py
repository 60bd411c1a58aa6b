"""What the commands share: a parser with examples, and keeping stdout for results."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError


class Parser(argparse.ArgumentParser):
    """argparse with examples, whose errors are UserErrors."""

    def __init__(self, verb: str, description: str, *examples: str) -> None:
        super().__init__(
            prog=f"rlmem {verb}",
            description=description,
            epilog="\n".join(["examples:", *(f"  rlmem {verb} {example}".rstrip() for example in examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--debug", action="store_true", help="show the traceback of a mistake too")

    def add_overrides(self, help: str) -> None:
        self.add_argument("overrides", nargs="*", metavar="key=value", help=help)

    def add_run(self) -> None:
        self.add_argument("run", type=Path, metavar="RUN", help="a run directory")
        self.add_trust()

    def add_trust(self) -> None:
        """For what was made by another user: whether the code that it names may be run."""
        self.add_argument("--trust", action="store_true", help="run the code that somebody else's directory names")

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2]
        near = nearest(unknown.partition(" ")[0], self._option_string_actions) if unknown else []
        raise UserError(sentence(self.prog, message, near=near, example=f"{self.prog} --help"))


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Keep stdout for the result: libraries print there, PyBullet even from C."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def integer_from(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return integer


def out_file(text: str) -> Path:
    """The path of a file to write, which no directory has."""
    path = Path(text)
    if not path.name or path.name == ".." or path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file to write, got {text!r}{', a directory' if text else ''}")
    return path


def device_list(text: str) -> tuple[str, ...]:
    devices = tuple(text.split(","))
    if "" in devices:
        raise argparse.ArgumentTypeError(f"expected numbers or names as in CUDA_VISIBLE_DEVICES, got {text!r}")
    return devices
