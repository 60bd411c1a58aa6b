"""Pictures of analyses inside the page."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from rlmem.report.html import Html, tag

TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


def embedded(caption: str, path: Path) -> Html | None:
    """The picture as data, the smaller one of SVG and PNG where both are there; None if it cannot be read.

    As an image, an SVG keeps its names to itself, and can neither run nor load anything.
    """
    there = [file for kind in TYPES if (file := path.with_suffix(kind)).is_file()]
    if not there:
        return None
    file = min(there, key=lambda file: file.stat().st_size)
    data = f"data:{TYPES[file.suffix]};base64,{b64encode(file.read_bytes()).decode()}"
    return tag("figure", tag("img", src=data, alt=caption), tag("figcaption", caption), class_="picture")
