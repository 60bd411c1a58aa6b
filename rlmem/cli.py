"""The command line: `rlmem VERB [flags] [key=value ...]`.

A verb is a module of `rlmem.commands`; everything heavy (Hydra, torch) is imported by the verb that needs it. A user's
mistake is one line each on stderr and exit code 2; what broke a run from outside is one line and 1; a bug of the
program keeps its traceback and exits with 1. A run that a signal stopped exits with 130 (Ctrl-C) or 75 (others).
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from rlmem.config.messages import brief, nearest, sentence
from rlmem.errors import Fault, UserError, printable

VERBS = {
    "train": "train one agent, or with -m one per combination of values",
    "eval": "play episodes with the agent of a run",
    "dataset": "record episodes to a file, import such files, and describe them",
    "analyze": "look into the agent of a run",
    "sweep": "train many agents; none is lost, and the same command goes on",
    "reproduce": "run a table or figure of a paper, and judge it",
    "report": "write one page about reproductions, sweeps and runs",
    "plot": "draw learning curves",
    "resume": "continue a run from its latest checkpoint",
    "population": "train agents side by side that copy the weights of better ones",
    "sync": "upload runs to Weights & Biases from their directories",
    "play": "play an environment in the terminal, or watch its oracle",
    "list": "show the memories, environments and other options",
    "config": "show a composed configuration and where every value came from",
    "bench": "measure speed",
    "check": "measure whether a memory keeps the contract of memories",
}
"""The commands, each a module of `rlmem.commands`, with what it is for."""

HELP = """\
rlmem: memory in partially observable reinforcement learning.

usage: rlmem COMMAND [flags] [key=value ...]

{verbs}

  rlmem COMMAND --help explains a command. --version prints the version; --debug shows tracebacks.

examples:
  rlmem train memory=ffm env=repeat_previous
  rlmem train -m memory=ffm,gru seed=0,1,2
  rlmem list env""".format(verbs="\n".join(f"  {verb:<10} {text}" for verb, text in VERBS.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a `_target_` may name a module of the current folder
    try:
        return _dispatch(arguments)
    except UserError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        for problem in error.problems:
            print(f"rlmem: error: {problem}", file=sys.stderr)
        return 2
    except Fault as error:
        if "--debug" in arguments:
            traceback.print_exc()
        print(f"{error.traceback}rlmem: failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        print(f"rlmem: {str(error) or 'interrupted'}", file=sys.stderr)
        return getattr(error, "code", 130)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # that of a path which somebody typed
            raise
        print(f"rlmem: error: {brief(printable(str(error.filename)))}: {error.strerror}", file=sys.stderr)
        return 2


def _dispatch(arguments: list[str]) -> int:
    wants_help = any(re.fullmatch(r"--help|-\w*h\w*", argument) for argument in arguments)
    verb = next((argument for argument in arguments if not argument.startswith("-")), None)
    if verb in VERBS:
        arguments.remove(verb)
        command = import_module(f"rlmem.commands.{verb}")
        if not wants_help:
            return command.run(command.parser().parse_intermixed_args(arguments))
        command.parser().print_help()
        if verb in ("train", "config"):
            from rlmem.config.catalog import train_help

            print(f"\n{train_help(arguments)}")
        return 0
    if wants_help or not arguments:
        print(HELP)
        return 0
    if "--version" in arguments:
        from rlmem import __version__

        print(f"rlmem {__version__}")
        return 0
    wrong = verb or arguments[0]
    raise UserError(
        sentence(
            wrong,
            "no such command",
            near=nearest(wrong, VERBS),
            accepted=VERBS,
            example="rlmem train memory=ffm",
        )
    )
