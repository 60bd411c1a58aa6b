"""YAML that another user may have written: data only, read within bounds of time and memory."""

from collections import deque
from pathlib import Path
from typing import Any

import yaml

from rlmem.core import received

VALUES = 100_000
"""Values at most in a file. With aliases, a short file may hold very many, or itself."""

MERGED = 100_000
"""Keys at most that merging (`<<`) copies into other mappings. With aliases, a short file may copy very many."""

DIGITS = 400
"""Characters of a number at most."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # that in C is much faster
    """The reader of plain data, for which a number to the base of 60 (1:20:30) is text.

    The time that such a number takes is quadratic in its length.
    """

    merged = 0

    def number(self, node: yaml.ScalarNode) -> int | float | str:
        if ":" in node.value:
            return node.value
        if len(node.value) > DIGITS:
            raise yaml.constructor.ConstructorError(problem="a number is too long", problem_mark=node.start_mark)
        return super().yaml_constructors[node.tag](self, node)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(part, yaml.MappingNode):
                        self.flatten_mapping(part)
                        self.merged += len(part.value)
                    if self.merged > MERGED:
                        problem, where = "too many keys are merged", key.start_mark
                        raise yaml.constructor.ConstructorError(problem=problem, problem_mark=where)
        super().flatten_mapping(node)


for _kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", Loader.number)


def load(text: str) -> Any:
    """The value in a YAML text. Raises yaml.YAMLError."""
    try:
        value = yaml.load(text, Loader)
        deque(received.nodes(value, VALUES), 0)
        return value
    except yaml.YAMLError:
        raise
    except Exception as error:  # such as a date that is none, or values nested too deeply
        raise yaml.YAMLError(f"{type(error).__name__}: {error}") from error


def read(path: Path) -> Any:
    """The value in a YAML file. Raises OSError, ValueError and yaml.YAMLError."""
    return load(received.text(path, received.DESCRIPTION))
