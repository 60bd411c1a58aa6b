"""`rlmem config`: show a composed configuration and where every value came from."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import yaml

from rlmem.commands.toolkit import Flag, Kind, Overrides
from rlmem.config.messages import to_text
from rlmem.core.command import show
from rlmem.core.received import dumps

PRINTS = True
GROUPS = ("config", "memory", "env", "encoder", "batching", "algo")
"""What has a schema: whole configurations, and the options of a group."""
Schema = Annotated[str, Kind(nargs="?", const="config", choices=GROUPS, metavar="GROUP")]


def run(overrides: Overrides, *, json: Flag = False, schema: Schema | None = None) -> None:
    """Check a command line and show what it composes, with the origin of every value. Runs nothing.

    overrides: as for train
    json: print JSON
    schema: print the JSON schema of such files, for editors, and nothing else (config)

    Examples:
        memory=ffm algo.lr=1e-3
        algo=ppo_popgym --json
        --schema memory > memory.schema.json
    """
    if schema:
        from rlmem.config.validate import schema as schema_of

        show(dumps(schema_of(schema), indent=2))
        return
    from rlmem.config.compose import explain
    from rlmem.config.overrides import leaf_paths

    config, origins = explain(overrides)
    if json:
        shown = leaf_paths(config.values)
        show(dumps({path: {"value": value, "source": origins[path]} for path, value in shown}, indent=2))
    else:
        show(" ".join(["#", *(f"{group}={to_text(choice)}" for group, choice in config.choices.items())]))
        show(as_yaml(config.values, origins))


def as_yaml(values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Values as YAML in the order of composition, with their origins as aligned comments."""
    lines = list(_lines(values, "", origins))
    width = min(60, max(len(text) for text, _ in lines))
    return "\n".join(f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines)


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
