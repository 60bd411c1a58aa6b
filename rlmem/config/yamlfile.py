"""What config files say beside their values: line numbers, comments, descriptions, and which file set a value last."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from rlmem.config.paths import display
from rlmem.errors import UserError

COMMAND_LINE = "command line"
"""The origin of a value that an override set."""


@dataclass(frozen=True)
class Leaf:
    """One value of a file: its dotted path, its text, its line (from 1) and the comment behind it."""

    path: str
    text: str
    line: int
    comment: str


def description(file: Path) -> str:
    """The first comment line that is not a `# @package` directive; empty if there is none."""
    for line in file.read_text(encoding="utf-8").splitlines():
        comment = line.removeprefix("#").strip()
        if line.startswith("#") and not comment.startswith("@"):
            return comment
    return ""


def yaml_problem(error: yaml.YAMLError, file: Path | None = None) -> str:
    """Where and why a file is not YAML, in one line; `file` is named if the error does not name one."""
    mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return f"{file or 'a config file'}: cannot be read as YAML ({' '.join(str(error).split())})"
    where = f"{file or mark.name}:{mark.line + 1}"
    return f"{where}: cannot be read as YAML ({why}); check the indentation and the quotes there"


def leaves(file: Path) -> list[Leaf]:
    """Every value of a file in order; lists and empty mappings count as values. Raises UserError if it is not YAML."""
    text = file.read_text(encoding="utf-8")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UserError(yaml_problem(error, file)) from error
    return list(_walk(root, "", text.splitlines())) if root else []


def _walk(node: yaml.Node, prefix: str, lines: list[str]) -> Iterator[Leaf]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _walk(value, f"{path}.", lines)
        else:
            yield _leaf(path, value, lines)


def _leaf(path: str, value: yaml.Node, lines: list[str]) -> Leaf:
    start, end = value.start_mark, value.end_mark
    same_line = start.line == end.line
    text = lines[start.line][start.column : end.column] if same_line else "..."
    comment = lines[start.line][end.column :].partition("#")[2].strip() if same_line else ""
    return Leaf(path, text, start.line + 1, comment)


def sources(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """Dotted path -> `conf/algo/ppo.yaml:7`, for (package, file) pairs in the order they are merged."""
    return {path: f"{display(file)}:{leaf.line}" for path, file, leaf in _placed_leaves(files)}


def lookup(path: str, origins: Mapping[str, str]) -> str | None:
    """The origin of a value, or else of the nearest mapping around it or the last value in it that has one."""
    around = path
    while around:
        if around in origins:
            return origins[around]
        around = around.rpartition(".")[0]
    return ([None] + [origin for inside, origin in origins.items() if inside.startswith(f"{path}.")])[-1]


def hint(path: str, files: Iterable[tuple[str, Path]]) -> str | None:
    """The `e.g. ...` of the comment beside a value, such as the one that says what a required key may be."""
    comments = (leaf.comment for found, _, leaf in _placed_leaves(files) if found == path)
    return next((comment.partition("e.g. ")[2] for comment in comments if "e.g. " in comment), None)


def _placed_leaves(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, Path, Leaf]]:
    """Every value of (package, file) pairs with its dotted path in the whole configuration."""
    for package, file in files:
        for leaf in leaves(file):
            yield f"{package}.{leaf.path}" if package else leaf.path, file, leaf
