"""The command line: `rlmem VERB [flags] [key=value ...]`. Each verb is a file of this package; see `toolkit`."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rlmem.commands.toolkit import Parser, module_of
from rlmem.config.messages import mistake, nearest
from rlmem.core import command


def _purpose(file: Path) -> str:
    """The purpose of the command of a file, which is behind the colon in its first line; "" for another file."""
    with file.open(encoding="utf-8") as lines:
        return lines.readline().strip('".\n').partition("`rlmem ")[2].partition(": ")[2]


VERBS = {
    file.stem.replace("_", "-"): purpose
    for file in sorted(Path(__file__).parent.glob("*.py"))
    if (purpose := _purpose(file))
}
"""The commands, with what each is for."""

HELP = """\
rlmem: memory in partially observable reinforcement learning.

usage: rlmem COMMAND [flags] [key=value ...]

{verbs}

  rlmem COMMAND --help explains a command. --version prints the version; --debug shows tracebacks;
  --completion bash (zsh, fish, ...) prints a script for the shell, e.g. eval "$(rlmem --completion bash)".

examples:
  rlmem train memory=ffm env=repeat_previous
  rlmem train -m memory=ffm,gru seed=0,1,2
  rlmem list env""".format(verbs="\n".join(f"  {verb:<14} {text}" for verb, text in VERBS.items()))


NOT_TRAINING = ("--dry-run", "--show", "status")
"""Arguments with which a command that trains only prints, besides --help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without `argv`, it is this process, whose signals are handled, too.

    A command with TRAINS continues if its output cannot be written, since every run has its own log; one with PRINTS
    ends when its output is not read.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    action, verb, debug = partial(_dispatch, arguments), _verb(arguments), "--debug" in arguments
    if argv is not None:
        return command.exit_code(action, debug)
    module = module_of(verb) if verb in VERBS else None
    trains, prints = getattr(module, "TRAINS", False), getattr(module, "PRINTS", False)
    if trains and not any(argument in NOT_TRAINING or _asks_for_help(argument) for argument in arguments):
        return command.run_training(action, debug)
    return command.run_printing(action, trains or prints, debug)


def _asks_for_help(argument: str) -> bool:
    """--help, -h, or an h among short flags."""
    return argument == "--help" or (argument[:1] == "-" and argument[1:].isalnum() and "h" in argument)


def _verb(arguments: Sequence[str]) -> str | None:
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def _dispatch(arguments: list[str]) -> int:
    wants_help, verb = any(map(_asks_for_help, arguments)), _verb(arguments)
    if verb in VERBS:
        arguments.remove(verb)
        parser = Parser(verb, arguments)
        if not wants_help:
            return parser.call(arguments)
        parser.print_help()
        if verb in ("train", "config"):
            from rlmem.config.catalog import train_help

            command.show(f"\n{train_help(arguments)}")
        return 0
    if wants_help or not arguments:
        command.show(HELP)
    elif arguments[0] == "--completion":
        command.show(completion(" ".join(arguments[1:])))
    elif "--version" in arguments:
        from rlmem import __version__

        command.show(f"rlmem {__version__}")
    else:
        wrong, example = verb or arguments[0], "rlmem train memory=ffm"
        raise mistake(wrong, "no such command", near=nearest(wrong, VERBS), accepted=VERBS, example=example)
    return 0


def completion(shell: str) -> str:
    """A script that completes commands, flags, options of groups and paths in a shell; UserError for an unknown one.

    shell: bash, zsh, or another of shtab's
    """
    import shtab

    from rlmem.config.catalog import catalog

    if shell not in shtab.SUPPORTED_SHELLS:
        known, example = shtab.SUPPORTED_SHELLS, 'eval "$(rlmem --completion bash)"'
        where = f"--completion {shell}".strip()
        raise mistake(where, "no such shell", near=nearest(shell, known), accepted=known, example=example)
    groups = {group: options for group, options in catalog().items() if group not in ("experiment", "launcher")}
    parser = argparse.ArgumentParser("rlmem", add_help=False)
    for flag in ("--help", "--version", "--debug"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--completion", choices=shtab.SUPPORTED_SHELLS)
    commands = parser.add_subparsers()
    for verb, purpose in VERBS.items():
        for action in commands.add_parser(verb, parents=[Parser(verb)], add_help=False, help=purpose)._actions:
            if action.metavar == "key=value" or (verb in ("sweep", "population") and action.metavar == "WHAT"):
                action.choices = [f"{group}={option}" for group, names in groups.items() for option in names]
            elif verb == "list" and action.metavar == "GROUP":
                action.choices = [*groups, "experiment", "claim", "metric"]
            elif action.metavar in ("RUN", "DIR"):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)
