"""Methods of networks that `torch.compile` turns into fused code where a run asks for it (`compile=inductor`)."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import nn

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=nn.Module)


def compilable(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """`method`, or its fused form in modules whose attribute `compiled` is true, as it then is in copies of them.

    Sizes are symbols from the first call on: code for the sizes that were seen so far would be other code, which rounds
    otherwise, in a run that was resumed. Weights are inputs of the code, so that a target network shares it.
    """
    fused: list[Any] = []

    @wraps(method)
    def call(self: M, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.__dict__.get("compiled"):
            return method(self, *args, **kwargs)
        if not fused:  # only now: torch needs seconds to import its compiler
            fused.append(torch.compile(method, dynamic=True))
        return cast(R, fused[0](self, *args, **kwargs))

    return call
