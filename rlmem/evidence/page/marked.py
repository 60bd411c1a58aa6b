"""Markdown pages that a command writes a part of, between two marks."""

from __future__ import annotations

from pathlib import Path

from rlmem.errors import UserError
from rlmem.system import received


def around(file: Path, title: str, name: str) -> tuple[str, str]:
    """What stands before and after the part between `<!-- NAME:begin -->` and `<!-- NAME:end -->`, marks included.

    A file that does not exist is a page with this title and nothing else. Raises UserError for one without the marks.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if not file.is_file():
        return f"# {title}\n\n{begin}\n", f"{end}\n"
    text = received.text(file)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise UserError(f"{file}: expected one line {begin} and one {end}; e.g. --page {name}.md")
    return text.partition(begin)[0] + f"{begin}\n", end + text.partition(end)[2]
