"""Tables and sentences on the screen; on a terminal they are folded to its width, and words have colours."""

from collections.abc import Iterable, Mapping
from textwrap import fill

from rlmem.errors import printable
from rlmem.stats.tables import UNBOUNDED, Table

MARGIN = 9
"""The width of the headings beside sentences."""


def show(tables: Iterable[Table], sentences: Iterable[tuple[str, str]], colours: Mapping[str, str]) -> None:
    """Print tables, and below them sentences with their headings.

    colours: word -> its colour wherever it stands by itself
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    width = console.width if console.is_terminal else UNBOUNDED
    parts = [table.text(width) for table in tables]
    folded = (f"{heading:<{MARGIN}}{sentence}" for heading, sentence in sentences)
    parts += [fill(line, width, subsequent_indent=" " * MARGIN, break_long_words=False) for line in folded]
    for part in parts:
        text = Text(printable(part, keep="\n"))
        for word, colour in colours.items():
            text.highlight_regex(rf"\b{word}\b", colour)
        console.print(text)
