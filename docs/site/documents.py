"""Documents of the repository as pages: links between them, and the links that leave the site."""

import posixpath
import re
from collections.abc import Callable

from reference.markdown import ROOT

REPOSITORY = "https://github.com/rlmem/rlmem"
TOP = {
    "RESULTS.md": "results.md",
    "results/README.md": "data.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Documents outside of docs/ that are pages -> their places on the site."""

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s]+)\)")
EXAMPLE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
MARK = re.compile(r"^<!-- not run: .*? -->\n| ?<!-- result: .*? -->", re.MULTILINE | re.DOTALL)
"""The comments by which tests know the blocks that are not run, and the expectations that sentences state."""


def place_of(path: str) -> str | None:
    """The place on the site of a file of the repository; None if it is not part of the site."""
    if path in TOP:
        return TOP[path]
    inside = path.removeprefix("docs/")
    if path.startswith("docs/") and not inside.startswith("site/"):
        return inside
    return path if path.startswith("results/") and path.endswith((".svg", ".png")) else None


def for_the_site(text: str, path: str) -> str:
    """The Markdown of the document at `path` of the repository, for the site.

    Links to what is not on the site go to the repository's web pages; the name of a file that a block of code shows
    becomes its title; comments for tests are left out.
    """
    here = posixpath.dirname(place_of(path) or "")
    text = outside_fences(MARK.sub("", text), lambda part: LINK.sub(lambda m: _link(m, path, here), part))
    return EXAMPLE.sub(r'```\1 title="\2"', text)


def _link(found: re.Match[str], path: str, here: str) -> str:
    target, hash, anchor = found[2].partition("#")
    if not target or ":" in target:
        return found[0]
    linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    place = place_of(linked)
    if place is not None:
        return f"{found[1]}({posixpath.relpath(place, here or '.')}{hash}{anchor})"
    if not (ROOT / linked).exists():
        return found[0]  # the build says that it is broken
    kind = "tree" if (ROOT / linked).is_dir() else "blob"
    return f"{found[1]}({REPOSITORY}/{kind}/main/{linked}{hash}{anchor})"


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """`text` with `change` applied to what is not in a fenced block."""
    parts, end = [], 0
    for block in FENCE.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def pictures(text: str) -> list[str]:
    """The paths of the pictures of results that a document of the repository's top shows: also their places."""
    shown = re.findall(r"!\[[^\]]*\]\((results/[^)\s]+)\)", text)
    return [path for path in shown if (ROOT / path).exists()]
