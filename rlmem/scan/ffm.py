"""A whole unroll of Fast and Forgetful Memory on the native or triton engine, with one pass for each of its gates."""

from typing import Literal

import torch
from torch import Tensor

from rlmem.scan import native, triton_scan
from rlmem.scan.linear import check_flags
from rlmem.scan.matmul import Precision, gradient_of_weight, linear, product
from rlmem.scan.native import addressable

Fusing = Literal["native", "triton"]
"""The engines that have the kernels; the former for tensors on the CPU, the latter on CUDA."""
_SCANS = {"native": native, "triton": triton_scan}


def ffm_unroll(
    p: Tensor,
    gamma: Tensor,
    W_mix: Tensor,
    b_mix: Tensor,
    state: Tensor,
    start: Tensor,
    engine: Fusing = "native",
    precision: Precision = "float32",
) -> tuple[Tensor, Tensor]:
    """y [B, T, H] and the final S [B, m, c], from the projections p [B, T, 2 m + 2 H] of the inputs.

    Raises ValueError for a state of another type or size.

    p: value [m], skip [H], gate_in [m] and gate_out [H] of every slot, in that order
    gamma: [m, c] complex, constant over time
    W_mix: [H, 2 m c]
    b_mix: [H]
    state: [B, m, c] complex
    start: [B, T] bool
    """
    B, T, _ = p.shape
    check_flags(start, B, T)
    _check_state(p, state, gamma)
    return _Unroll.apply(p, gamma, W_mix, b_mix, state, start, engine, precision)


def ffm_step(
    p: Tensor,
    gamma: Tensor,
    W_mix: Tensor,
    b_mix: Tensor,
    state: Tensor,
    start: Tensor,
    engine: Fusing = "native",
    precision: Precision = "float32",
) -> tuple[Tensor, Tensor]:
    """`ffm_unroll` of one slot, p [B, 2 m + 2 H] and start [B], without a gradient: y [B, H] and S [B, m, c]."""
    (m, c), H, B = gamma.shape, len(b_mix), len(p)
    check_flags(start[:, None], B, 1)
    _check_state(p, state, gamma)
    S, y = state.new_empty(state.shape), p.new_empty(B, H)
    tensors = addressable(p), *(addressable(v) for v in (gamma, state, start)), S
    _rows("ffm_step", tensors, engine, m, H, m * c, c)
    z = linear(torch.view_as_real(S).flatten(1), W_mix, b_mix, precision)
    _rows("ffm_out_forward", (p, z, y), engine, m, H, H)
    return y, S


def _check_state(p: Tensor, state: Tensor, gamma: Tensor) -> None:
    """Raise ValueError unless `state` [B, m, c] and `gamma` have p's precision: kernels read them by address."""
    shape, kind = (len(p), *gamma.shape), p.dtype.to_complex()
    if state.shape != shape or {state.dtype, gamma.dtype} != {kind}:
        raise ValueError(f"state: expected {kind} {list(shape)}, got {state.dtype} {list(state.shape)}")


class _Unroll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, p, gamma, W_mix, b_mix, state, start, engine: Fusing, precision: Precision
    ) -> tuple[Tensor, Tensor]:
        (B, T, _), (m, c), H = p.shape, gamma.shape, len(b_mix)
        p = addressable(p.flatten(0, 1))
        u, y = p.new_empty(B, T, m), p.new_empty(B, T, H)
        _rows("ffm_in_forward", (p, u), engine, m, H)
        decay, first = (addressable(v) for v in (gamma.flatten(), state.flatten(1)))
        start = addressable(start)
        h = _SCANS[engine].forward(decay, u if c > 1 else u.to(decay.dtype), first, start, False)
        z = product(_pairs(h), W_mix, b_mix, precision)
        _rows("ffm_out_forward", (p, z, y), engine, m, H)
        ctx.save_for_backward(p, decay, first, start, h, z, W_mix)
        ctx.sizes, ctx.engine, ctx.precision = (B, T, m, c, H), engine, precision
        return y, h[:, -1].view(B, m, c).clone()  # not a view, which would keep h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y: Tensor, grad_last: Tensor):
        p, decay, first, start, h, z, W_mix = ctx.saved_tensors
        (B, T, m, c, H), engine, precision = ctx.sizes, ctx.engine, ctx.precision
        grad_z, grad_p = torch.empty_like(z), torch.empty_like(p)
        _rows("ffm_out_backward", (p, z, addressable(grad_y), grad_z, grad_p), engine, m, H)
        grad_h = torch.view_as_complex(product(grad_z, W_mix.t(), None, precision).view(B, T, m * c, 2))
        grad_h[:, -1] += grad_last.reshape(B, m * c)
        needs_gamma = ctx.needs_input_grad[1]
        grad_gamma, grad_u, grad_first = _SCANS[engine].backward(decay, h, first, start, grad_h, m, needs_gamma, False)
        _rows("ffm_in_backward", (p, grad_u.real.contiguous() if c == 1 else grad_u, grad_p), engine, m, H)
        grad_gamma = None if grad_gamma is None else grad_gamma.view(m, c)
        grad_mix, grad_first = gradient_of_weight(grad_z, _pairs(h), precision), grad_first.view(B, m, c)
        return grad_p.view(B, T, -1), grad_gamma, grad_mix, grad_z.sum(0), grad_first, None, None, None


def _pairs(h: Tensor) -> Tensor:
    """The states of all slots as rows of real numbers [B T, 2 m c], without a copy."""
    return torch.view_as_real(h).flatten(2).flatten(0, 1)


def _rows(
    name: str, tensors: tuple[Tensor, ...], engine: Fusing, m: int, H: int, width: int | None = None, *more: int
) -> None:
    """Run a kernel for every row of p, which is the first tensor; `width`: numbers of a row, by default m + H."""
    if engine == "native":
        native.run_rows(name, (*tensors, *more), (m, H), len(tensors[0]), width or m + H)
    else:
        block = 1 << (max(width or 0, m, H) - 1).bit_length()
        extra = dict(zip("c", more, strict=False))
        triton_scan.launch(f"triton_gate_kernels.{name}", (len(tensors[0]),), tensors, **extra, m=m, H=H, BLOCK=block)
