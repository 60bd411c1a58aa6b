"""JSON schemas of configuration files, by which editors check and complete them (`rlmem config --schema`).

They are made from the annotations by which `rlmem.config.validate` checks runs. What they accept may still be refused:
choices that do not go together, and classes that are not rlmem's own.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError

from rlmem.config.paths import conf_dir
from rlmem.config.schema import CALLBACKS, GROUPS, SECTIONS, SUPPLIED, WRAPPER, TopLevel
from rlmem.config.targets import annotation, locate, maker, parameters, takes_any_keyword

Schema = dict[str, Any]

LATER = {"type": "string", "pattern": r"^\$\{.*\}$|^\?\?\?$"}
"""A value that OmegaConf fills in, or one that has to be given."""
WHOLE = "config"
"""The name of the schema of a whole configuration, and of files with `# @package _global_`."""


def schema(name: str = WHOLE) -> Schema:
    """The schema of files of one kind: `config`, or a group of GROUPS."""
    nodes = {group: _node(group) for group in SUPPLIED if group != "logger"}
    top: Schema = _ref(name) if name in GROUPS else {"$ref": "#/$defs/whole"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": {**nodes, "whole": _whole()}}


def _whole() -> Schema:
    """A whole configuration, or a part of one."""
    named = {"type": "object", "additionalProperties": {"type": "object"}}
    return _object(
        {name: _typed(annotation(p, TopLevel), "") for name, p in parameters(TopLevel).items()}
        | {name: _of(section, "", ()) for name, section in SECTIONS.items()}
        | {group: _ref(group) for group in SUPPLIED if group != "logger"}
        | {
            "logger": named,
            WRAPPER: named,
            CALLBACKS: named,
            "hydra": {"type": "object"},
            "defaults": {"type": "array"},
        }
    )


def _node(group: str) -> Schema:
    """A class of a group with its arguments, or some of its arguments alone."""
    known = {target: _of(locate(target), group, SUPPLIED[group]) for target in _targets(group)}
    every: dict[str, Any] = {}
    for one in known.values():
        for key, value in one["properties"].items():
            every.setdefault(key, {"anyOf": []})["anyOf"].append(value)
    cases = [
        {"if": {"properties": {"_target_": {"const": target}}, "required": ["_target_"]}, "then": accepted}
        for target, accepted in known.items()
    ]
    without: Schema = {"if": {"not": {"required": ["_target_"]}}, "then": _object(every)}
    return {"type": "object", "properties": {"_target_": {"type": "string"}}, "allOf": [*cases, without]}


def _targets(group: str) -> list[str]:
    """The classes that the shipped options of a group name, in the order of their files."""
    found = []
    for file in sorted((conf_dir() / group).glob("*.yaml")):
        content: Schema = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        target = content.get(group, content).get("_target_")  # that of most algorithms is in a whole configuration
        found += [target] if target else []
    return list(dict.fromkeys(found))


def _of(target: Callable[..., Any], group: str, supplied: Iterable[str]) -> Schema:
    """The arguments of a target, without those that are supplied at run time."""
    taken = {name: p for name, p in parameters(target).items() if name not in supplied}
    special = {"_target_": {"type": "string"}, "defaults": {"type": "array"}}
    special |= {"evaluation": {"type": "object"}, "num_envs": {}} if group == "env" else {}
    typed = {name: _typed(annotation(p, target), group) for name, p in taken.items()}
    return _object(special | typed, more=takes_any_keyword(target))


def _object(properties: Schema, more: bool = False) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": more}


def _ref(group: str) -> Schema:
    return {"$ref": f"#/$defs/{group}"}


def _typed(kind: Any, group: str) -> Schema:
    """The values of a type; a Callable is a node of the same group."""
    if made := maker(kind):
        return _ref(group) if made is kind else {"anyOf": [_ref(group), {"type": "null"}]}
    try:
        found = TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True)).json_schema()
    except (SchemaError, PydanticUserError, PydanticUndefinedAnnotation):
        return {}
    return {"anyOf": [found, LATER]} if found else {}


def name_of(file: Path) -> str:
    """The name of the schema of a shipped file, or of one of the user's in a folder that is called as its group."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return file.parent.name if file.parent.name in GROUPS and "_global_" not in first else WHOLE
