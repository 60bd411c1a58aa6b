"""Methods of networks whose operators torch fuses where a run asks for it (`compile=inductor`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")

MOST_COMPILED = 64
"""Forms of a compiled method, by the kinds of its inputs, above which torch would silently go on without compiling."""


class Inductor:
    """Fuses operators.

    Sizes are symbols from the first call on: code for the sizes that were seen so far would be other code, which rounds
    otherwise, in a run that was resumed. Weights are inputs of the code, so that a target network shares it.
    """

    def __init__(self) -> None:
        torch._dynamo.config.recompile_limit = MOST_COMPILED

    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """`method(module, *args, **kwargs)`, compiled."""
        return cast(R, _fused(method)(module, *args, **kwargs))

    def __deepcopy__(self, memo: object) -> Inductor:
        return self


def compilable(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """`method`, or its compiled form in modules whose attribute `compiler` is an `Inductor`."""

    @wraps(method)
    def call(self: M, *args: P.args, **kwargs: P.kwargs) -> R:
        inside = torch.compiler.is_compiling()  # of another such method, whose code then includes this one
        compiler = None if inside else self.__dict__.get("compiler")
        return (
            compiler.call(method, self, args, kwargs)
            if isinstance(compiler, Inductor)
            else method(self, *args, **kwargs)
        )

    return call


# Only when it is needed: torch takes seconds to import its compiler.
@cache
def _fused(method: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(method, dynamic=True)
