"""Perceptrons, linear layers and activations by turns, by a kernel of the native engine (docs/design.md, "Decisions").

A few rows go through all layers at once, so that what is between layers stays in the cache.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from rlmem.scan import native
from rlmem.scan.native import FEW, KERNEL_LEADS, LITTLE, Linear, addressable, derived, derives_once

ACTIVATIONS: dict[type[nn.Module], int] = {nn.LeakyReLU: 0, nn.ReLU: 1, nn.Tanh: 2}
"""The activations that the kernel has, and their numbers there."""
SLOPE = 0.01
"""Of the kernel's LeakyReLU, torch's default."""
ROWS = 256
"""Rows that go through all layers at once, as in perceptron.cpp."""


class Layers(NamedTuple):
    """Layers that the kernel can read one after the other.

    weights: [m, k] of each
    biases: [m] of each
    activation: the number in `ACTIVATIONS` of all activations
    active: whether one follows, for each
    """

    weights: list[Tensor]
    biases: list[Tensor]
    activation: int
    active: list[bool]


class Perceptron(nn.Sequential):
    """`nn.Sequential`, computed by `through`."""

    def forward(self, input: Tensor) -> Tensor:
        return through(self, input)


def through(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """What modules, each applied to what the one before returns, make of x [..., k]: [..., m].

    Where they are linear layers and activations, as `perceptrons` of them. Each by itself if there are others, if hooks
    wait for one, and where the kernel cannot read the tensors or would not pay.
    """
    return through_each([tuple(modules)], x)[0]


def through_each(rows: Sequence[Sequence[nn.Module]], x: Tensor) -> list[Tensor]:
    """`through` of several rows of modules that read the same x; their gradients are added up where they arise."""
    if not torch.compiler.is_compiling() and _may_pay(x):  # in that order: sizes are symbols there
        layers = [_layers(modules) for modules in rows]
        known = [found for found in layers if found is not None and _takes(x, found)]
        if len(known) == len(rows):
            return perceptrons(x, known)
    return [_by_themselves(modules, x) for modules in rows]


def _by_themselves(modules: Sequence[nn.Module], x: Tensor) -> Tensor:
    for module in modules:
        x = module(x)
    return x


def _may_pay(x: Tensor) -> bool:
    """Whether the kernel can be faster than one layer after the other; asked first, as looking at layers takes time."""
    if not isinstance(x, Tensor) or x.dim() == 0:
        return False
    return x.numel() > FEW * x.shape[-1] or torch.is_grad_enabled() or derives_once()


def is_hooked(module: nn.Module) -> bool:
    """Whether hooks of its own wait for what goes into a module or comes out of it."""
    found = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(found)


def perceptrons(x: Tensor, several: Sequence[Layers]) -> list[Tensor]:
    """What the last layers of several perceptrons make of x [..., k]: [..., m] each; differentiable.

    A row is to the bit what it is alone, and what `linear` and the activations make of it one after the
    other; but for Tanh, which is the kernel's own.
    """
    rows = addressable(x.flatten(0, -2) if x.dim() > 1 else x[None])
    if torch.is_grad_enabled():
        kinds = [(len(layers.weights), layers.activation, layers.active) for layers in several]
        parameters = (parameter for layers in several for parameter in (*layers.weights, *layers.biases))
        made: Iterable[Tensor] = _Perceptrons.apply(rows, kinds, *parameters)
    else:
        made = (_forward(rows, layers, keep=False)[-1] for layers in several)
    return [y.view(*x.shape[:-1], y.shape[-1]) for y in made]


def _layers(modules: Iterable[nn.Module]) -> Layers | None:
    """Layers and activations of modules in a row, nested or not; None where there are others."""
    weights, biases, active, kinds = list[Tensor](), list[Tensor](), list[bool](), set[type[nn.Module]]()
    for module in _flat(modules):
        kind = type(module)
        if is_hooked(module):
            return None
        found = module._parameters  # far faster than attributes of a module
        if kind is Linear:
            weight, bias = found.get("weight"), found.get("bias")
            if weight is None or bias is None:
                return None
            weights.append(weight)
            biases.append(bias)
            active.append(False)
        elif kind in ACTIVATIONS and active and not active[-1] and getattr(module, "negative_slope", SLOPE) == SLOPE:
            active[-1] = True
            kinds.add(kind)
        else:
            return None
    fit = all(after.shape[1] == len(before) for before, after in pairwise(weights))  # or else torch says so
    if len(weights) + sum(active) < 2 or len(kinds) > 1 or not fit:
        return None
    return Layers(weights, biases, ACTIVATIONS[kinds.pop()] if kinds else 0, active)


def _flat(modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    sequences = nn.Sequential, Perceptron
    for module in modules:
        if type(module) in sequences and not is_hooked(module):
            yield from _flat(cast(nn.Sequential, module))
        else:
            yield module


def _takes(x: Tensor, layers: Layers) -> bool:
    """Whether the kernel reads such tensors, and has enough to do where a gradient is recorded."""
    if not KERNEL_LEADS or not x.numel() or x.shape[-1] != layers.weights[0].shape[1]:
        return False
    if torch.is_grad_enabled() and x.numel() // x.shape[-1] * sum(W.numel() for W in layers.weights) <= LITTLE:
        return False
    return native.takes(x, *layers.weights, *layers.biases)


Kind = tuple[int, int, list[bool]]
"""The number of `Layers`, and what they have beside parameters."""


class _Perceptrons(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, kinds: list[Kind], *parameters: Tensor) -> tuple[Tensor, ...]:
        between = [_forward(x, layers, keep=True) for layers in _together(parameters, kinds)]
        # The last, which callers may write to, is read again only for an activation.
        read = (
            (*outputs[:-1], outputs[-1] if kind[2][-1] else None) for outputs, kind in zip(between, kinds, strict=True)
        )
        ctx.save_for_backward(x, *parameters, *chain(*read))
        ctx.kinds = kinds
        return tuple(outputs[-1] for outputs in between)

    @staticmethod
    def backward(ctx, *grads_y: Tensor):
        x, *others = ctx.saved_tensors
        count = sum(layers for layers, *_ in ctx.kinds)
        parameters, between = others[: 2 * count], iter(others[2 * count :])
        several = _together(parameters, ctx.kinds)
        needs_x, _, *needs = ctx.needs_input_grad
        if torch.is_grad_enabled():  # it will be differentiated again
            inputs = [v.view_as(v) for v in (x, *parameters)]  # x may depend on parameters, and one may stand twice
            wanted = [v for v, asked in zip(inputs, [needs_x, *needs], strict=True) if asked]
            made = [_plain(inputs[0], layers) for layers in _together(inputs[1:], ctx.kinds)]
            grads = iter(torch.autograd.grad(made, wanted, grads_y, create_graph=True))
            of_x, *of_parameters = (next(grads) if asked else None for asked in [needs_x, *needs])
            return of_x, None, *of_parameters
        grad_x = torch.empty_like(x) if needs_x else None
        grads_of_all: list[Tensor | None] = []
        for i, (layers, grad_y) in enumerate(zip(several, grads_y, strict=True)):
            outputs = [next(between) for _ in layers.weights]
            needed = any(needs[len(grads_of_all) :][: 2 * len(outputs)])
            grads_of_all += _backward(x, layers, outputs, addressable(grad_y), grad_x, i > 0, needed)
        return grad_x, None, *grads_of_all


def _together(parameters: Sequence[Tensor], kinds: Sequence[Kind]) -> list[Layers]:
    """Layers from the parameters of all, of each first the weights."""
    left, found = iter(parameters), list[Layers]()
    for count, activation, active in kinds:
        weights, biases = ([next(left) for _ in range(count)] for _ in range(2))
        found.append(Layers(weights, biases, activation, active))
    return found


def _backward(
    x: Tensor,
    layers: Layers,
    outputs: list[Tensor | None],
    grad_y: Tensor,
    grad_x: Tensor | None,
    adds: bool,
    needed: bool,
) -> list[Tensor | None]:
    """The gradients of weights and biases, if they are needed; writes that of x, if `grad_x` is given.

    outputs: of every layer; the last may be None if it has no activation
    adds: whether to add to `grad_x`
    """
    parts = max(1, min(native.MOST_SUMS, len(x) // ROWS))
    sizes = [size for W in layers.weights for size in (W.numel(), len(W))]
    sums = x.new_empty(parts, sum(sizes)) if needed else None
    _run("perceptron_backward", x, layers, outputs, grad_y, grad_x, adds, sums, sum(sizes), parts)
    if sums is None:
        return [None] * len(sizes)
    of = (sums[0] if parts == 1 else sums.sum(0)).split(sizes)
    return [*(grad.view_as(W) for grad, W in zip(of[::2], layers.weights, strict=True)), *of[1::2]]


def _forward(x: Tensor, layers: Layers, keep: bool) -> list[Tensor]:
    """What each layer makes of x [n, k]: [n, m] each; the last alone unless they are kept."""
    made = [x.new_empty(len(x), len(W)) for W in layers.weights[0 if keep else -1 :]]
    panels = [derived("packed", W, native.packed) for W in layers.weights] if derives_once() else None
    _run("perceptron_forward", x, layers, [*[None] * (len(layers.weights) - len(made)), *made], panels=panels)
    return made


def _plain(x: Tensor, layers: Layers) -> Tensor:
    phi = next(kind for kind, number in ACTIVATIONS.items() if number == layers.activation)()
    for W, b, active in zip(layers.weights, layers.biases, layers.active, strict=True):
        x = nn.functional.linear(x, W, b)
        x = phi(x) if active else x
    return x


def _run(
    name: str,
    x: Tensor,
    layers: Layers,
    between: Sequence[Tensor | None],
    *more: Tensor | int | None,
    panels: Sequence[Tensor] | None = None,
) -> None:
    """Call a kernel with rows, layers, what all kernels ask for, and more.

    between: what each layer has made or will make
    panels: of the weights; None: the kernel packs them
    """
    numbers, at = list[int](), 0  # eight for each: `Layer` in perceptron.cpp
    weights, biases = ([addressable(v) for v in some] for some in (layers.weights, layers.biases))
    for i, (W, b, y, active) in enumerate(zip(weights, biases, between, layers.active, strict=True)):
        m, k = W.shape
        addresses = W.data_ptr(), panels[i].data_ptr() if panels else 0, b.data_ptr(), 0 if y is None else y.data_ptr()
        numbers += [*addresses, at, k, m, active]
        at += m * k + m
    table = (ctypes.c_int64 * len(numbers))(*numbers)
    threads = native.threads_for(len(x) * at >> 4)
    rest = (v.data_ptr() if isinstance(v, Tensor) else v for v in more)
    given = x.data_ptr(), table, len(weights), layers.activation, len(x), threads, native.team()
    _kernel(name, x.dtype)(*given, *rest)


@cache
def _kernel(name: str, dtype: torch.dtype) -> Callable[..., None]:
    kernel: Any = native.kernel_of(name, dtype)[0]
    address, size = ctypes.c_void_p, ctypes.c_int64
    backward = [address, address, size, address, size, size]
    kernel.argtypes = [address, address, size, size, size, size, address] + (backward if "backward" in name else [])
    return cast(Callable[..., None], kernel)
