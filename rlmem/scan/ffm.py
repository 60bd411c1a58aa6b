"""A whole unroll of Fast and Forgetful Memory, by kernels that make one pass for each of its gates."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.core.types import where_start
from rlmem.scan import native, triton_scan
from rlmem.scan.linear import linear_scan
from rlmem.scan.native import Engine, addressable, check_flags, chosen_engine, gradient_of_weight, linear

_SCANS = {"native": native, "triton": triton_scan}
"""The engines that have the kernels; the former for tensors on the CPU, the latter on CUDA."""
SLOTS_OF_PART = 512
"""With fewer, a sum of its own does not pay."""


def ffm_unroll(
    p: Tensor,
    gamma: Tensor,
    W_mix: Tensor,
    b_mix: Tensor,
    state: Tensor,
    start: Tensor,
    engine: Engine = "auto",
    which: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """y [B, T, H] and the final S [B, m, c], from the projections p [B, T, 2 m + 2 H] of the inputs.

    By kernels where the engine has them, else by a linear scan. Raises ValueError for what kernels could not read:
    projections or a state of another type or size, and rows that there are not.

    p: value [m], skip [H], gate_in [m] and gate_out [H] of every slot, in that order
    gamma: [m, c] complex, constant over time
    W_mix: [H, 2 m c]
    b_mix: [H]
    state: [B, m, c] complex
    start: [B, T] bool
    which: [B, T] int64, which row of p [n, 2 m + 2 H] each slot has; None: p is as above
    """
    kernels = _kernels(p, engine)
    if kernels is not None:
        check_flags(start, *start.shape)
        _check_state(p, len(start), state, gamma)
        return _Unroll.apply(p, gamma, W_mix, b_mix, state, start, kernels, which)
    u, skip, gate_out = _gated(p, gamma, len(b_mix), which)
    S = linear_scan(gamma, u, state, start, engine)
    return _mixed(S, skip, gate_out, W_mix, b_mix), S[:, -1].clone()  # not a view of all S


def ffm_step(
    p: Tensor,
    gamma: Tensor,
    W_mix: Tensor,
    b_mix: Tensor,
    state: Tensor,
    start: Tensor,
    engine: Engine = "auto",
    which: Tensor | None = None,
    panels: Callable[[], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """`ffm_unroll` of one slot, p [B, 2 m + 2 H] and start [B]: y [B, H] and S [B, m, c].

    which: [B] int64, as there
    panels: W_mix, as `rlmem.scan.native.linear` takes it
    """
    kernels = None if torch.is_grad_enabled() else _kernels(p, engine)
    if kernels is None:
        u, skip, gate_out = _gated(p, gamma, len(b_mix), which)
        S = gamma * where_start(start, torch.zeros_like(state), state) + u
        return _mixed(S, skip, gate_out, W_mix, b_mix), S
    (m, c), H, B = gamma.shape, len(b_mix), len(start)
    check_flags(start[:, None], B, 1)
    _check_state(p, B, state, gamma)
    S, y = state.new_empty(state.shape), p.new_empty(B, H)
    rows = _Rows(addressable(p), which, B, kernels, m, H)
    rows.run("ffm_step", *(addressable(v) for v in (gamma, state, start)), S, width=m * c, c=c)
    z = linear(torch.view_as_real(S).flatten(1), W_mix, b_mix, panels)
    rows.run("ffm_out_forward", z, y, width=H)
    return y, S


def _gated(p: Tensor, gamma: Tensor, H: int, which: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What the scan adds [..., m, 1], skip [..., H] and gate_out [..., H], from the projections."""
    m = len(gamma)
    value, skip, gate_in, gate_out = (p if which is None else F.embedding(which, p)).split([m, H, m, H], -1)
    return (value * torch.sigmoid(gate_in))[..., None], skip, gate_out


def _mixed(S: Tensor, skip: Tensor, gate_out: Tensor, W_mix: Tensor, b_mix: Tensor) -> Tensor:
    """y [..., H] from the states."""
    z = linear(torch.view_as_real(S).flatten(-3), W_mix, b_mix)
    return torch.lerp(skip, F.layer_norm(z, z.shape[-1:]), torch.sigmoid(gate_out))


def _kernels(p: Tensor, engine: Engine) -> Engine | None:
    """The engine whose kernels read projections such as p; None: there is none."""
    plain = torch.compiler.is_compiling() or torch.is_autocast_enabled(p.device.type)
    if plain or p.dtype not in (torch.float32, torch.float64):
        return None
    chosen = chosen_engine(engine, p.device)
    return chosen if chosen in _SCANS else None


def _check_state(p: Tensor, B: int, state: Tensor, gamma: Tensor) -> None:
    """Raise ValueError unless `state` [B, m, c] and `gamma` have p's precision: kernels read them by address."""
    shape, kind = (B, *gamma.shape), p.dtype.to_complex()
    if state.shape != shape or {state.dtype, gamma.dtype} != {kind}:
        raise ValueError(f"state: expected {kind} {list(shape)}, got {state.dtype} {list(state.shape)}")


class _Unroll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p, gamma, W_mix, b_mix, state, start, engine: Engine, which) -> tuple[Tensor, Tensor]:
        (B, T), (m, c), H = start.shape, gamma.shape, len(b_mix)
        rows = _Rows(addressable(p.flatten(0, -2)), which, B * T, engine, m, H)
        u, y = p.new_empty(B, T, m), p.new_empty(B, T, H)
        rows.run("ffm_in_forward", u)
        decay, first = (addressable(v) for v in (gamma.flatten(), state.flatten(1)))
        start = addressable(start)
        h = _SCANS[engine].forward(decay, u if c > 1 else u.to(decay.dtype), first, start, False)
        z = linear(_pairs(h), W_mix, b_mix)
        rows.run("ffm_out_forward", z, y, width=H)
        ctx.save_for_backward(rows.p, rows.which, decay, first, start, h, z, W_mix)
        ctx.sizes, ctx.shape, ctx.engine = (B, T, m, c, H), p.shape, engine
        return y, h[:, -1].view(B, m, c).clone()  # not a view, which would keep h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y: Tensor, grad_last: Tensor):
        p, which, decay, first, start, h, z, W_mix = ctx.saved_tensors
        (B, T, m, c, H), engine = ctx.sizes, ctx.engine
        rows = _Rows(p, which, B * T, engine, m, H)
        grad_z, grads_p = torch.empty_like(z), rows.gradients()
        rows.run_back("ffm_out_backward", z, addressable(grad_y), grad_z, grads_p)
        grad_h = torch.view_as_complex(linear(grad_z, W_mix.t()).view(B, T, m * c, 2))
        grad_h[:, -1] += grad_last.reshape(B, m * c)
        needs_gamma = ctx.needs_input_grad[1]
        grad_gamma, grad_u, grad_first = _SCANS[engine].backward(decay, h, first, start, grad_h, m, needs_gamma, False)
        rows.run_back("ffm_in_backward", grad_u.real.contiguous() if c == 1 else grad_u, grads_p)
        grad_gamma = None if grad_gamma is None else grad_gamma.view(m, c)
        grad_mix, grad_first = gradient_of_weight(grad_z, _pairs(h)), grad_first.view(B, m, c)
        grad_p = grads_p[0] if len(grads_p) == 1 else grads_p.sum(0)
        return grad_p.view(ctx.shape), grad_gamma, grad_mix, grad_z.sum(0), grad_first, *[None] * 4


def _pairs(h: Tensor) -> Tensor:
    """The states of all slots as rows of real numbers [B T, 2 m c], without a copy."""
    return torch.view_as_real(h).flatten(2).flatten(0, 1)


class _Rows:
    """The projections of all slots, and the kernels that read them slot by slot, or write their gradients.

    p: [n, 2 m + 2 H], contiguous
    which: which row of it each slot has, in any shape; None: one of its own each
    count: of slots
    """

    def __init__(self, p: Tensor, which: Tensor | None, count: int, engine: Engine, m: int, H: int):
        self.p, self.count, self.engine, self.m, self.H = p, count, engine, m, H
        self.which = None if which is None else addressable(which)
        rows = count if which is None else len(p)
        if p.shape != (rows, 2 * (m + H)):
            raise ValueError(f"p: expected {[rows, 2 * (m + H)]}, got {list(p.shape)}")
        if which is None:
            return
        if engine != "native" or not which.is_cpu or which.numel() != count or which.dtype != torch.long:
            raise ValueError(f"which: expected {count} integers, on the native engine, got {list(which.shape)}")
        least, most = map(int, which.aminmax()) if count else (0, -1)
        if least < 0 or most >= rows:  # the kernels read by address
            raise ValueError(f"which: expected numbers of {rows} rows, got {least} to {most}")

    def run(self, name: str, *tensors: Tensor, width: int | None = None, c: int | None = None) -> None:
        """Run a kernel for every slot.

        width: numbers of a slot, by default m + H
        c: what `ffm_step` needs beside
        """
        m, H = self.m, self.H
        if self.engine == "native":
            more = () if c is None else (c,)
            native.run_rows(name, (self.p, self.which, *tensors, *more), (m, H), self.count, width or m + H)
        else:
            self._launch(name, tensors, width, **({} if c is None else {"c": c}))

    def gradients(self) -> Tensor:
        """Memory for the gradients of p: [parts, *p.shape], which are to be added up.

        If slots share rows, some parts of the slots have sums of their own each, which do not depend on threads.
        """
        if self.which is None:
            return torch.empty_like(self.p)[None]
        enough = min(self.count // SLOTS_OF_PART, self.count // (4 * len(self.p)))
        return self.p.new_zeros(max(1, min(native.MOST_SUMS, enough)), *self.p.shape)

    def run_back(self, name: str, *tensors: Tensor) -> None:
        """Run a kernel that writes to what `gradients` returned, the last of the tensors."""
        if self.engine != "native":
            return self._launch(name, tensors, None)
        threads = native.threads_for(self.count * (self.m + self.H))
        parts = max(1, min(threads, self.count)) if self.which is None else len(tensors[-1])
        size = 0 if self.which is None else self.p.numel()
        ranges = native.shares(parts, min(threads, parts))
        calls = [(self.m, self.H, *some, self.count, parts, size) for some in ranges]
        native.call_in_parallel(name, (self.p, self.which, *tensors), calls)

    def _launch(self, name: str, tensors: tuple[Tensor, ...], width: int | None, **more: int) -> None:
        m, H = self.m, self.H
        block = 1 << (max(width or 0, m, H) - 1).bit_length()
        grid = (self.count,)
        triton_scan.launch(name, grid, (self.p, *tensors), **more, m=m, H=H, BLOCK=block)
