"""Docstrings taken apart: prose with its equations, and what each argument means."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

ARGUMENT = re.compile(r"(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*): +(?P<text>\S.*)")
"""A line `name: meaning` or `name, name: meaning` at the left margin; lines that continue it are indented."""


class Docstring(NamedTuple):
    """The prose of a docstring as Markdown, and name of an argument -> its meaning in one line."""

    prose: str
    arguments: dict[str, str]


def parsed(text: str) -> Docstring:
    """Take a docstring apart."""
    lines: list[str] = []
    arguments: dict[str, str] = {}
    inside: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        if found := ARGUMENT.fullmatch(line):
            inside = found["names"].split(", ")
            arguments |= dict.fromkeys(inside, found["text"])
        elif inside and line.startswith("    "):
            for name in inside:
                arguments[name] += f" {line.strip()}"
        else:
            inside = []
            lines.append(line)
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip(), arguments)


def docstring(thing: Any) -> Docstring:
    """The docstring of a class or function itself, empty if it has none."""
    return parsed(thing.__dict__.get("__doc__") or "" if inspect.isclass(thing) else thing.__doc__ or "")


def meanings(thing: Any) -> dict[str, str]:
    """Name of an argument -> its meaning, also from the docstrings of the classes that a class derives from."""
    return {name: text for one in reversed(list(family(thing))) for name, text in docstring(one).arguments.items()}


def family(thing: Any) -> Iterator[Any]:
    """A class and those of rlmem that it derives from, nearest first; or a function."""
    if not inspect.isclass(thing):
        yield thing
        return
    for one in thing.__mro__:
        if one.__module__.partition(".")[0] in ("rlmem", "rlmem_envs"):
            yield one
