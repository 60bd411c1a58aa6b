"""JSON that every reader accepts: no NaN and no infinity, which strict parsers refuse."""

import json
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

LARGEST = 1e100
"""The largest number, in size, that counts as one in received data: its square and sums of such numbers are finite."""
DEEPEST = 64
"""The most levels of lists and mappings in received data."""
TOO_DEEP = f"lists and mappings in more than {DEEPEST} levels"


def loads(text: str | bytes) -> Any:
    """The value of a JSON text from anywhere. Raises ValueError for one that cannot be read, or has too many levels."""
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if text.count("[") + text.count("{") > DEEPEST:  # rare; the rows of a record are short
        deque(nodes(value), 0)
    return value


def nodes(value: Any, most: float = math.inf) -> Iterator[Any]:
    """A value and all values in it. Raises ValueError for more than `most` of them, or more than DEEPEST levels."""
    levels: list[Iterator[Any]] = [iter((value,))]  # what is left of each, which takes no memory for many values
    number, end = 0, object()
    while levels:
        if (node := next(levels[-1], end)) is end:
            levels.pop()
            continue
        number += 1
        if number > most or len(levels) > DEEPEST + 1:
            raise ValueError(TOO_DEEP if len(levels) > DEEPEST + 1 else f"more than {most:,} values")
        yield node
        if isinstance(node, dict | list):
            levels.append(iter(node.values() if isinstance(node, dict) else node))


def number(value: object) -> float | None:
    """A value as a float; None for what is no number, and beyond LARGEST."""
    return float(value) if isinstance(value, int | float) and not abs(value) > LARGEST else None


def dumps(value: Any, **options: Any) -> str:
    """`json.dumps`, with null instead of every number that is not finite."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # rare; a value without such numbers is traversed only once
        finite = lambda item: None if isinstance(item, float) and not math.isfinite(item) else item  # noqa: E731
        return json.dumps(map_values(finite, value), allow_nan=False, **options)


def row(line: str | bytes) -> dict[str, Any]:
    """A line of a `.jsonl` file, NaN where a number was not finite. Raises ValueError if it is not a JSON object."""
    read = loads(line)
    if not isinstance(read, dict):
        raise ValueError("a line is not an object of names and values")
    return {sys.intern(name): math.nan if value is None else value for name, value in read.items()}


def map_values(change: Callable[[Any], Any], node: Any) -> Any:
    """`node` with `change(value)` instead of every value in nested mappings and lists."""
    if isinstance(node, Mapping):
        return {key: map_values(change, value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [map_values(change, value) for value in node]
    return change(node)
