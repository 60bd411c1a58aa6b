"""The kernels of the `triton` engine: the recurrence and its adjoint, in the order and layout of `linear.cpp`.

The loads of AHEAD slots are issued before the first of them is used, so that a walk waits for memory once for all of
them. Numbers do not depend on AHEAD.
"""

import triton
import triton.language as tl
from triton.language import constexpr


@triton.jit
def load(x, at, live, COMPLEX: constexpr):
    """The real and the imaginary parts at `at`; of a real x the same numbers twice."""
    if COMPLEX:
        re = tl.load(x + 2 * at, live, 0.0)
        im = tl.load(x + 2 * at + 1, live, 0.0)
    else:
        re = tl.load(x + at, live, 0.0)
        im = re
    return re, im


@triton.jit
def store(x, at, re, im, live, COMPLEX: constexpr):
    if COMPLEX:
        tl.store(x + 2 * at, re, live)
        tl.store(x + 2 * at + 1, im, live)
    else:
        tl.store(x + at, re, live)


@triton.jit
def forward(
    a, b, h0, start, h, T, N,
    EACH: constexpr, CONSTANT: constexpr, COMPLEX: constexpr, REVERSE: constexpr, BLOCK: constexpr, AHEAD: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    re, im = load(h0, row * N + n, live, COMPLEX)
    if CONSTANT:
        a_re, a_im = load(a, n, live, COMPLEX)
    for first in range(0, T, AHEAD):
        loaded = ()
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (T - 1 - k if REVERSE else k)
            inside = live & (k + 0 * n < T)
            fresh = tl.load(start + slot, k < T, 0) != 0
            if not CONSTANT:
                a_re, a_im = load(a, slot * N + n, inside, COMPLEX)
            if EACH > 1:
                b_re = tl.load(b + slot * (N // EACH) + n // EACH, inside, 0.0)
                b_im = tl.zeros_like(b_re)
            else:
                b_re, b_im = load(b, slot * N + n, inside, COMPLEX)
            loaded = loaded + ((fresh, a_re, a_im, b_re, b_im),)  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (T - 1 - k if REVERSE else k)
            fresh, a_re, a_im, b_re, b_im = loaded[i]
            before, before_im = tl.where(fresh, 0.0, re), tl.where(fresh, 0.0, im)
            if COMPLEX:
                re = a_re * before - a_im * before_im + b_re
                im = a_re * before_im + a_im * before + b_im
            else:
                re = a_re * before + b_re
            store(h, slot * N + n, re, im, live & (k + 0 * n < T), COMPLEX)


@triton.jit
def backward(
    a, h, h0, grad_h, grad_a, grad_b, grad_h0, start, T, N, NEEDS_A: constexpr,
    EACH: constexpr, CONSTANT: constexpr, COMPLEX: constexpr, REVERSE: constexpr, BLOCK: constexpr, AHEAD: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    at_first = row * N + n
    h0_re, h0_im = load(h0, at_first, live, COMPLEX)
    zero = tl.where(h0_re * 0 == 0, h0_re * 0, 0.0)
    c_re, c_im, sum_re, sum_im = zero, zero, zero, zero  # the adjoint that flows backwards; sums for a constant a
    if CONSTANT:
        a_re, a_im = load(a, n, live, COMPLEX)
    for first in range(0, T, AHEAD):
        loaded = ()
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (k if REVERSE else T - 1 - k)
            fresh = tl.load(start + slot, k < T, 0) != 0
            has_before = live & (k + 0 * n < T - 1)  # else the slot before is h0
            h_re, h_im = load(h, (slot + 1 if REVERSE else slot - 1) * N + n, has_before, COMPLEX)
            inside = live & (k + 0 * n < T)
            g_re, g_im = load(grad_h, slot * N + n, inside, COMPLEX)
            if not CONSTANT:
                a_re, a_im = load(a, slot * N + n, inside, COMPLEX)
            loaded = loaded + ((fresh, h_re, h_im, g_re, g_im, a_re, a_im),)  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (k if REVERSE else T - 1 - k)
            fresh, h_re, h_im, g_re, g_im, a_re, a_im = loaded[i]
            is_last, inside = k + 0 * n == T - 1, k + 0 * n < T
            h_re, h_im = tl.where(is_last, h0_re, h_re), tl.where(is_last, h0_im, h_im)
            h_re, h_im = tl.where(fresh, 0.0, h_re), tl.where(fresh, 0.0, h_im)
            g_re, g_im = g_re + c_re, g_im + c_im
            store(grad_b, slot * N + n, g_re, g_im, live & inside, COMPLEX)
            if COMPLEX:
                d_re, d_im = g_re * h_re + g_im * h_im, g_im * h_re - g_re * h_im
                next_re, next_im = a_re * g_re + a_im * g_im, a_re * g_im - a_im * g_re
            else:
                d_re, d_im = g_re * h_re, zero
                next_re, next_im = a_re * g_re, zero
            next_re, next_im = tl.where(fresh, 0.0, next_re), tl.where(fresh, 0.0, next_im)
            c_re, c_im = tl.where(inside, next_re, c_re), tl.where(inside, next_im, c_im)
            if NEEDS_A:
                if CONSTANT:
                    sum_re = tl.where(inside, sum_re + d_re, sum_re)
                    sum_im = tl.where(inside, sum_im + d_im, sum_im)
                else:
                    store(grad_a, slot * N + n, d_re, d_im, live & inside, COMPLEX)
    store(grad_h0, at_first, c_re, c_im, live, COMPLEX)
    if NEEDS_A and CONSTANT:
        store(grad_a, at_first, sum_re, sum_im, live, COMPLEX)
