"""Checks every value against the annotation of its constructor argument: the code is the schema."""

import inspect
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError

from rlmem.config.catalog import leaves, options
from rlmem.config.messages import choices, describe, got, nearest, nearest_key
from rlmem.config.schema import GROUPS, NODES, SECTIONS, TopLevel
from rlmem.config.targets import annotation, locate, maker, makes, parameters, takes_any_keyword
from rlmem.core.errors import UserError
from rlmem.core.moved import current
from rlmem.core.strictjson import map_values

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
        adapter = TypeAdapter(kind, config=_STRICT)
    except (SchemaError, PydanticUserError, PydanticUndefinedAnnotation):  # such as a function in the place of a type
        return value
    try:
        checked = adapter.validate_json(json.dumps(value))
    except ValidationError:
        whole = lambda item: int(item) if isinstance(item, float) and item.is_integer() else item  # noqa: E731
        checked = adapter.validate_json(json.dumps(map_values(whole, value)))
    return adapter.dump_python(checked, mode="json")


class _Check:
    """Checks parts of a configuration: every method returns the coerced values and collects what it refuses."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def refuse(self, path: str, what: str, value: Any, near: Sequence[str] = (), accepted: Sequence[str] = ()) -> Any:
        """Collect a refusal; returns the value as it is."""
        self.refusals.append(Refusal(path, what, value, near, accepted))
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
        found, special = locate(node["_target_"]), ("_target_", "evaluation") if path == "env" else ("_target_",)
        arguments = {key: value for key, value in node.items() if key not in special}
        checked = {"_target_": current(node["_target_"])} | self.arguments(path, arguments, found, supplied)
        if path == "env" and "evaluation" in node:  # more arguments of the same target
            more, supplied = node["evaluation"], {*supplied, "num_envs"}
            checked["evaluation"] = self.arguments("env.evaluation", more, found, supplied, complete=False)
        return checked

    def argument(self, path: str, value: Any, kind: Any, supplied: Collection[str]) -> Any:
        """One argument; that of a Callable is a node, supplied with the same arguments as the node around it."""
        if (made := maker(kind)) is None or (value is None and made is not kind):
            try:
                return coerce(value, kind)
            except ValidationError:
                near = nearest(value, choices(kind)) if isinstance(value, str) else []
                return self.refuse(path, f"expected {describe(kind)}, got {got(value)}", value, near)
        if isinstance(value, dict):
            result = get_args(made)[1]
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
        found = locate(target)
        names, takes_any = parameters(found).keys(), takes_any_keyword(found)
    except UserError as error:
        return str(error)
    classes = (locate(kind) if isinstance(kind, str) else kind for kind in kinds)  # the first is often enough
    if kinds and not any(makes(found, kind) for kind in classes):
        names = [kind if isinstance(kind, str) else _name(kind) for kind in kinds]
        says = "" if inspect.isclass(found) else " (a function says so by its annotation, `-> ...`)"
        return f"{_name(found)} gives no {' or '.join(names)}{says}; e.g. derive it from {names[0]}"
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        return f"{_name(found)} is abstract, it does not define {missing}"
    if path == "env" or takes_any or not (refused := sorted(set(supplied) - names)):  # environments are seeded by reset
        return None
    return f"{_name(found)} does not take `{'`, `'.join(refused)}`, supplied at run time"


def _target_of(group: str, option: Any) -> str | None:
    """The target of the shipped option with the nearest name."""
    files = options().get(group, {})
    paths = [leaf for name in nearest(option, files) for leaf in leaves(files[name]) if leaf.path.endswith("_target_")]
    return paths[0].text if len(paths) == 1 else None  # of several targets, none stands for the option


def _name(target: Callable[..., Any]) -> str:
    named = target if hasattr(target, "__qualname__") else type(target)  # a callable need not have a name
    return "config.yaml" if target is TopLevel else f"{named.__module__}.{named.__qualname__}"
