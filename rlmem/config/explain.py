"""`rlmem config`: the composed configuration, with the origin of every value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from rlmem.config.compose import Config, compose_base, load
from rlmem.config.messages import to_text
from rlmem.config.overrides import leaf_paths
from rlmem.config.yamlfile import COMMAND_LINE, lookup, sources
from rlmem.system.strictjson import dumps


def explain(overrides: Sequence[str]) -> tuple[Config, dict[str, str]]:
    """The checked configuration of a command line, and the origin of every value by dotted path."""
    config = load(overrides)
    base, assignments, _ = compose_base(overrides)
    given = [path for o in assignments for path, _ in leaf_paths({o.key_or_group: o.value()})]
    found = sources(base.files) | dict.fromkeys(given, COMMAND_LINE)
    return config, {path: lookup(path, found) or "config.yaml" for path, _ in leaf_paths(config.values)}


def as_json(config: Config, origins: Mapping[str, str]) -> str:
    """{"algo.lr": {"value": 0.001, "source": "command line"}, ...}"""
    return dumps({path: {"value": v, "source": origins[path]} for path, v in leaf_paths(config.values)}, indent=2)


def as_yaml(config: Config, origins: Mapping[str, str]) -> str:
    """YAML in the order of composition, with the origins as aligned comments."""
    lines = list(_lines(config.values, "", origins))
    width = min(60, max(len(text) for text, _ in lines))
    body = [f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines]
    chosen = " ".join(f"{group}={to_text(choice)}" for group, choice in config.choices.items())
    return "\n".join([f"# {chosen}", *body])


def _lines(values: Mapping[str, Any], prefix: str, origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    indent = "  " * prefix.count(".")
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:", ""
            yield from _lines(value, f"{path}.", origins)
        else:
            flow = yaml.safe_dump([value], default_flow_style=True, width=10**6, sort_keys=False).strip()[1:-1]
            yield f"{indent}{key}: {flow}", origins[path]
