"""The command line: `rlmem VERB [flags] [key=value ...]`.

A verb is a module of `rlmem.commands`; everything heavy (Hydra, torch) is imported by the verb that needs it, and
nearly everything else once signals are taken care of. A user's mistake is one line each on stderr and exit code 2;
what broke a run from outside is one line and 1; a bug of the program keeps its traceback and exits with 1. A command
that trains, and that a signal stopped, exits with 130 (Ctrl-C) or 75 (others).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from rlmem.errors import Fault, UserError, printable
from rlmem.system import signals

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


TRAINING = ("train", "resume", "sweep", "population", "reproduce")
"""Commands that train. They go on when their output cannot be written: every run has its own log."""

NOT_TRAINING = ("--dry-run", "--show", "status")
"""Arguments with which such a command only prints; so does a request for help."""

PRINTING = ("list", "config", "check", "play")
"""Commands that only print. They end when nobody reads their output."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Without `argv` the command is that of this process, whose signals and standard streams it then takes over to the
    very end. With `argv` this is a function like any other.
    """
    if argv is not None:
        return _run(list(argv))
    arguments = sys.argv[1:]
    prints = any(argument in NOT_TRAINING or _asks_for_help(argument) for argument in arguments)
    if prints or _verb(arguments) not in TRAINING:
        return _run_to_print(arguments)
    requests = signals.Requests(of_command=True)
    try:
        signals.take_over(requests)
        from rlmem.system import output

        output.protect(ends=False)
        return requests.ends_with(_run(arguments))
    except BaseException:
        if not requests.raised:
            raise
        return requests.ends_with(1)


def _run_to_print(arguments: list[str]) -> int:
    """Run a command for its output: without that it has failed, unless its reader, such as `head`, has seen enough."""
    from rlmem.system import output

    verb = _verb(arguments)
    output.protect(ends=verb in PRINTING or verb in TRAINING)
    try:
        code = _run(arguments)
    except output.Unread:
        code = 0
    if (lost := output.printed()) and code == 0:
        print(f"rlmem: failed: the output cannot be written ({lost})", file=sys.stderr)
        return 1
    return code


def _run(arguments: list[str]) -> int:
    """Run one command; what ends it early is one line on stderr, and a code."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a `_target_` may name a module of the current folder
    try:
        return _dispatch(arguments)
    except UserError as error:
        _print_traceback(arguments)
        for problem in error.problems:
            print(f"rlmem: error: {problem}", file=sys.stderr)
        return 2
    except Fault as error:
        _print_traceback(arguments)
        print(f"{error.traceback}rlmem: failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        print(f"rlmem: {str(error) or 'interrupted'}", file=sys.stderr)
        return getattr(error, "code", 130)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # that of a path which somebody typed
            raise
        from rlmem.config.messages import brief

        print(f"rlmem: error: {brief(printable(str(error.filename)))}: {error.strerror}", file=sys.stderr)
        return 2


def _print_traceback(arguments: list[str]) -> None:
    """The traceback of what is being handled, for who asks for it."""
    if "--debug" in arguments:
        import traceback

        traceback.print_exc()


def _asks_for_help(argument: str) -> bool:
    """--help, -h, or an h among other letters."""
    return argument == "--help" or (argument[:1] == "-" and argument[1:].isalnum() and "h" in argument)


def _verb(arguments: Sequence[str]) -> str | None:
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def _dispatch(arguments: list[str]) -> int:
    from importlib import import_module

    from rlmem.config.messages import nearest, sentence

    wants_help = any(map(_asks_for_help, arguments))
    verb = _verb(arguments)
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
