"""Whether a document or a picture shows what the data give, and what differs."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from xml.etree import ElementTree

import numpy as np

APART = 0.05
"""How far apart, in points of 1/72 inch, equal curves may be that two versions of matplotlib drew."""
CURVES, LINES = re.compile(r"(mean|band|dot)-\d+"), re.compile(r"line2d_\d+")
"""The names of groups of an SVG that show data: those of learning curves, and what matplotlib calls any line."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def alike(one: str, other: str) -> bool:
    """Whether two SVGs show the same: lines at the same places, and the same words in the same order."""
    (ours, our_words), (theirs, their_words) = _shown(one), _shown(other)
    return (
        our_words == their_words
        and [name for name, _ in ours] == [name for name, _ in theirs]
        and all(
            len(a) == len(b) and np.allclose(a, b, rtol=0, atol=APART)
            for (_, a), (_, b) in zip(ours, theirs, strict=True)
        )
    )


def _shown(svg: str) -> tuple[list[tuple[str, list[float]]], list[str]]:
    """The name and the coordinates of every group that shows data, and every text; nothing of what is no SVG."""
    try:
        elements = list(ElementTree.fromstring(svg).iter())
    except ElementTree.ParseError:
        return [], []
    named = [(element.get("id", ""), element) for element in elements]
    kind = CURVES if any(CURVES.fullmatch(name) for name, _ in named) else LINES
    places = [
        (name if kind is CURVES else "", [float(n) for e in group.iter() for n in _coordinates(e)])
        for name, group in named
        if kind.fullmatch(name)
    ]
    return places, ["".join(element.itertext()).strip() for element in elements if element.tag.endswith("}text")]


def _coordinates(element: ElementTree.Element) -> Iterator[str]:
    return (number for name in ("d", "x", "y") for number in NUMBER.findall(element.get(name, "")))


def differing(written: Sequence[str], expected: Sequence[str]) -> Iterator[str]:
    """A sentence for every line that differs, with the cells that do if both are lines of a table."""
    begin = _common(written, expected)
    end = _common(written[: begin - 1 if begin else None : -1], expected[: begin - 1 if begin else None : -1])
    old, new = written[begin : len(written) - end], expected[begin : len(expected) - end]
    for kind, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for k in range(max(i_end - i, j_end - j)):
            has, gives = (old[i + k] if i + k < i_end else None), (new[j + k] if j + k < j_end else None)
            yield f"line {begin + i + k + 1}{_heading(expected, begin + j)}: {_apart(has, gives)}"


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    unequal = (k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unequal, min(len(one), len(other)))


def _heading(lines: Sequence[str], until: int) -> str:
    heads = (line for line in reversed(lines[: until + 1]) if line.startswith("## "))
    return next((f" ({head.removeprefix('## ')})" for head in heads), "")


def _apart(has: str | None, gives: str | None) -> str:
    if has is None or gives is None:
        return f"has `{has}`, which the data do not give" if gives is None else f"lacks `{gives}`"
    split = lambda line: line.split("|") if line.startswith("|") else next(csv.reader(io.StringIO(line)), [])  # noqa: E731
    ours, theirs = ([cell.strip() for cell in split(line)] for line in (has, gives))
    if len(ours) == len(theirs) > 2:
        cells = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
        row = " ".join(cell for cell in ours if cell)[:60]
        return f"{row}: " + "; ".join(f"has `{a}`, the data give `{b}`" for a, b in cells)
    return f"has `{has}`, the data give `{gives}`"
