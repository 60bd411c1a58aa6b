"""The pages that are generated from the code: of every memory, environment, algorithm, group, command and metric."""

from reference import algorithms, commands, environments, groups, memories, metrics, notebooks, python
from reference.markdown import Page

PARTS = (memories, environments, algorithms, groups, commands, metrics, python, notebooks)
"""Modules whose `pages()` are pages by their place on the site."""


def pages() -> dict[str, Page]:
    """Every generated page by its place on the site, such as `reference/memory/ffm.md`."""
    return {place: page for part in PARTS for place, page in part.pages().items()}
