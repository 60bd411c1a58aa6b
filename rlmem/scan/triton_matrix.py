"""The `triton` engine of scans whose state is a matrix M [V, K]: outer products with decay, the delta rule, SHM.

M stays in registers from slot to slot, and is stored every few slots; on the way back, the slots between are walked
again. Numbers that are not finite do not pass a start, since M is selected, not multiplied: nothing need be checked.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from rlmem.scan.native import addressable
from rlmem.scan.triton_scan import launch

Rule = Literal["outer", "delta", "hadamard"]

EVERY = 16
"""Slots from one stored M to the next."""
CELLS = 1024
"""Numbers of M that one program holds, at most, unless a row alone has more."""
TYPES = (torch.float32, torch.float64)


def matrix_scan(
    rule: Rule,
    a: Tensor,
    c: Tensor | None,
    v: Tensor,
    key: Tensor,
    query: Tensor,
    M0: Tensor,
    start: Tensor,
    limit: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """y_t = M_t query_t [B, T, V] and the final M [B, V, K]; v [B, T, V], key and query [B, T, K], all of one of TYPES.

    rule: "outer", M_t = a_t M_{t-1} + v_t key_t^T with a [B, T]; "delta", M_t = M' + a_t (v_t - M' key_t) key_t^T of
        M' = c_t M_{t-1} with a and c [B, T]; "hadamard", M_t = M_{t-1} * (1 + tanh(a_t c_t^T)) + v_t key_t^T with
        a [B, T, V] and c [B, T, K]
    c: None for "outer"
    limit: M is clamped to [-limit, limit] after every slot; 0: it is not
    """
    y, M = _Matrix.apply(a, c, v, key, query, M0, start, rule, float(limit))
    return y, M


class _Matrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, c, v, key, query, M0, start, rule: Rule, limit: float) -> tuple[Tensor, Tensor]:
        a, v, key, query, M0, start = (addressable(x) for x in (a, v, key, query, M0, start))
        c = a if c is None else addressable(c)
        y, last = torch.empty_like(v), torch.empty_like(M0)
        keep = any(ctx.needs_input_grad)
        (B, T, V), K = v.shape, key.shape[2]
        states = M0.new_empty(B, -(-T // EVERY), V, K) if keep else last
        _run("forward", (a, c, v, key, query, M0, start, y, last, states), v, key, rule, limit, KEEP=keep)
        ctx.save_for_backward(a, c, v, key, query, start, states)
        ctx.rule, ctx.limit = rule, limit
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y: Tensor, grad_last: Tensor):
        a, c, v, key, query, start, states = ctx.saved_tensors
        (B, _, V), K, hadamard = v.shape, key.shape[2], ctx.rule == "hadamard"
        grad_y, grad_last = addressable(grad_y), addressable(grad_last)
        walked, grad_M0 = v.new_empty(B, EVERY, V, K), torch.empty_like(grad_last)
        parts = -(-V // _block(V, K)[0])
        grad_key, grad_query = (key.new_empty(parts, *key.shape) for _ in range(2))
        grad_a = torch.empty_like(a) if hadamard else a.new_empty(parts, *a.shape)
        grad_c = grad_a if ctx.rule == "outer" else c.new_empty(parts, *c.shape)
        grad_v = torch.empty_like(v)
        grads = grad_y, grad_last, grad_a, grad_c, grad_v, grad_key, grad_query, grad_M0
        _run("backward", (a, c, v, key, query, start, states, walked, *grads), v, key, ctx.rule, ctx.limit)
        grad_c = None if ctx.rule == "outer" else grad_c.sum(0)
        return (
            grad_a if hadamard else grad_a.sum(0),
            grad_c,
            grad_v,
            grad_key.sum(0),
            grad_query.sum(0),
            grad_M0,
            None,
            None,
            None,
        )


def _block(V: int, K: int) -> tuple[int, int]:
    """Rows and columns of M that a program holds, powers of two."""
    J = 1 << (K - 1).bit_length()
    return min(1 << (V - 1).bit_length(), max(1, CELLS // J)), J


def _run(
    kernel: str, tensors: tuple[Tensor, ...], v: Tensor, key: Tensor, rule: Rule, limit: float, **flags: Any
) -> None:
    (B, T, V), K = v.shape, key.shape[2]
    I, J = _block(V, K)
    sizes = {"T": T, "V": V, "K": K, "LIMIT": limit, "RULE": rule, "EVERY": EVERY, "I": I, "J": J, "num_warps": 4}
    launch(f"matrix_{kernel}", (B, -(-V // I)), tensors, **sizes, **flags)
