"""Whether a task's parameters are what its constructor's annotations say."""

import difflib
import functools
import inspect
import math
import operator
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
import numpy as np

KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
BOUNDS = {
    annotated_types.Gt: ("gt", "greater than", operator.gt),
    annotated_types.Ge: ("ge", "at least", operator.ge),
    annotated_types.Lt: ("lt", "less than", operator.lt),
    annotated_types.Le: ("le", "at most", operator.le),
}
"""Attribute that holds the bound, how it is said, and what it means."""


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that first holds its arguments to their annotations. It raises ValueError, in one line.

    Types int, float, bool, str, Literal and None, alone or in a union, and bounds of annotated_types are checked;
    anything else is left to the constructor. A number that is NaN fits no bound.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        hints = get_type_hints(init, include_extras=True)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in hints and (problem := problem_with(value, hints[name])):
                raise ValueError(f"{name}={value!r}: expected {problem}")
        init(*args, **kwargs)

    return wrapper


def problem_with(value: Any, hint: Any) -> str | None:
    """What was expected instead of `value`; None if it fits or if nobody can tell."""
    if get_origin(hint) in (Union, types.UnionType):
        problems = [problem_with(value, part) for part in get_args(hint)]
        return None if None in problems else " or ".join(problem for problem in problems if problem)
    if get_origin(hint) is Annotated:
        base, *bounds = get_args(hint)
        if problem := problem_with(value, base):
            return problem
        broken = []
        for bound in bounds:
            attribute, text, holds = BOUNDS.get(type(bound), ("", "", None))
            if holds and not holds(value, limit := getattr(bound, attribute)):
                broken.append(f"at least {limit + 1}" if (attribute, base) == ("gt", int) else f"{text} {limit}")
        return " and ".join(broken) or None
    if get_origin(hint) is Literal:
        return None if value in get_args(hint) else f"one of {', '.join(map(str, get_args(hint)))}"
    if hint in (None, types.NoneType):
        return None if value is None else "none"
    if hint in KINDS:
        return None if _is(value, hint) else KINDS[hint]
    return None


def _is(value: Any, kind: type) -> bool:
    for other, types_of in ((bool, bool | np.bool_), (str, str)):
        if isinstance(value, types_of) or kind is other:
            return isinstance(value, types_of) and kind is other
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return not math.isnan(number) and (kind is float or number.is_integer())


def unknown_parameter(name: str, cls: type) -> str:
    """Why the constructor of a class does not take a parameter, and which it takes.

    Some libraries, such as TorchRL, look for Python's words "unexpected keyword argument".
    """
    accepted: list[str] = []
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = inspect.signature(base).parameters.values()
            accepted += [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
            if base.__module__ == "rlmem_envs.core.batched":
                break
    own = [name for name in dict.fromkeys(accepted) if name not in INTERNAL]
    near = difflib.get_close_matches(name, own, 1)
    hint = f" (did you mean `{near[0]}`?)" if near else ""
    problem = f"{cls.__name__} has no parameter `{name}`{hint}; it has: {', '.join(own)}"
    return f"{problem} (unexpected keyword argument '{name}')"


INTERNAL = (
    "observation_space",
    "action_space",
    "params",
    "sight",
    "most_steps",
    "right",
    "wrong",
    "pictures",
    "full_space",
    "asked",
    "answers",
    "held",
)
"""Arguments that constructors pass to their bases."""
