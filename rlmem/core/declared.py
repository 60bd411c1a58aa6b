"""Options of functions and classes, read from their files without importing these, and flags made of them."""

import argparse
import ast
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

OPTION = re.compile(r'^(\w+)(?: (\S+|"[^"]*"))?: (.+(?:\n    .+)*)', re.MULTILINE)
"""A line of a docstring: `name: meaning`, or `name METAVAR: meaning`; further lines are indented."""
REQUIRED = object()
"""The default of an option that must be given."""


class Option(NamedTuple):
    """An argument of a function, or a field of a class.

    kind: its annotation, without `| None`
    nullable: True if None is accepted
    default: its value if it is left out; REQUIRED; or None for one that is no literal
    meaning: text of the docstring, or ""
    metavar: the word after its name in the docstring, which stands for a value, or is a short flag; or ""
    is_flag: False for a positional argument
    """

    name: str
    kind: str
    nullable: bool
    default: Any
    meaning: str
    metavar: str
    is_flag: bool


class Declared(NamedTuple):
    """A function or a class, as its file declares it.

    purpose: the first line of the file
    description: the docstring up to the options
    examples: the lines of the docstring below `Examples:`
    """

    purpose: str
    description: str
    options: tuple[Option, ...]
    examples: tuple[str, ...]


def read(file: Path, name: str) -> Declared | None:
    """The function or class `name` of a file; None if the file has no such thing."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    nodes = (node for node in module.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name)
    if (node := next(nodes, None)) is None:
        return None
    text, _, examples = (ast.get_docstring(node) or "").partition("\nExamples:\n")
    declarations = _declarations(node)
    names = {name for name, *_ in declarations}
    lines = {match[1]: match for match in OPTION.finditer(text) if match[1] in names}
    start = min((match.start() for match in lines.values()), default=len(text))
    options = []
    for name, annotation, default, is_flag in declarations:
        metavar, meaning = lines[name].group(2, 3) if name in lines else ("", "")
        kind, _, none = (ast.unparse(annotation) if annotation else "str").partition(" | ")
        meaning, metavar = re.sub(r"\s+", " ", meaning), metavar or ""
        options.append(Option(name, kind, none == "None", _literal(default), meaning, metavar, is_flag))
    purpose, description = (ast.get_docstring(module) or "").partition("\n")[0], text[:start].strip()
    return Declared(purpose, description, tuple(options), tuple(line.strip() for line in examples.splitlines()))


def _declarations(node: ast.FunctionDef | ast.ClassDef) -> list[tuple[str, ast.expr | None, ast.expr | None, bool]]:
    """Name, annotation, default and `is_flag` of the arguments of a function or the fields of a class."""
    if isinstance(node, ast.ClassDef):
        fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
        return [(ast.unparse(field.target), field.annotation, field.value, True) for field in fields]
    positional, flags, last = node.args.args, node.args.kwonlyargs, node.args.defaults
    defaults = [*[None] * (len(positional) - len(last)), *last, *node.args.kw_defaults]
    pairs = zip([*positional, *flags], defaults, strict=True)
    return [(argument.arg, argument.annotation, default, argument in flags) for argument, default in pairs]


def _literal(default: ast.expr | None) -> Any:
    try:
        return REQUIRED if default is None else ast.literal_eval(default)
    except ValueError:
        return None


def add_options(parser: Any, options: Iterable[Option], kinds: Mapping[str, Mapping[str, Any]]) -> None:
    """Add an argument for each option to a parser of argparse or to a group of it.

    kinds: kind -> the arguments of `add_argument` that read it. `Literal[...]` needs none.
    """
    for option in options:
        choices = option.kind.startswith("Literal[")
        how = {"choices": ast.literal_eval(option.kind[len("Literal") :])} if choices else dict(kinds[option.kind])
        shown = isinstance(option.default, (int, float, str)) and not isinstance(option.default, bool)
        if option.meaning:
            how["help"] = f"{option.meaning}{f' ({option.default})' if shown else ''}".replace("%", "%%")
        if option.metavar and not option.metavar.startswith("-"):
            how["metavar"] = option.metavar
        if not option.is_flag:
            optional = {} if option.default is REQUIRED else {"nargs": "?", "default": option.default}
            parser.add_argument(option.name, **how, **optional)
            continue
        short = [option.metavar] if option.metavar.startswith("-") else []
        if parser.argument_default is None and option.default is not REQUIRED:
            how.setdefault("default", option.default)
        flag = f"--{option.name.replace('_', '-')}"
        parser.add_argument(*short, flag, dest=option.name, required=option.default is REQUIRED, **how)


def integer_from(least: int) -> Callable[[str], int]:
    """A reader of integers that are not below `least`."""

    def integer(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return integer


def _several(read: Callable[[str], Any]) -> dict[str, Any]:
    return {"type": lambda text: tuple(map(read, text.split(","))), "metavar": "A,B"}


PLAIN: dict[str, dict[str, Any]] = {
    "int": {"type": integer_from(1), "metavar": "N"},
    "float": {"type": float, "metavar": "X"},
    "bool": {"action": argparse.BooleanOptionalAction},
    "Path": {"type": Path, "metavar": "PATH"},
    "str": {"metavar": "TEXT"},
    "Sequence[int]": _several(integer_from(1)),
    "Sequence[str]": _several(str),
}
"""Kinds that are types of Python."""
