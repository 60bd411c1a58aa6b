"""Every value against the annotation of the constructor argument it is for: the code is the schema."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError

from rlmem.config.messages import choices, describe, got, nearest, nearest_key
from rlmem.config.paths import conf_dir
from rlmem.config.schema import SECTIONS, SUPPLIED, Run
from rlmem.config.targets import annotation, gives, locate, parameters, takes_any_keyword
from rlmem.config.yamlfile import leaves
from rlmem.errors import UserError
from rlmem.system.strictjson import map_values

MISSING = "???"
_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Refusal:
    """One refused value or key: its dotted path, what is wrong, the nearest and the accepted names."""

    path: str
    what: str
    value: Any = None
    near: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()


def validate(values: dict[str, Any], only: Collection[str] | None = None) -> tuple[dict[str, Any], list[Refusal]]:
    """The values coerced to their annotations, and every fault; `only`: check these top-level keys alone."""
    checked, faults = dict(values), []
    for name in values if only is None else only:
        if name in SECTIONS:
            checked[name], found = _arguments(name, values[name], SECTIONS[name])
        elif name == "env":
            checked[name], found = _environment(values[name])
        elif name == "logger":
            checked[name], found = _loggers(values[name])
        elif name in SUPPLIED:
            checked[name], found = _node(name, values[name], SUPPLIED[name])
        else:
            continue
        faults += found
    scalars = [name for name in values if name not in SECTIONS | SUPPLIED and (only is None or name in only)]
    run, found = _arguments("", {name: values[name] for name in scalars}, Run, complete=only is None)
    return checked | run, faults + found


def coerce(value: Any, kind: Any) -> Any:
    """`value` as `kind`, or ValidationError. 1 may be a float, 1e6 an integer; true and '1' no numbers.

    An annotation that cannot be checked against, such as one that names a function for a type, accepts everything.
    """
    try:
        adapter = TypeAdapter(kind, config=_STRICT)
    except (SchemaError, PydanticUserError, PydanticUndefinedAnnotation):
        return value
    try:
        checked = adapter.validate_json(json.dumps(value))
    except ValidationError:
        checked = adapter.validate_json(json.dumps(map_values(_whole, value)))
    return adapter.dump_python(checked, mode="json")


def _environment(node: Any) -> tuple[Any, list[Refusal]]:
    """The node of `env`; its mapping `evaluation` holds arguments of the same target."""
    if not isinstance(node, dict) or "evaluation" not in node:
        return _node("env", node, SUPPLIED["env"])
    checked, faults = _node("env", {key: value for key, value in node.items() if key != "evaluation"}, SUPPLIED["env"])
    if any(fault.path == "env._target_" for fault in faults):
        return node, faults
    supplied = SUPPLIED["env"] | {"num_envs"}
    evaluation, found = _arguments(
        "env.evaluation", node["evaluation"], locate(node["_target_"]), supplied, complete=False
    )
    return checked | {"evaluation": evaluation}, faults + found


def _loggers(entries: Any) -> tuple[Any, list[Refusal]]:
    if not isinstance(entries, dict):
        return entries, [Refusal("logger", "expected a mapping of loggers", entries)]
    checked, faults = {}, []
    for name, node in entries.items():
        path = f"logger.{name}"
        if node == {}:  # the local logger: nothing to build
            checked[name] = node
            continue
        checked[name], found = _node(path, node, SUPPLIED["logger"])
        faults += found
    return checked, faults


def _node(path: str, node: Any, supplied: Collection[str], made: Any = None) -> tuple[Any, list[Refusal]]:
    """A node with `_target_`; `made`: the class whose subclasses alone may stand there."""
    target = node.get("_target_") if isinstance(node, dict) else None
    if not isinstance(target, str):
        return node, [Refusal(f"{path}._target_", "expected a class or function, as package.module.Name", target)]
    try:
        found = locate(target)
        names, takes_any = parameters(found).keys(), takes_any_keyword(found)
    except UserError as error:
        return node, [Refusal(f"{path}._target_", str(error), target)]
    if inspect.isclass(made) and not gives(found, made):
        return node, [Refusal(f"{path}._target_", f"expected a subclass of {_name(made)}", target)]
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        return node, [Refusal(f"{path}._target_", f"{_name(found)} is abstract, it does not define {missing}", target)]
    passed = set() if path == "env" or takes_any else set(supplied)  # environments are seeded by reset
    if refused := sorted(passed - names):
        what = f"{_name(found)} does not take `{'`, `'.join(refused)}`, supplied at run time"
        return node, [Refusal(f"{path}._target_", what, target)]
    arguments = {key: value for key, value in node.items() if key != "_target_"}
    checked, faults = _arguments(path, arguments, found, supplied)
    return {"_target_": target} | checked, faults


def _inner_node(path: str, node: Any, supplied: Collection[str], made: Any) -> tuple[Any, list[Refusal]]:
    """The node of an argument that builds a `made` itself, given what is supplied to the node around it."""
    if isinstance(node, dict):
        return _node(path, node, supplied, made)
    target = node if isinstance(node, str) and "." in node else _target_of(path.partition(".")[0], node)
    near = (f"{path}._target_={target}",) if target else ()
    return node, [Refusal(path, "expected a mapping such as {_target_: rlmem.memory.gru.GRU}", node, near)]


def _target_of(group: str, option: Any) -> str | None:
    """The target of the shipped option of that name, or of one much like it."""
    files = {file.stem: file for file in (conf_dir() / group).glob("[!_]*.yaml")}
    paths = [leaf for name in nearest(option, files) for leaf in leaves(files[name]) if leaf.path.endswith("_target_")]
    return paths[0].text if len(paths) == 1 else None  # one with a layer of its own is more than its target


def _arguments(
    path: str, node: Any, target: Callable[..., Any], supplied: Collection[str] = (), complete: bool = True
) -> tuple[Any, list[Refusal]]:
    """The keys of one node against the arguments of its target."""
    if not isinstance(node, dict):
        return node, [Refusal(path, "expected a mapping {key: value}", node)]
    accepted = {name: p for name, p in parameters(target).items() if name not in supplied}
    prefix = f"{path}." if path else ""
    checked, faults = dict(node), []
    for key, value in node.items():
        if key in accepted and value != MISSING:
            kind = annotation(accepted[key], target)
            if get_origin(kind) is Callable:
                checked[key], found = _inner_node(f"{prefix}{key}", value, supplied, get_args(kind)[1])
                faults += found
                continue
            try:
                checked[key] = coerce(value, kind)
            except ValidationError:
                faults.append(_wrong_value(f"{prefix}{key}", value, kind))
        elif key in supplied:
            faults.append(Refusal(f"{prefix}{key}", "supplied at run time, not by the configuration", value))
        elif key not in accepted and not takes_any_keyword(target):
            faults.append(_unknown_key(prefix, key, value, target, accepted))
    for name, parameter in accepted.items():
        if complete and name not in node and parameter.default is inspect.Parameter.empty:
            faults.append(Refusal(f"{prefix}{name}", f"required by {_name(target)} and not given", MISSING))
    return checked, faults


def _wrong_value(path: str, value: Any, kind: Any) -> Refusal:
    near = nearest(value, choices(kind)) if isinstance(value, str) else []
    return Refusal(path, f"expected {describe(kind)}, got {got(value)}", value, tuple(near))


def _unknown_key(prefix: str, key: str, value: Any, target: Any, accepted: Collection[str]) -> Refusal:
    near = tuple(f"{prefix}{name}" for name in nearest_key(key, accepted))
    return Refusal(f"{prefix}{key}", f"no such key for {_name(target)}", value, near, tuple(sorted(accepted)))


def _whole(value: Any) -> Any:
    """1e6 as an integer; any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _name(target: Callable[..., Any]) -> str:
    if target is Run:
        return "config.yaml"
    named = target if hasattr(target, "__qualname__") else type(target)  # what is callable need not have a name
    return f"{named.__module__}.{named.__qualname__}"
