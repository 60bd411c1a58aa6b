"""What config files say beside their values: line numbers, comments, descriptions, and which file set a value last."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from rlmem.config.paths import conf_dir
from rlmem.errors import UserError

COMMAND_LINE = "command line"
"""The origin of a value that an override set."""


class Leaf(NamedTuple):
    """One value of a file: its dotted path, its text, its line (from 1) and the comment behind it."""

    path: str
    text: str
    line: int
    comment: str


def description(file: Path) -> str:
    """The first comment line that is not a `# @package` directive; empty if there is none."""
    comments = (line[1:].strip() for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@")), "")


def yaml_problem(error: yaml.YAMLError, file: Path | None = None) -> str:
    """Where and why a file is not YAML, in one line; `file` is named if the error does not name one."""
    mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return f"{file or 'a config file'}: cannot be read as YAML ({' '.join(str(error).split())})"
    where = f"{file or mark.name}:{mark.line + 1}"
    return f"{where}: cannot be read as YAML ({why}); check the indentation and the quotes there"


def leaves(file: Path, package: str = "") -> list[Leaf]:
    """Every value of a file in order; lists and empty mappings count as values. Raises UserError if it is not YAML.

    package: the dotted path of the file's mapping in the whole configuration
    """
    text = file.read_text(encoding="utf-8")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UserError(yaml_problem(error, file)) from error
    return list(_walk(root, f"{package}." if package else "", text.splitlines())) if root else []


def _walk(node: yaml.Node, prefix: str, lines: list[str]) -> Iterator[Leaf]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _walk(value, f"{path}.", lines)
            continue
        start, end, text, comment = value.start_mark, value.end_mark, "...", ""
        if start.line == end.line:
            text = lines[start.line][start.column : end.column]
            comment = lines[start.line][end.column :].partition("#")[2].strip()
        yield Leaf(path, text, start.line + 1, comment)


def sources(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """Dotted path -> `conf/algo/ppo.yaml:7`, for (package, file) pairs in the order they are merged."""
    root = conf_dir().parent
    shown = lambda file: file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)  # noqa: E731
    return {leaf.path: f"{shown(file)}:{leaf.line}" for package, file in files for leaf in leaves(file, package)}


def lookup(path: str, origins: dict[str, str]) -> str | None:
    """The origin of a value, or else of the nearest mapping around it or the last value in it that has one."""
    parts = path.split(".")
    around = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    inside = (origin for name, origin in reversed(origins.items()) if name.startswith(f"{path}."))
    return next((origins[name] for name in around if name in origins), next(inside, None))


def hint(path: str, files: Iterable[tuple[str, Path]]) -> str | None:
    """The `e.g. ...` of the comment beside a value, such as the one that says what a required key may be."""
    comments = (leaf.comment for package, file in files for leaf in leaves(file, package) if leaf.path == path)
    return next((comment.partition("e.g. ")[2] for comment in comments if "e.g. " in comment), None)
