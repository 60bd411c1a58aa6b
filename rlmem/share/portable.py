"""A graph in operators that ONNX has: complex numbers as pairs of real ones, and what else it lacks in other words."""

from collections.abc import Callable, Mapping
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map

from rlmem.core.errors import UserError

aten = torch.ops.aten


class Pair(NamedTuple):
    """re + i im."""

    re: Tensor
    im: Tensor

    @classmethod
    def of(cls, x: Any) -> "Pair":
        """A number or a tensor, real or complex, as a pair."""
        if isinstance(x, Pair):
            return x
        if isinstance(x, complex):
            return cls(torch.tensor(x.real), torch.tensor(x.imag))
        if isinstance(x, Tensor) and x.is_complex():
            return cls(x.real.clone(), x.imag.clone())
        x = torch.as_tensor(x)
        return cls(x, torch.zeros_like(x))


def _multiply(x: Any, y: Any) -> Pair:
    if not isinstance(x, Pair) or not isinstance(y, Pair):  # a real factor is exact, and half the work
        pair, factor = (x, y) if isinstance(x, Pair) else (y, x)
        return Pair(pair.re * factor, pair.im * factor)
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def _divide(x: Any, y: Any) -> Pair:
    if not isinstance(y, Pair):
        return Pair(x.re / y, x.im / y)
    size = y.re.square() + y.im.square()
    above = _multiply(x, Pair(y.re, -y.im))
    return Pair(above.re / size, above.im / size)


def _exp(x: Pair) -> Pair:
    size = x.re.exp()
    return Pair(size * x.im.cos(), size * x.im.sin())


def _added(sign: int) -> Callable[..., Pair]:
    def add(x: Any, y: Any, alpha: float = 1) -> Pair:
        x, y = Pair.of(x), Pair.of(y)
        return Pair(x.re + sign * alpha * y.re, x.im + sign * alpha * y.im)

    return add


def _where(condition: Tensor, x: Any, y: Any) -> Pair:
    x, y = Pair.of(x), Pair.of(y)
    return Pair(torch.where(condition, x.re, y.re), torch.where(condition, x.im, y.im))


def _full_like(x: Pair, value: complex, **how: Any) -> Pair:
    return Pair(torch.full_like(x.re, value.real), torch.full_like(x.im, value.imag))


REPLACED: Mapping[Any, Callable[..., Any]] = {
    aten.cumprod.default: lambda x, dim: torch.stack(list(accumulate(x.unbind(dim), mul)), dim),
}
"""Operators of real numbers that the exporter to ONNX lacks, in others."""

ON_PAIRS: Mapping[Any, Callable[..., Any]] = {
    aten.add.Tensor: _added(1),
    aten.sub.Tensor: _added(-1),
    aten.mul.Tensor: _multiply,
    aten.div.Tensor: _divide,
    aten.exp.default: _exp,
    aten.polar.default: lambda size, angle: Pair(size * angle.cos(), size * angle.sin()),
    aten.complex.default: Pair,
    aten.where.self: _where,
    aten.full_like.default: _full_like,
    aten._conj_physical.default: lambda x: Pair(x.re, -x.im),
    aten.view_as_real.default: lambda x: torch.stack(x, -1),
    aten.view_as_complex.default: lambda x: Pair(x[..., 0], x[..., 1]),
    aten.sym_size.int: lambda x, dim: x.re.shape[dim],
}
"""The operators with complex arguments or results that the memories use, on pairs."""

EACH = (
    aten.neg.default, aten.clone.default, aten.view.default, aten.expand.default, aten.unsqueeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.select.int, aten.slice.Tensor, aten.permute.default, aten.cat.default,
    aten.sum.dim_IntList,
)  # fmt: skip
"""Operators that act on real and imaginary parts alike."""


WITHOUT_DROPOUT = (aten.scaled_dot_product_attention.default,)
"""Operators that could draw random numbers, and draw none as they are used."""


class Portable(nn.Module):
    """An exported graph, computed by the operators above in the place of those that ONNX lacks.

    Raises UserError, naming the operator, if one of complex numbers has no form on pairs.
    """

    def __init__(self, program: ExportedProgram):
        super().__init__()
        self.traced = program.module()  # not `graph`, which a module of torch.fx has itself

    def forward(self, *inputs: Tensor) -> Any:
        interpreter = _Interpreter(self.traced)
        interpreter.extra_traceback = False  # an error is a sentence
        return interpreter.run(*inputs)


class _Interpreter(fx.Interpreter):
    """Runs a graph with pairs in the place of complex tensors."""

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "get_attr":
            found = super().run_node(n)
            return Pair.of(found) if isinstance(found, Tensor) and found.is_complex() else found
        if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) and n.target not in WITHOUT_DROPOUT:
            raise UserError(f"cannot be exported: it draws random numbers as it reads ({n.target})")
        if n.op != "call_function" or (n.target not in REPLACED and not _has_complex(n)):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target in REPLACED:
            return REPLACED[n.target](*args, **kwargs)
        if n.target in ON_PAIRS:
            return ON_PAIRS[n.target](*args, **kwargs)
        if n.target in EACH:
            re, im = (tree_map(lambda x, i=i: x[i] if _is_pair(x) else x, args, is_leaf=_is_pair) for i in (0, 1))
            return Pair(n.target(*re, **kwargs), n.target(*im, **kwargs))
        raise UserError(f"cannot be exported: {n.target} of complex numbers has no form on pairs of real ones")


def _is_pair(x: Any) -> bool:
    return isinstance(x, Pair)


def _has_complex(call: fx.Node) -> bool:
    """Whether a call has complex tensors among its arguments or results."""
    values = (node.meta.get("val") for node in (call, *call.all_input_nodes))
    return any(isinstance(value, Tensor) and value.is_complex() for value in values)
