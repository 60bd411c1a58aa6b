"""What the commands share: the parser that is made of a command's function, kinds of arguments, stdout for results.

A command is a file of this package. Its first line is shown by `rlmem --help`; its function `run` has an argument for
each of the command, keywords being flags, and the docstring of `run` is what `rlmem COMMAND --help` shows.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn

from rlmem.config.messages import mistake, nearest, shell
from rlmem.core.declared import Declared, add_options, integer_from, read
from rlmem.core.errors import UserError

NOT_FLAGS = ("debug", "again")
"""Arguments of a `run` that are not made of a flag: of --debug, which all commands have, and of all that was typed."""


class Parser(argparse.ArgumentParser):
    """argparse with examples, whose errors are UserErrors.

    verb: the command
    words: what is typed after it, on which the flags of `rlmem analyze` depend
    """

    def __init__(self, verb: str, words: Sequence[str] = ()) -> None:
        self.verb, self.module = verb, module_of(verb)
        declared = _declared(self.module, "run")
        self.names = {option.name: option.kind for option in declared.options}
        epilog = "\n".join(["examples:", *(f"  rlmem {verb} {example}".rstrip() for example in declared.examples)])
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(f"rlmem {verb}", None, declared.description, epilog, formatter_class=raw, allow_abbrev=False)
        self.add_argument("--debug", action="store_true", help="show the traceback of a mistake too")
        kinds = KINDS | kinds_of(self.module)
        for option in declared.options:
            if option.name not in NOT_FLAGS:
                of_pool = option.kind == "PoolFlags"
                options = _declared(sys.modules[__name__], option.kind).options if of_pool else [option]
                add_options(self, options, kinds)
        if extend := getattr(self.module, "extend", None):
            extend(self, words)

    def call(self, words: Sequence[str]) -> int:
        """Run the command; returns its exit code."""
        values = vars(self.parse_intermixed_args(words))
        values["again"] = shell("rlmem", self.verb, *(word for word in words if word != "--retry-failed"))
        if "pool" in self.names:
            values["pool"] = PoolFlags(**{name: values.pop(name) for name in PoolFlags.__dataclass_fields__})
        for name in set(NOT_FLAGS) - set(self.names):
            del values[name]
        return self.module.run(**values) or 0

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2]
        near = nearest(unknown.partition(" ")[0], self._option_string_actions) if unknown else []
        raise mistake(self.prog, message, near=near, example=f"{self.prog} --help")


def module_of(verb: str) -> ModuleType:
    """The module of a command."""
    return import_module(f"rlmem.commands.{verb.replace('-', '_')}")


def _declared(module: ModuleType, name: str) -> Declared:
    declared = read(Path(module.__file__ or ""), name)
    assert declared is not None, f"{module.__name__} has no {name}"
    return declared


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
    """Numbers or names of GPUs with commas between them."""
    devices = tuple(text.split(","))
    if "" in devices:
        raise argparse.ArgumentTypeError(f"expected numbers or names as in CUDA_VISIBLE_DEVICES, got {text!r}")
    return devices


class Kind:
    """How argparse reads an argument: keywords of its `add_argument`."""

    def __init__(self, **how: Any) -> None:
        self.how = how


# Kinds of arguments: annotations that say how the words of a command line are read.
Count = Annotated[int, Kind(type=integer_from(1), metavar="N")]
Natural = Annotated[int, Kind(type=integer_from(0), metavar="N")]
Several = Annotated[int, Kind(type=integer_from(2), metavar="N")]
Number = Annotated[float, Kind(type=float, metavar="X")]
Flag = Annotated[bool, Kind(action="store_true")]
Trust = Annotated[bool, Kind(action="store_true", help="run the code that another user's directory names")]
Text = Annotated[str, Kind(metavar="TEXT")]
Words = Annotated[Sequence[str], Kind(nargs="*")]
SomeWords = Annotated[Sequence[str], Kind(nargs="+")]
Overrides = Annotated[Sequence[str], Kind(nargs="*", metavar="key=value")]
Repeated = Annotated[Sequence[str], Kind(action="append", default=[])]
Names = Annotated[Sequence[str], Kind(type=lambda text: text.split(","), metavar="A,B")]
Seeds = Annotated[Sequence[int], Kind(type=integers, metavar="SEEDS")]
Devices = Annotated[tuple[str, ...], Kind(type=device_list, metavar="0,1")]
Dir = Annotated[Path, Kind(type=Path, metavar="DIR")]
OutFile = Annotated[Path, Kind(type=out_file, metavar="FILE")]
Folders = Annotated[Sequence[Path], Kind(nargs="+", type=folder, metavar="DIR")]
Run = Annotated[Path, Kind(type=Path, metavar="RUN", help="a run directory")]
Step = Annotated[
    int | str | None,
    Kind(
        type=lambda text: text if text == "best" else integer_from(0)(text),
        metavar="T",
        help="the checkpoint of this step, or best: the agent of the best evaluation (the newest); also as RUN@T",
    ),
]


@dataclass(frozen=True)
class PoolFlags:
    """Processes at once, and where they run: flags of the commands that train many agents.

    jobs: processes at once (cores / threads of one)
    gpus: GPUs to spread the processes over
    per_gpu: processes at once on each of --gpus (1)
    retry_failed: give what failed all its attempts again
    """

    jobs: Count | None = None
    gpus: Devices = ()
    per_gpu: Count | None = None
    retry_failed: Flag = False
    trust: Trust = False

    def options(self, **more: Any) -> Any:
        """The `rlmem.jobs.pool.Options` of these flags and of `more`."""
        if self.per_gpu and not self.gpus:
            raise UserError(f"--per-gpu {self.per_gpu}: needs --gpus; e.g. --gpus 0,1 --per-gpu 2")
        from rlmem.jobs.pool import Options

        return Options(
            self.jobs, self.gpus, self.per_gpu or 1, retry_failed=self.retry_failed, trust=self.trust, **more
        )


def kinds_of(module: ModuleType) -> dict[str, Mapping[str, Any]]:
    """Name of a kind -> how argparse reads an argument that is annotated with it, of a module."""
    return {name: it.__metadata__[0].how for name, it in vars(module).items() if hasattr(it, "__metadata__")}


KINDS = kinds_of(sys.modules[__name__])
"""The kinds that all commands know."""


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


def refuse_changes(folder: Path, parts: str, flags: Mapping[str, Any], others: Sequence[str] = ()) -> None:
    """Raise UserError if any of these `flags` or `others` is given: the jobs or agents of a directory are fixed."""
    if words := [*others, *(f"--{flag.replace('_', '-')}" for flag, value in flags.items() if value)]:
        example = f"rlmem {'sweep' if parts == 'jobs' else 'population'} {shell(folder)}"
        raise mistake(words[0], f"{folder} already says what its {parts} are", example=example)


def directory_of_status(verb: str, words: Sequence[str], example: str) -> Path:
    """The one directory of `rlmem VERB status DIR`."""
    if len(words) != 1:
        raise mistake(f"rlmem {verb} status", "expected one directory", example=f"rlmem {verb} status {example}")
    return Path(words[0])
