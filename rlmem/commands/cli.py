"""The command line: `rlmem VERB [flags] [key=value ...]`. Each verb is a module, which imports what is heavy."""

import sys
from collections.abc import Sequence
from functools import partial

from rlmem.system import command
from rlmem.system.command import show

VERBS = {
    "train": "train one agent, or with -m one per combination of values",
    "eval": "play episodes with the agent of a run",
    "export": "write the agent of a run to one file, for programs without rlmem",
    "push": "write the agent of a run to the Hugging Face Hub",
    "pull": "download an agent from the Hugging Face Hub, as a run",
    "dataset": "record episodes to a file, import such files, and describe them",
    "analyze": "look into the agent of a run",
    "profile": "draw what a memory can hold, for how long, and how often rewritten",
    "sweep": "train many agents; after an interruption, the same command continues",
    "reproduce": "run a table or figure of a paper, and judge the result",
    "report": "write one page about reproductions, sweeps and runs",
    "verify-results": "recompute published results from their data",
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


TRAINING = ("train", "resume", "sweep", "population", "reproduce", "profile")
"""Commands that train. They continue if their output cannot be written: every run has its own log."""

NOT_TRAINING = ("--dry-run", "--show", "status")
"""Arguments with which such a command only prints, besides --help."""

PRINTING = ("list", "config", "check", "play")
"""Commands that only print. They end when their output is not read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without `argv`, it is this process, whose signals are handled, too."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    action, verb, debug = partial(_dispatch, arguments), _verb(arguments), "--debug" in arguments
    if argv is not None:
        return command.exit_code(action, debug)
    prints = any(argument in NOT_TRAINING or _asks_for_help(argument) for argument in arguments)
    if verb in TRAINING and not prints:
        return command.run_training(action, debug)
    return command.run_printing(action, verb in (*PRINTING, *TRAINING), debug)


def _asks_for_help(argument: str) -> bool:
    """--help, -h, or an h among short flags."""
    return argument == "--help" or (argument[:1] == "-" and argument[1:].isalnum() and "h" in argument)


def _verb(arguments: Sequence[str]) -> str | None:
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def module_of(verb: str) -> str:
    """The name of the module of a command."""
    return f"rlmem.commands.{verb.replace('-', '_')}"


def _dispatch(arguments: list[str]) -> int:
    from importlib import import_module

    from rlmem.config.messages import mistake, nearest

    wants_help, verb = any(map(_asks_for_help, arguments)), _verb(arguments)
    if verb in VERBS:
        arguments.remove(verb)
        module = import_module(module_of(verb))
        if not wants_help:
            return module.run(module.PARSER.parse_intermixed_args(arguments)) or 0
        module.PARSER.print_help()
        if verb in ("train", "config"):
            from rlmem.config.catalog import train_help

            show(f"\n{train_help(arguments)}")
        return 0
    if wants_help or not arguments:
        show(HELP)
    elif arguments[0] == "--completion":
        from rlmem.commands.completion import script

        show(script(" ".join(arguments[1:]), VERBS))
    elif "--version" in arguments:
        from rlmem import __version__

        show(f"rlmem {__version__}")
    else:
        wrong, example = verb or arguments[0], "rlmem train memory=ffm"
        raise mistake(wrong, "no such command", near=nearest(wrong, VERBS), accepted=VERBS, example=example)
    return 0
