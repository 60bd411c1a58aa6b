"""A short causal convolution within episodes."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.scan import native
from rlmem.scan.native import Engine, check_flags, chosen_engine


def short_convolution(
    v: Tensor, before: Tensor, start: Tensor, w: Tensor, b: Tensor | None, engine: Engine = "auto"
) -> tuple[Tensor, Tensor]:
    """b + sum_j w_j * v_{t-K+j}, j = 1 ... K, over slots of the episode only, and the last K - 1 slots of v.

    v: [B, T, E]
    before: [B, K - 1, E], the slots before, of the episode that runs then; zeros before its beginning
    w: [E, K]
    b: [E]; None: zeros
    engine: the kernel runs where scans would run on the native engine
    """
    (B, T, E), K = v.shape, w.shape[1]
    check_flags(start, B, T)
    if before.shape != (B, K - 1, E) or w.shape != (E, K) or (b is not None and b.shape != (E,)):
        found = [None if x is None else list(x.shape) for x in (before, w, b)]
        raise ValueError(f"expected before, w and b of shapes {[[B, K - 1, E], [E, K], [E]]}, got {found}")
    episode = F.pad(start.cumsum(1), (K - 1, 0))  # the slots before are in episode 0, which a start at slot 0 ends
    same = (episode[:, T:] == episode[:, -1:])[..., None]
    b = v.new_zeros(v.shape[2]) if b is None else b
    if chosen_engine(engine, v.device) == "native" and native.takes(v, before, w, b):
        ends = v[:, T - K + 1 :] if T >= K else torch.cat([before, v], 1)[:, T:]
        return _Convolution.apply(v, before, start, w.t(), b), torch.where(same, ends, 0)
    out, v = b, torch.cat([before, v], 1)
    for j in range(K):
        read = (episode[:, j : j + T] == episode[:, K - 1 :])[..., None]
        out = out + w[:, j] * torch.where(read, v[:, j : j + T], 0)
    return out, torch.where(same, v[:, T:], 0)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        v, before, start, w, b = map(native.addressable, given)
        y = torch.empty_like(v)
        _run("convolution_forward", (v, before, start, w, b, y), w)
        ctx.save_for_backward(v, before, start, w)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        v, before, start, w = ctx.saved_tensors
        grads = torch.zeros_like(v), torch.zeros_like(before)
        of_rows = v.new_zeros(len(v), *w.shape), v.new_zeros(len(v), w.shape[1])
        _run("convolution_backward", (v, before, start, w, native.addressable(grad_y), *grads, *of_rows), w)
        grad_w, grad_b = (x.sum(0) for x in of_rows)
        return *grads, None, grad_w, grad_b


def _run(kernel: str, arguments: tuple[Any, ...], w: Tensor) -> None:
    (B, T, E), K = arguments[0].shape, len(w)
    native.run_rows(kernel, arguments, (T, E, K), B, T * E * K)
