"""From a node with `_target_` to the class or function it names, its arguments, and the object it builds."""

import importlib
import inspect
import json
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from rlmem.config.messages import mistake, nearest
from rlmem.config.overrides import leaf_paths
from rlmem.core.errors import UserError, one_line
from rlmem.core.hardware import own_modules
from rlmem.core.moved import current


def build(node: dict[str, Any], **runtime: Any) -> Any:
    """Call the target of `node` with the node's own keys and the arguments supplied at run time."""
    with own_modules() if _names_own_code(node) else nullcontext():
        return _prepared(node)(**runtime)


def _prepared(node: dict[str, Any]) -> Callable[..., Any]:
    """The target of `node` with its own keys bound; the value of an argument annotated as a Callable is a node too."""
    target = locate(node["_target_"])
    inner = {key: value for key, value in node.items() if key != "_target_"}
    accepted = parameters(target)
    for key, value in inner.items():
        if key in accepted and isinstance(value, dict) and maker(annotation(accepted[key], target)):
            inner[key] = _prepared(value)
    return partial(target, **inner)


def signature_node(target: str, supplied: Collection[str]) -> dict[str, Any]:
    """The node of a class whose arguments have their own defaults, without those that are `supplied` or no plain data.

    Raises UserError if `target` cannot be imported.
    """
    node: dict[str, Any] = {"_target_": target}
    for name, parameter in parameters(locate(target)).items():
        with suppress(TypeError, ValueError):
            node |= {} if name in supplied else {name: json.loads(json.dumps(parameter.default))}
    return node


def makes(factory: Callable[..., Any], kinds: type | tuple[type, ...]) -> bool:
    """Whether a class is derived from one of `kinds`, or a function says that it returns one."""
    if inspect.isclass(factory):
        return issubclass(factory, kinds)
    try:
        returned = get_type_hints(inspect.unwrap(factory)).get("return")
    except Exception:  # third-party annotations may name what is not there
        return False
    return inspect.isclass(returned) and issubclass(returned, kinds)


def locate(target: str) -> Callable[..., Any]:
    """The class or function at `package.module.Name`; a UserError says what is missing, which Hydra's does not."""
    module_name, _, name = current(target).rpartition(".")
    if not module_name:
        raise UserError("expected package.module.Name, such as rlmem.memory.gru.GRU")
    module = _import(module_name)
    factory = getattr(module, name, None)
    if not callable(factory):
        public = [other for other in dir(module) if not other.startswith("_")]
        raise mistake(module_name, f"no class or function `{name}`", near=nearest(name, public))
    return factory


def parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword arguments of a target."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in _signature(target).items() if p.kind in named}


def takes_any_keyword(target: Callable[..., Any]) -> bool:
    """Whether the signature ends in `**kwargs`."""
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in _signature(target).values())


def _signature(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError) as error:  # such as some builtins
        raise UserError("does not say what arguments it takes") from error


def annotation(parameter: inspect.Parameter, target: Callable[..., Any]) -> Any:
    """The type of one argument, evaluated where the target was written; Any if it has none."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    function = inspect.unwrap(target.__init__ if inspect.isclass(target) else target)
    holder = type("holder", (), {"__annotations__": {"it": parameter.annotation}})
    return get_type_hints(holder, getattr(function, "__globals__", {}), include_extras=True)["it"]


def maker(kind: Any) -> Any:
    """The Callable that a type is, or that it allows beside None; None if there is none. Its value is a node."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((each for each in kinds if get_origin(each) is Callable), None)


def _is_ours(name: str) -> bool:
    """True if a module or a class belongs to rlmem."""
    return name.partition(".")[0] in ("rlmem", "rlmem_envs")


def _names_own_code(node: dict[str, Any]) -> bool:
    """True if a node names a class of the user's own, or an environment by `module:id`."""
    texts = [value for _, value in leaf_paths(node, lists=True) if isinstance(value, str) and ":" in value]
    return not _is_ours(node["_target_"]) or (bool(texts) and node["_target_"].startswith("rlmem_envs."))


def _import(module_name: str) -> Any:
    try:
        with nullcontext() if _is_ours(module_name) else own_modules():
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if f"{module_name}.".startswith(f"{missing}."):
            where = "modules are looked for in the current folder and in those of PYTHONPATH"
            raise UserError(f"no module `{missing}` can be imported; {where}; e.g. PYTHONPATH=my_code") from error
        needs = f"{module_name} needs the package `{missing}`, which is not installed"
        raise UserError(f"{needs}; e.g. pip install {missing}") from error
    except Exception as error:  # the module is third-party code
        if isinstance(error, ImportError):
            why = str(error)
        elif isinstance(error, SyntaxError):
            why = f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
        else:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{frame.filename}:{frame.lineno}: {one_line(error)}"
        raise UserError(f"{module_name} cannot be imported ({why})") from error
