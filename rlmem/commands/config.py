"""`rlmem config`: a composed configuration and its origins."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rlmem.commands.toolkit import Arguments, Parser
from rlmem.config.messages import to_text
from rlmem.system.command import show
from rlmem.system.strictjson import dumps

PARSER = Parser(
    "config",
    "Check a command line and show what it composes, with the origin of every value. Runs nothing.",
    "memory=ffm algo.lr=1e-3",
    "algo=ppo_popgym --json",
    "--schema memory > memory.schema.json",
)
PARSER.add_argument("--json", action="store_true", help="print JSON")
kinds = ("config", "memory", "env", "encoder", "batching", "algo")
what = "print the JSON schema of such files, for editors, and nothing else (config)"
PARSER.add_argument("--schema", nargs="?", const="config", choices=kinds, metavar="GROUP", help=what)
PARSER.add_overrides("as for train")


def run(args: Arguments) -> None:
    if args.schema:
        from rlmem.config.editors import schema

        show(dumps(schema(args.schema), indent=2))
        return
    from rlmem.config.compose import explain
    from rlmem.config.overrides import leaf_paths

    config, origins = explain(args.overrides)
    ruled = {group: to_text(choice) for group, choice in config.choices.items() if group in config.ruled}
    if args.json:
        shown = [*ruled.items(), *leaf_paths(config.values)]
        show(dumps({path: {"value": value, "source": origins[path]} for path, value in shown}, indent=2))
    else:
        show(" ".join(["#", *(f"{group}={to_text(choice)}" for group, choice in config.choices.items())]))
        for group, choice in ruled.items():
            show(f"# {group}={choice}: {config.ruled[group]}")
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
