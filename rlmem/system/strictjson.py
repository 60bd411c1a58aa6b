"""JSON that every reader accepts: no NaN and no infinity, which strict parsers refuse."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def dumps(value: Any, **options: Any) -> str:
    """`json.dumps`, with null instead of every number that is not finite."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # rare; a value without such numbers is traversed only once
        finite = lambda item: None if isinstance(item, float) and not math.isfinite(item) else item  # noqa: E731
        return json.dumps(map_values(finite, value), allow_nan=False, **options)


def row(line: str | bytes) -> dict[str, Any]:
    """A line of a `.jsonl` file, NaN where a number was not finite. Raises ValueError if it is not a JSON object."""
    read = json.loads(line)
    if not isinstance(read, dict):
        raise ValueError("a line is not an object of names and values")
    return {name: math.nan if value is None else value for name, value in read.items()}


def map_values(change: Callable[[Any], Any], node: Any) -> Any:
    """`node` with `change(value)` instead of every value in nested mappings and lists."""
    if isinstance(node, Mapping):
        return {key: map_values(change, value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [map_values(change, value) for value in node]
    return change(node)
