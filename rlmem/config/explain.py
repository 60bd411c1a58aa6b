"""`rlmem config`: the composed configuration, with the origin of every value."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from rlmem.config.compose import compose_base, load
from rlmem.config.messages import to_text
from rlmem.config.overrides import leaf_paths
from rlmem.config.yamlfile import COMMAND_LINE, lookup, sources
from rlmem.system.strictjson import dumps


@dataclass(frozen=True)
class Explained:
    """A checked configuration, its choices, and the origin of every value by dotted path."""

    values: dict[str, Any]
    choices: dict[str, Any]
    origins: dict[str, str]


def explain(overrides: Sequence[str]) -> Explained:
    """Compose and check a command line, and find where each value came from."""
    config = load(overrides)
    base, assignments, _ = compose_base(overrides)
    given = [path for o in assignments for path, _ in leaf_paths({o.key_or_group: o.value()})]
    found = sources(base.files) | dict.fromkeys(given, COMMAND_LINE)
    origins = {path: lookup(path, found) or "config.yaml" for path, _ in leaf_paths(config.values)}
    return Explained(config.values, config.choices, origins)


def as_json(explained: Explained) -> str:
    """{"algo.lr": {"value": 0.001, "source": "command line"}, ...}"""
    leaves = leaf_paths(explained.values)
    return dumps({path: {"value": v, "source": explained.origins[path]} for path, v in leaves}, indent=2)


def as_yaml(explained: Explained) -> str:
    """YAML in the order of composition, with the origins as aligned comments."""
    lines = list(_lines(explained.values, "", explained.origins))
    width = min(60, max(len(text) for text, _ in lines))
    body = [f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines]
    chosen = " ".join(f"{group}={to_text(choice)}" for group, choice in explained.choices.items())
    return "\n".join([f"# {chosen}", *body])


def _lines(values: Mapping[str, Any], prefix: str, origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    indent = "  " * prefix.count(".")
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:", ""
            yield from _lines(value, f"{path}.", origins)
        else:
            yield f"{indent}{key}: {_flow(value)}", origins[path]


def _flow(value: Any) -> str:
    return yaml.safe_dump([value], default_flow_style=True, width=10**6, sort_keys=False).strip()[1:-1]
