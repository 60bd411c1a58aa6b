"""Pages, and the pieces of Markdown that they are made of."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
"""The repository."""
SOURCE = "https://github.com/rlmem/rlmem/blob/main"


@dataclass(frozen=True)
class Page:
    """A generated page.

    text: its Markdown; links are relative to its place on the site
    source: the file of the repository that a reader would edit to change it
    pictures: name -> content of the images beside it
    """

    text: str
    source: str
    pictures: Mapping[str, bytes] = field(default_factory=dict)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table without the columns that are empty in every row; "" if there is no row."""
    texts = [[cell(value) for value in row] for row in rows]
    kept = [k for k in range(len(header)) if any(row[k] for row in texts)]
    lines = [[header[k] for k in kept], ["---"] * len(kept), *([row[k] for k in kept] for row in texts)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if texts and kept else ""


def cell(value: Any) -> str:
    """A value in one line of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(str(value).split()))


def code(value: Any) -> str:
    """Text as code; "" stays empty."""
    return f"`{value}`" if str(value) else ""


def sections(*parts: str | tuple[str, str]) -> str:
    """Texts one below the other, those of (heading, text) under a heading; what is empty is left out."""
    blocks = [f"## {part[0]}\n\n{part[1]}" if isinstance(part, tuple) else part for part in parts if _text(part)]
    return "\n\n".join(blocks) + "\n"


def _text(part: str | tuple[str, str]) -> str:
    return (part if isinstance(part, str) else part[1]).strip()


def fence(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"


def commands(*lines: str) -> str:
    """Commands for a shell."""
    return fence("\n".join(lines), "sh")


def prose(text: str, up: str) -> str:
    """Text of the code as Markdown, with its documents and papers as links. Code, also indented, stays as it is.

    up: leads from the page to the site's top
    """
    return re.sub(r"^(?!    ).+", lambda line: _outside_code(line[0], up), text, flags=re.MULTILINE)


def _outside_code(line: str, up: str) -> str:
    parts = line.split("`")
    return "`".join(part if number % 2 else _linked(part, up) for number, part in enumerate(parts))


def _linked(text: str, up: str) -> str:
    text = text.replace("<", "&lt;")
    text = re.sub(r"(?<![\w/])docs/([\w-]+)\.md(#[\w-]+)?", rf"[\1]({up}\1.md\2)", text)
    return re.sub(r"arXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def file_of(thing: Any) -> str:
    """The path in the repository of the file that defines a class or a function."""
    return Path(inspect.getfile(inspect.unwrap(thing))).resolve().relative_to(ROOT).as_posix()


def defined(thing: Any) -> str:
    """The full name of a class or a function, as a link to the line that defines it."""
    line = inspect.getsourcelines(inspect.unwrap(thing))[1]
    return f"[`{thing.__module__}.{thing.__qualname__}`]({SOURCE}/{file_of(thing)}#L{line})"


def rows_of(document: str, heading: str) -> list[dict[str, str]]:
    """The rows of the first table of a document of the repository whose first column is called `heading`."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    cells = lambda line: [text.strip() for text in line.strip("|").split(" | ")]  # noqa: E731
    body = iter(lines[at + 2 :])
    rows: list[dict[str, str]] = []
    while (line := next(body, "")).startswith("|"):
        rows.append(dict(zip(cells(lines[at]), cells(line), strict=True)))
    return rows
