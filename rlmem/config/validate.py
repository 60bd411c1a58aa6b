"""Checks every value against the annotation of its constructor argument: the code is the schema.

It also makes JSON schemas of the annotations, by which editors check and complete files (`rlmem config --schema`). What
these accept may still be refused: choices that do not go together, and classes that are not rlmem's own.
"""

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError

from rlmem.config.catalog import content_of, leaves, options
from rlmem.config.messages import choices, describe, got, nearest, nearest_key
from rlmem.config.paths import conf_dir
from rlmem.config.schema import CALLBACKS, GROUPS, NODES, SECTIONS, WRAPPER, TopLevel
from rlmem.config.targets import annotation, locate, maker, makes, parameters, takes_any_keyword
from rlmem.core.errors import UserError
from rlmem.core.moved import current
from rlmem.core.received import map_values

MISSING = "???"
Kinds = Sequence[str | type]
"""Classes, or their dotted names, from one of which a class derives; []: any will do."""
_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


class Refusal(NamedTuple):
    """One refused value or key: its dotted path, what is wrong, the nearest and the accepted names."""

    path: str
    what: str
    value: Any = None
    near: Sequence[str] = ()
    accepted: Sequence[str] = ()


def validate(values: dict[str, Any], only: Collection[str] | None = None) -> tuple[dict[str, Any], list[Refusal]]:
    """The values coerced to their annotations, and all that is refused; `only` these top-level keys are checked."""
    check, checked = _Check(), dict(values)
    for name in values if only is None else only:
        if name in SECTIONS:
            checked[name] = check.arguments(name, values[name], SECTIONS[name])
        elif name in NODES:
            of_group = check.node if name in GROUPS else check.nodes
            checked[name] = of_group(name, values[name], NODES[name].supplied, NODES[name].kinds)
    scalars = [name for name in values if name not in {*SECTIONS, *NODES} and (only is None or name in only)]
    run = check.arguments("", {name: values[name] for name in scalars}, TopLevel, complete=only is None)
    return checked | run, check.refusals


def coerce(value: Any, kind: Any) -> Any:
    """`value` as `kind`; raises ValidationError. 1 may be a float and 1e6 an integer; true and '1' are not numbers."""
    try:
        adapter = (_adapter if _has_hash(kind) else _adapter.__wrapped__)(kind)
    except (SchemaError, PydanticUserError, PydanticUndefinedAnnotation):  # such as a function in the place of a type
        return value
    try:
        checked = adapter.validate_json(json.dumps(value))
    except ValidationError:
        whole = lambda item: int(item) if isinstance(item, float) and item.is_integer() else item  # noqa: E731
        checked = adapter.validate_json(json.dumps(map_values(whole, value)))
    return adapter.dump_python(checked, mode="json")


@lru_cache(maxsize=1000)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's adapter of a type. Making one takes about 100 times as long as using it."""
    return TypeAdapter(kind, config=_STRICT)


def _has_hash(kind: Any) -> bool:
    try:
        return hash(kind) is not None
    except TypeError:
        return False


class _Check:
    """Checks parts of a configuration: every method returns the coerced values and collects what it refuses."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def refuse(
        self, path: str, problem: str, value: Any, near: Sequence[str] = (), accepted: Sequence[str] = ()
    ) -> Any:
        """Collect a refusal; returns the value as it is."""
        self.refusals.append(Refusal(path, problem, value, near, accepted))
        return value

    def nodes(self, path: str, entries: Any, supplied: Collection[str], kinds: Kinds) -> Any:
        """A mapping from names to nodes. {} is the local logger, for which nothing is built."""
        if not isinstance(entries, dict):
            return self.refuse(path, "expected a mapping {name: {_target_: module.Class}}", entries)
        local = [name for name, node in entries.items() if node == {} and path == "logger"]
        nodes = {name: node for name, node in entries.items() if name not in local}
        return entries | {name: self.node(f"{path}.{name}", node, supplied, kinds) for name, node in nodes.items()}

    def node(self, path: str, node: Any, supplied: Collection[str], kinds: Kinds) -> Any:
        """The node at `path`; its `_target_` gets the arguments `supplied` at run time and makes one of `kinds`."""
        target = node.get("_target_") if isinstance(node, dict) else None
        if wrong := _problem_of_target(path, target, supplied, kinds):
            self.refuse(f"{path}._target_", wrong, target)
            return node
        factory, special = locate(node["_target_"]), ("_target_", "evaluation") if path == "env" else ("_target_",)
        arguments = {key: value for key, value in node.items() if key not in special}
        checked = {"_target_": current(node["_target_"])} | self.arguments(path, arguments, factory, supplied)
        if path == "env" and "evaluation" in node:  # more arguments of the same target
            more, supplied = node["evaluation"], {*supplied, "num_envs"}
            checked["evaluation"] = self.arguments("env.evaluation", more, factory, supplied, complete=False)
        return checked

    def argument(self, path: str, value: Any, kind: Any, supplied: Collection[str]) -> Any:
        """One argument; that of a Callable is a node, supplied with the same arguments as the node around it."""
        if (product := maker(kind)) is None or (value is None and product is not kind):
            try:
                return coerce(value, kind)
            except ValidationError:
                near = nearest(value, choices(kind)) if isinstance(value, str) else []
                return self.refuse(path, f"expected {describe(kind)}, got {got(value)}", value, near)
        if isinstance(value, dict):
            result = get_args(product)[1]
            return self.node(path, value, supplied, (result,) if inspect.isclass(result) else ())
        target = value if isinstance(value, str) and "." in value else _target_of(path.partition(".")[0], value)
        near = [f"{path}._target_={target}"] if target else []
        return self.refuse(path, "expected a mapping such as {_target_: rlmem.memory.gru.GRU}", value, near)

    def arguments(
        self, path: str, node: Any, target: Callable[..., Any], supplied: Collection[str] = (), complete: bool = True
    ) -> Any:
        """The keys of one node against the arguments of its target; all are required if it is to be `complete`."""
        if not isinstance(node, dict):
            return self.refuse(path, "expected a mapping {key: value}", node)
        accepted = {name: p for name, p in parameters(target).items() if name not in supplied}
        prefix = f"{path}." if path else ""
        checked = dict(node)
        for key, value in node.items():
            where = f"{prefix}{key}"
            if key in accepted and value != MISSING:
                checked[key] = self.argument(where, value, annotation(accepted[key], target), supplied)
            elif key in supplied:
                self.refuse(where, "supplied at run time, not by the configuration", value)
            elif key not in accepted and not takes_any_keyword(target):
                near = [f"{prefix}{name}" for name in nearest_key(key, accepted)]
                self.refuse(where, f"no such key for {_name(target)}", value, near, sorted(accepted))
        for name, parameter in accepted.items():
            if complete and name not in node and parameter.default is inspect.Parameter.empty:
                self.refuse(f"{prefix}{name}", f"required by {_name(target)} and not given", MISSING)
        return checked


def _problem_of_target(path: str, target: Any, supplied: Collection[str], kinds: Kinds) -> str | None:
    """Why `target` cannot be called for the node at `path`; None if it can."""
    if not isinstance(target, str):
        return "expected a class or function, as package.module.Name"
    try:
        factory = locate(target)
        names, takes_any = parameters(factory).keys(), takes_any_keyword(factory)
    except UserError as error:
        return str(error)
    if inspect.isabstract(factory):
        missing = ", ".join(sorted(getattr(factory, "__abstractmethods__", ())))
        return f"{_name(factory)} is abstract, it does not define {missing}"
    refused = sorted(set(supplied) - names)
    if refused and not takes_any and path != "env":  # environments are seeded by reset
        return f"{_name(factory)} does not take `{'`, `'.join(refused)}`, supplied at run time"
    classes: Iterator[Any] = (locate(kind) if isinstance(kind, str) else kind for kind in kinds)
    if kinds and not any(makes(factory, kind) for kind in classes):  # the first is often enough
        bases = [kind if isinstance(kind, str) else _name(kind) for kind in kinds]
        says = "" if inspect.isclass(factory) else " (a function says so by its annotation, `-> ...`)"
        return f"{_name(factory)} gives no {' or '.join(bases)}{says}; derive it from {bases[0]}"
    return None


def _target_of(group: str, option: Any) -> str | None:
    """The target of the shipped option with the nearest name."""
    files = options().get(group, {})
    paths = [leaf for name in nearest(option, files) for leaf in leaves(files[name]) if leaf.path.endswith("_target_")]
    return paths[0].text if len(paths) == 1 else None  # of several targets, none stands for the option


def _name(target: Callable[..., Any]) -> str:
    named = target if hasattr(target, "__qualname__") else type(target)  # a callable need not have a name
    return "config.yaml" if target is TopLevel else f"{named.__module__}.{named.__qualname__}"


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
    if product := maker(kind):
        return _ref(group) if product is kind else {"anyOf": [_ref(group), {"type": "null"}]}
    try:
        accepted = TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True)).json_schema()
    except (SchemaError, PydanticUserError, PydanticUndefinedAnnotation):
        return {}
    return {"anyOf": [accepted, LATER]} if accepted else {}
