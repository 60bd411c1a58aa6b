"""Scripts that complete commands, flags, options of groups and paths in a shell (`rlmem --completion bash`)."""

import argparse
from collections.abc import Mapping

from rlmem.commands.toolkit import Parser
from rlmem.config.messages import mistake, nearest


def script(shell: str, verbs: Mapping[str, str]) -> str:
    """The completion script of a shell. Raises UserError for one that is not known.

    shell: bash, zsh, or another of shtab's
    verbs: the commands, with what each is for
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
    for verb, purpose in verbs.items():
        for action in commands.add_parser(verb, parents=[Parser(verb)], add_help=False, help=purpose)._actions:
            if action.metavar == "key=value" or (verb in ("sweep", "population") and action.metavar == "WHAT"):
                action.choices = [f"{group}={option}" for group, found in groups.items() for option in found]
            elif verb == "list" and action.metavar == "GROUP":
                action.choices = [*groups, "experiment", "claim", "metric"]
            elif action.metavar in ("RUN", "DIR"):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)
