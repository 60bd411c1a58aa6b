"""Scripts that complete commands, flags, options of groups and paths in a shell (`rlmem --completion bash`)."""

import argparse
from importlib import import_module

import shtab

from rlmem.config.catalog import catalog

WITH_OPTIONS = ("overrides", "what")
"""The positional arguments that take `group=option`, or the name of a group."""


def script(shell: str, verbs: dict[str, str]) -> str:
    """The completion script of one of `shtab.SUPPORTED_SHELLS`, for the commands `verbs` with what each is for."""
    groups = {group: options for group, options in catalog().items() if group not in ("experiment", "launcher")}
    options = [f"{group}={option}" for group, found in groups.items() for option in found]
    parser = argparse.ArgumentParser("rlmem", add_help=False)
    for flag in ("--help", "--version", "--debug"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--completion", choices=shtab.SUPPORTED_SHELLS)
    commands = parser.add_subparsers()
    for verb, purpose in verbs.items():
        own = import_module(f"rlmem.commands.{verb}").PARSER
        added = commands.add_parser(verb, parents=[own], add_help=False, help=purpose)
        for action in added._actions:
            if action.dest in WITH_OPTIONS:
                action.choices = options if action.dest == "overrides" else [*groups, "experiment", "claim"]
            elif action.dest in ("run", "runs", "directory", "dir"):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif action.dest in ("out", "html", "markdown"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)
