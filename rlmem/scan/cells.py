"""Cells over packed episodes: GRU, BRC, LSTM and sLSTM by kernels, a call for the whole sequence each way; the loop
over steps, which is the definition; and a fast loop with hand-written gradients.

S slots of E episodes lie in the order of `torch.nn.utils.rnn.PackedSequence`; `sizes` [T] has the number of episodes
that take part in each step, on the CPU, and does not grow. The gradient of U is one product over all slots.

The input's part (`wx`; `gates` and `candidate` of BRC) is overwritten by what the cell makes of it: it must be an
intermediate result that nothing else reads.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.core.types import State
from rlmem.scan import native
from rlmem.scan.native import addressable, gradient_of_weight, packed

Panels = Callable[[], Tensor] | None
"""A method `of_weights` that returns U as `packed` does, or the panels of each head; None: they are made here."""


def gru(wx: Tensor, h0: Tensor, U: Tensor, bias: Tensor, sizes: Tensor, panels: Panels = None) -> Tensor:
    """All states h [S, H] of r, z = sigmoid(wx + uh), n = tanh(wx_n + r * uh_n), h' = n + z * (h - n), uh = U h + bias.

    wx: [S, 3H], the input's part of r, z, n
    h0: [E, H], the first states
    U: [3H, H]
    bias: [3H]
    """
    _check(wx, U.shape, sizes, h0)
    h: Tensor = _GRU.apply(*map(addressable, (wx, h0, U, bias)), sizes, panels)
    return h


def brc(gates: Tensor, candidate: Tensor, h0: Tensor, U: Tensor, sizes: Tensor) -> Tensor:
    """All states h [S, H] of r = tanh(wx + uh), c = sigmoid(wx + uh), n = tanh(wx + (1 + r) * h), h' = n + c * (h - n).

    gates: [S, 2H], the input's part of r and c, with all biases
    candidate: [S, H], that of n
    h0: [E, H], the first states
    U: [2H, H], uh = U h; or [2H], a row of H for r and one for c that act elementwise
    """
    H = h0.shape[1]
    _check(gates, (2 * H, H), sizes, h0)
    if candidate.shape != (len(gates), H) or U.shape not in ((2 * H,), (2 * H, H)):
        raise ValueError(f"expected a candidate {[len(gates), H]} and U {[2 * H, H]} or {[2 * H]}")
    h: Tensor = _BRC.apply(*map(addressable, (gates, candidate, h0, U)), sizes)
    return h


def lstm(wx: Tensor, h0: Tensor, c0: Tensor, U: Tensor, sizes: Tensor, panels: Panels = None) -> tuple[Tensor, Tensor]:
    """All states h and c [S, H] of c' = f * c + i * g, h' = o * tanh(c'); i, f, o = sigmoid, g = tanh of wx + U h.

    wx: [S, 4H], the input's part of i, f, g, o, with all biases
    h0, c0: [E, H], the first states
    U: [4H, H]
    """
    _check(wx, U.shape, sizes, h0, c0)
    states: tuple[Tensor, Tensor] = _LSTM.apply(*map(addressable, (wx, h0, c0, U)), sizes, panels)
    return states


def slstm(
    wx: Tensor,
    h0: Tensor,
    c0: Tensor,
    n0: Tensor,
    m0: Tensor,
    U: Tensor,
    sizes: Tensor,
    panels: Panels = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All states h, c, n and m [S, H] of `rlmem.memory.xlstm.SLSTM`; no gradient flows through m but from m0.

    wx: [S, 4H], the input's part of i, f, z, o of the first head, then of the next, with all biases
    h0, c0, n0, m0: [E, H], the first states
    U: [heads, 4P, P] with P = H / heads, the four gates of a head one above the other
    """
    heads, gates, P = U.shape
    _check(wx, (heads * gates, heads * P), sizes, h0, c0, n0, m0)
    states: tuple[Tensor, Tensor, Tensor, Tensor] = _SLSTM.apply(
        *map(addressable, (wx, h0, c0, n0, m0, U)), sizes, panels
    )
    return states


def _check(wx: Tensor, widths: Sequence[int], sizes: Tensor, *first: Tensor) -> None:
    """Raise ValueError unless types, rows and widths, those of gates and of states, fit: kernels read by address."""
    steps, (gates, H) = sizes.tolist(), widths
    rows, episodes = sum(steps), steps[0]
    if wx.shape != (rows, gates) or any(state.shape != (episodes, H) for state in first):
        shapes = f"{list(wx.shape)} and {[list(state.shape) for state in first]}"
        raise ValueError(f"expected inputs {[rows, gates]} and first states {[episodes, H]}, got {shapes}")
    if any(state.dtype != wx.dtype for state in first):
        raise ValueError(f"expected states of dtype {wx.dtype}, as the inputs have, got {[s.dtype for s in first]}")


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, U: Tensor, bias: Tensor, sizes: Tensor, panels: Panels) -> Tensor:
        (E, H), S = h0.shape, len(wx)
        uh_n, h, work = wx.new_empty(S, H), wx.new_empty(S, H), wx.new_empty(E, 3 * H)
        P = packed(U) if panels is None else panels()
        _call("gru_forward", (wx, h0, P, bias, sizes, uh_n, h, work), len(sizes), H)
        ctx.save_for_backward(wx, uh_n, h, h0, U, sizes)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor):
        gates, uh_n, h, h0, U, sizes = ctx.saved_tensors
        grad_wx, grad_uh, grad_h0 = torch.empty_like(gates), torch.empty_like(gates), torch.zeros_like(h0)
        grads = addressable(grad_h), grad_wx, grad_uh, grad_h0
        _call("gru_backward", (gates, uh_n, h, h0, packed(U.t()), sizes, *grads, len(h)), len(sizes), h.shape[1])
        before = previous_states(h0, h, sizes.tolist())
        return grad_wx, grad_h0, gradient_of_weight(grad_uh, before), grad_uh.sum(0), None, None


class _BRC(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates: Tensor, candidate: Tensor, h0: Tensor, U: Tensor, sizes: Tensor) -> Tensor:
        h, work, elementwise = torch.empty_like(candidate), h0.new_empty(len(h0), gates.shape[1]), U.dim() == 1
        tensors = gates, candidate, h0, U if elementwise else packed(U), sizes, h, work
        _call("brc_forward", (*tensors, elementwise), len(sizes), h.shape[1])
        ctx.save_for_backward(gates, candidate, h, h0, U, sizes)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor):
        gates, candidate, h, h0, U, sizes = ctx.saved_tensors
        grad_gates, grad_candidate, grad_h0 = *map(torch.empty_like, (gates, candidate)), torch.zeros_like(h0)
        grads = addressable(grad_h), grad_gates, grad_candidate, grad_h0
        elementwise = U.dim() == 1
        tensors = gates, candidate, h, h0, U if elementwise else packed(U.t()), sizes, *grads
        _call("brc_backward", (*tensors, elementwise, len(h)), len(sizes), h.shape[1])
        before = previous_states(h0, h, sizes.tolist())
        grad_U = (grad_gates * before.repeat(1, 2)).sum(0) if elementwise else gradient_of_weight(grad_gates, before)
        return grad_gates, grad_candidate, grad_h0, grad_U, None


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, wx: Tensor, h0: Tensor, c0: Tensor, U: Tensor, sizes: Tensor, panels: Panels
    ) -> tuple[Tensor, Tensor]:
        H, P = h0.shape[1], packed(U) if panels is None else panels()
        h, c = wx.new_empty(len(wx), H), wx.new_empty(len(wx), H)
        _call("lstm_forward", (wx, h0, c0, P, sizes, h, c), len(sizes), H)
        ctx.save_for_backward(wx, h, c, h0, c0, U, sizes)
        return h, c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor, grad_c: Tensor):
        gates, h, c, h0, c0, U, sizes = ctx.saved_tensors
        grad_wx, grad_h0, grad_c0 = torch.empty_like(gates), torch.zeros_like(h0), torch.zeros_like(c0)
        grads = addressable(grad_h), addressable(grad_c), grad_wx, grad_h0, grad_c0
        _call("lstm_backward", (gates, c, c0, packed(U.t()), sizes, *grads, len(h)), len(sizes), h.shape[1])
        before = previous_states(h0, h, sizes.tolist())
        return grad_wx, grad_h0, grad_c0, gradient_of_weight(grad_wx, before), None, None


class _SLSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, c0: Tensor, n0: Tensor, m0: Tensor, U: Tensor, sizes: Tensor, panels):
        H, heads = h0.shape[1], len(U)
        h, c, n, m, closing = (wx.new_empty(len(wx), H) for _ in range(5))
        P = of_heads(U) if panels is None else panels()
        tensors = wx, h0, c0, n0, m0, P, sizes, h, c, n, m, closing
        _call("slstm_forward", (*tensors, heads), len(sizes), H)
        ctx.save_for_backward(wx, h, c, n, closing, h0, c0, n0, U, sizes)
        ctx.mark_non_differentiable(m)
        return h, c, n, m

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor, grad_c: Tensor, grad_n: Tensor, _: Tensor):
        gates, h, c, n, closing, h0, c0, n0, U, sizes = ctx.saved_tensors
        grads_of_first = [torch.zeros_like(h0) for _ in range(4)]
        grad_wx, outputs = torch.empty_like(gates), [addressable(x) for x in (grad_h, grad_c, grad_n)]
        tensors = gates, c, n, closing, c0, n0, of_heads(U.mT), sizes, *outputs, grad_wx, *grads_of_first
        _call("slstm_backward", (*tensors, len(U), len(h)), len(sizes), h.shape[1])
        before = previous_states(h0, h, sizes.tolist()).unflatten(1, (len(U), -1))
        grad_U = torch.einsum("shg,shp->hgp", grad_wx.unflatten(1, (len(U), -1)), before)
        return grad_wx, *grads_of_first, grad_U, None, None


def of_heads(U: Tensor) -> Tensor:
    """The panels of each of the matrices U [heads, M, K]."""
    return torch.stack([packed(matrix) for matrix in U])


def _call(kernel: str, arguments: tuple[Any, ...], steps: int, H: int) -> None:
    """Run a kernel of cells.cpp with its arguments, but for the last, which all share."""
    native.call_in_parallel(kernel, arguments, [(steps, H)])


def previous_states(first: Tensor, states: Tensor, sizes: Sequence[int]) -> Tensor:
    """The states [S, H] that packed steps start from, given those they end in and the first ones [E, H]."""
    ends = states.split(sizes)
    return torch.cat([first, *(end[:n] for end, n in zip(ends, sizes[1:], strict=False))])


def over_steps(
    cell: Callable[[Any, State], tuple[Tensor, State]], inputs: Iterable[Any], sizes: list[int], state: State
) -> tuple[Tensor, State]:
    """Call `cell` for every step, from the first states [E, ...]: outputs [S, H], and each episode's final state."""
    outputs, ended, running = [], [], tree_leaves(state)[0].shape[0]
    for x, size in zip(inputs, sizes, strict=True):
        if size < running:
            ended.append(tree_map(lambda s, n=size: s[n:], state))
            state, running = tree_map(lambda s, n=size: s[:n], state), size
        y, state = cell(x, state)
        outputs.append(y)
    ended.append(state)
    return torch.cat(outputs), tree_map(lambda *parts: torch.cat(parts[::-1]), *ended)


ACTIVATIONS = {"tanh": torch.tanh_, "relu": torch.relu_}


class SimpleSequence(torch.autograd.Function):
    """All h [S, H] of h' = phi(wx + U h), on any device; the gradient of U is a single product over all slots.

    wx: [S, H], the input's part
    h0: [E, H], the first states
    U: [H, H], or [H] where it acts elementwise
    activation: phi, "tanh" or "relu"
    width: phi acts on the first `width` of the H units, and the others are linear; None: it acts on all
    """

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, U: Tensor, sizes: list[int], activation: str, width: int | None) -> Tensor:
        h_all, h = torch.empty_like(wx), h0
        for now, wx_t in zip(h_all.split(sizes), wx.split(sizes), strict=True):
            before = h[: len(now)]
            h = torch.addmm(wx_t, before, U.t(), out=now) if U.dim() == 2 else torch.addcmul(wx_t, before, U, out=now)
            ACTIVATIONS[activation](h[:, :width])
        ctx.save_for_backward(h_all, h0, U)
        ctx.sizes, ctx.activation, ctx.width = sizes, activation, width
        return h_all

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h_all: Tensor):
        h_all, h0, U = ctx.saved_tensors
        slope, squashed = torch.ones_like(h_all), h_all[:, : ctx.width]
        slope[:, : ctx.width] = squashed > 0 if ctx.activation == "relu" else 1 - squashed.square()
        grad_wx, grad_h = torch.empty_like(h_all), torch.zeros_like(h0)
        steps = zip(*(x.split(ctx.sizes) for x in (grad_wx, grad_h_all, slope)), strict=True)
        for now, grad_t, slope_t in reversed(list(steps)):
            dh = grad_h[: len(now)]
            torch.mul(dh.add_(grad_t), slope_t, out=now)
            torch.mm(now, U, out=dh) if U.dim() == 2 else torch.mul(now, U, out=dh)
        before = previous_states(h0, h_all, ctx.sizes)
        grad_U = grad_wx.t() @ before if U.dim() == 2 else (grad_wx * before).sum(0)
        return grad_wx, grad_h, grad_U, None, None, None
