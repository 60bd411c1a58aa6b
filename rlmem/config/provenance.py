"""Where each value came from: the file and line that set it last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rlmem.config.paths import display
from rlmem.config.yamlfile import Leaf, leaves

COMMAND_LINE = "command line"


def sources(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """Dotted path -> `conf/algo/ppo.yaml:7`, for (package, file) pairs in the order they are merged."""
    return {path: f"{display(file)}:{leaf.line}" for path, file, leaf in _leaves(files)}


def lookup(path: str, origins: Mapping[str, str]) -> str | None:
    """The origin of a value, of the nearest mapping around it that was set as a whole, or of the last value in it."""
    around = path
    while around:
        if around in origins:
            return origins[around]
        around = around.rpartition(".")[0]
    return ([None] + [origin for inside, origin in origins.items() if inside.startswith(f"{path}.")])[-1]


def hint(path: str, files: Iterable[tuple[str, Path]]) -> str | None:
    """The `e.g. ...` of the comment beside a value, such as the one that says what a required key may be."""
    comments = (leaf.comment for found, _, leaf in _leaves(files) if found == path)
    return next((comment.partition("e.g. ")[2] for comment in comments if "e.g. " in comment), None)


def _leaves(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, Path, Leaf]]:
    """Every value of (package, file) pairs with its dotted path in the whole configuration."""
    for package, file in files:
        for leaf in leaves(file):
            yield f"{package}.{leaf.path}" if package else leaf.path, file, leaf
