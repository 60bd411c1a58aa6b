"""JSON schemas of configuration files, by which editors check and complete them (`rlmem config --schema`).

They are made from the annotations by which `rlmem.config.validate` checks runs. What they accept may still be refused:
choices that do not go together, and classes that are not rlmem's own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError

from rlmem.config.catalog import content_of
from rlmem.config.paths import conf_dir
from rlmem.config.schema import CALLBACKS, GROUPS, NODES, SECTIONS, WRAPPER, TopLevel
from rlmem.config.targets import annotation, locate, maker, parameters, takes_any_keyword

Schema = dict[str, Any]

LATER = {"type": "string", "pattern": r"^\$\{.*\}$|^\?\?\?$"}
"""A value that OmegaConf fills in, or one that has to be given."""
WHOLE = "config"
"""The name of the schema of a whole configuration, and of files with `# @package _global_`."""


def schema(name: str = WHOLE) -> Schema:
    """The schema of files of one kind: `config`, or a group of GROUPS."""
    named = {"type": "object", "additionalProperties": {"type": "object"}}
    whole = _of(TopLevel, "")["properties"] | {section: _of(keys, "") for section, keys in SECTIONS.items()}
    del whole["_target_"]
    whole |= {group: _ref(group) for group in GROUPS} | {"logger": named, WRAPPER: named, CALLBACKS: named}
    definitions = {group: _node(group) for group in GROUPS} | {WHOLE: _object(whole | {"hydra": {"type": "object"}})}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_ref(name), "$defs": definitions}


def _node(group: str) -> Schema:
    """A class of a group with its arguments, or some of its arguments alone."""
    contents = [content_of(file) for file in sorted((conf_dir() / group).glob("*.yaml"))]
    # The class of most algorithms is in a whole configuration.
    targets = dict.fromkeys(content.get(group, content).get("_target_") for content in contents)
    known = {target: _of(locate(target), group) for target in targets if target}
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


def _of(target: Callable[..., Any], group: str) -> Schema:
    """The arguments of a target, without those that a group gets at run time."""
    special = {"_target_": {"type": "string"}, "defaults": {"type": "array"}}
    special |= {"evaluation": {"type": "object"}, "num_envs": {}} if group == "env" else {}
    taken = {name: p for name, p in parameters(target).items() if not group or name not in NODES[group].supplied}
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
