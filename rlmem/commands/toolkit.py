"""What the commands share: a parser with examples, and keeping stdout for results."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rlmem.config.messages import mistake, nearest, shell
from rlmem.errors import UserError

Arguments = argparse.Namespace
"""The arguments of a command line, as its parser has read them."""


class Parser(argparse.ArgumentParser):
    """argparse with examples, whose errors are UserErrors."""

    def __init__(self, verb: str, description: str, *examples: str) -> None:
        epilog = "\n".join(["examples:", *(f"  rlmem {verb} {example}".rstrip() for example in examples)])
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(f"rlmem {verb}", None, description, epilog, formatter_class=raw, allow_abbrev=False)
        self.add_argument("--debug", action="store_true", help="show the traceback of a mistake too")

    def add_overrides(self, help: str) -> None:
        self.add_argument("overrides", nargs="*", metavar="key=value", help=help)

    def add_run(self) -> None:
        self.add_argument("run", type=Path, metavar="RUN", help="a run directory")
        self.add_trust()

    def add_trust(self) -> None:
        self.add_argument("--trust", action="store_true", help="run the code that another user's directory names")

    def add_step(self) -> None:
        which = "the checkpoint of this step, or best: the agent of the best evaluation (the newest); also as RUN@T"
        read = lambda text: text if text == "best" else integer_from(0)(text)  # noqa: E731
        self.add_argument("--step", type=read, metavar="T", help=which)

    def add_pool(self, jobs: str, job: str) -> None:
        """How many processes run at once, and where; `jobs` is the command's word for their work."""
        one, again = integer_from(1), f"give failed {jobs} all their attempts again"
        self.add_argument("--jobs", type=one, metavar="N", help=f"{jobs} at once (cores / threads of {job})")
        self.add_argument("--gpus", type=device_list, default=(), metavar="0,1", help=f"GPUs to spread the {jobs} over")
        self.add_argument("--per-gpu", type=one, metavar="N", help=f"{jobs} at once on each of --gpus (1)")
        self.add_argument("--retry-failed", action="store_true", help=again)

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2]
        near = nearest(unknown.partition(" ")[0], self._option_string_actions) if unknown else []
        raise mistake(self.prog, message, near=near, example=f"{self.prog} --help")


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


def integers(text: str) -> tuple[int, ...]:
    """Integers of at least 0 with commas between them."""
    return tuple(integer_from(0)(part) for part in text.split(","))


def out_file(text: str) -> Path:
    """The path of a file to write, which must not be a directory."""
    path = Path(text)
    if not path.name or path.name == ".." or path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file to write, got {text!r}{', a directory' if text else ''}")
    return path


def folder(text: str) -> Path:
    """A path. For RUN@step and RUN@best it is that of the run, whose rows all checkpoints share."""
    if os.path.lexists(text):
        return Path(text)
    from rlmem.run.stored import parse_source

    return parse_source(text)[0]


def device_list(text: str) -> tuple[str, ...]:
    devices = tuple(text.split(","))
    if "" in devices:
        raise argparse.ArgumentTypeError(f"expected numbers or names as in CUDA_VISIBLE_DEVICES, got {text!r}")
    return devices


def pool_options(args: Arguments, **more: Any) -> Any:
    """The `rlmem.sweep.run.Options` of the flags of `Parser.add_pool` and of `more`."""
    if args.per_gpu and not args.gpus:
        raise UserError(f"--per-gpu {args.per_gpu}: on which? needs --gpus; e.g. --gpus 0,1 --per-gpu 2")
    from rlmem.sweep.run import Options

    return Options(args.jobs, args.gpus, args.per_gpu or 1, retry_failed=args.retry_failed, trust=args.trust, **more)


def refuse_changes(folder: Path, parts: str, args: Arguments, flags: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise UserError if any of these `flags` or `others` is given: the jobs or agents of a directory are fixed."""
    if given := [*others, *(f"--{flag.replace('_', '-')}" for flag in flags if getattr(args, flag))]:
        example = f"rlmem {'sweep' if parts == 'jobs' else 'population'} {shell(folder)}"
        raise mistake(given[0], f"{folder} already says what its {parts} are", example=example)


def directory_of_status(verb: str, given: Sequence[str], example: str) -> Path:
    """The one directory of `rlmem VERB status DIR`."""
    if len(given) != 1:
        raise mistake(f"rlmem {verb} status", "expected one directory", example=f"rlmem {verb} status {example}")
    return Path(given[0])
