"""A page for every command, from its argparse parser."""

import argparse
import re

from reference.markdown import Page, cell, code, fence, prose, sections, table
from rlmem.commands.cli import VERBS
from rlmem.commands.toolkit import Parser

UP = "../../"


def pages() -> dict[str, Page]:
    every = {f"reference/commands/{verb}.md": page(verb, purpose) for verb, purpose in VERBS.items()}
    return {"reference/commands/index.md": index()} | every


def index() -> Page:
    listed = [(f"[`rlmem {verb}`]({verb}.md)", prose(text, UP)) for verb, text in VERBS.items()]
    beside = [
        ("`rlmem COMMAND --help`", "explains a command"),
        ("`rlmem --version`", "prints the version"),
        ("`--debug`", "shows the traceback of a mistake, with every command"),
        ("`rlmem --completion bash`", "prints a script that completes words in a shell: bash, zsh, fish and others"),
    ]
    said = (
        "A mistake is one line on stderr and exit code 2, with nothing written. A run that fails while it trains, such "
        "as one whose loss is not finite, ends with exit code 1."
    )
    text = sections("# Commands", table(("command", ""), listed), said, ("Flags", table(("", ""), beside)))
    return Page(text, "rlmem/commands/cli.py")


def page(verb: str, purpose: str) -> Page:
    parser: Parser = Parser(verb)
    groups = [(group.title or "", group._group_actions) for group in parser._action_groups]
    known = {"positional arguments": "Arguments", "options": "Flags"}
    parts = [(known.get(title, title.capitalize()), arguments(found)) for title, found in groups]
    examples = (parser.epilog or "").partition("\n")[2]
    text = sections(
        f"# rlmem {verb}",
        described(parser.description or f"{purpose[0].upper()}{purpose[1:]}."),
        fence(usage(parser)),
        *parts,
        ("Examples", fence("\n".join(line.strip() for line in examples.splitlines())) if examples else ""),
        (
            "Keys",
            "`key=value` sets keys of the [configuration](../config/index.md).",
        )
        if any(
            action.dest in ("overrides", "what") and "key=value" in str(action.metavar) for action in parser._actions
        )
        else "",
    )
    return Page(text, f"rlmem/commands/{verb}.py")


def described(text: str) -> str:
    """A description as Markdown; its indented lines are a table of their own."""
    return re.sub(r"(?:^  .*\n?)+", lambda lines: f"\n{fence(lines[0])}\n", prose(text, UP), flags=re.MULTILINE)


def usage(parser: Parser) -> str:
    """The usage line, as wide as a narrow page."""
    formatter = argparse.HelpFormatter(parser.prog, width=80)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help()


def arguments(actions: list[argparse.Action]) -> str:
    """What a parser accepts, with what each argument means."""
    listed = []
    for action in actions:
        shown = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
        value = "" if action.nargs == 0 else f" {shown}"
        names = [f"{name}{value}" for name in action.option_strings] or [str(shown)]
        listed.append((", ".join(code(cell(name)) for name in names), cell(action.help or "")))
    return table(("", ""), listed)
