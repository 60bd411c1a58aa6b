"""JSON that every reader takes: no NaN and no infinity, which strict parsers refuse."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(value: Any, **options: Any) -> str:
    """`json.dumps`, with null in the place of every number that is not finite."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # rarely, so that a value without such numbers is walked through only once
        return json.dumps(_finite(value), allow_nan=False, **options)


def row(line: str | bytes) -> dict[str, Any]:
    """A line of a `.jsonl` file, with NaN where a number of the row was not finite.

    Raises ValueError if it is not a JSON object.
    """
    read = json.loads(line)
    if not isinstance(read, dict):
        raise ValueError("a line is not an object of names and values")
    return {name: math.nan if value is None else value for name, value in read.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
