"""The kernels of the `triton` engine: the recurrence and its adjoint, in the order and layout of `kernels/scan.cpp`."""

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
    EACH: constexpr, CONSTANT: constexpr, COMPLEX: constexpr, REVERSE: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    re, im = load(h0, row * N + n, live, COMPLEX)
    if CONSTANT:
        a_re, a_im = load(a, n, live, COMPLEX)
    for k in range(T):
        slot = row * T + (T - 1 - k if REVERSE else k)
        fresh = tl.load(start + slot) != 0
        at = slot * N + n
        before, before_im = tl.where(fresh, 0.0, re), tl.where(fresh, 0.0, im)
        if not CONSTANT:
            a_re, a_im = load(a, at, live, COMPLEX)
        if EACH > 1:
            b_re = tl.load(b + slot * (N // EACH) + n // EACH, live, 0.0)
            b_im = tl.zeros_like(b_re)
        else:
            b_re, b_im = load(b, at, live, COMPLEX)
        if COMPLEX:
            re = a_re * before - a_im * before_im + b_re
            im = a_re * before_im + a_im * before + b_im
        else:
            re = a_re * before + b_re
        store(h, at, re, im, live, COMPLEX)


@triton.jit
def backward(
    a, h, h0, grad_h, grad_a, grad_b, grad_h0, start, T, N, NEEDS_A: constexpr,
    EACH: constexpr, CONSTANT: constexpr, COMPLEX: constexpr, REVERSE: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    first = row * N + n
    h0_re, h0_im = load(h0, first, live, COMPLEX)
    zero = tl.where(h0_re * 0 == 0, h0_re * 0, 0.0)
    c_re, c_im, sum_re, sum_im = zero, zero, zero, zero  # the adjoint that flows backwards; sums for a constant a
    if CONSTANT:
        a_re, a_im = load(a, n, live, COMPLEX)
    for k in range(T):
        slot = row * T + (k if REVERSE else T - 1 - k)
        fresh = tl.load(start + slot) != 0
        at = slot * N + n
        inside = live & (k + 0 * n < T - 1)  # else the slot before is h0
        outside = live & (k + 0 * n == T - 1)
        h_re, h_im = load(h, (slot + 1 if REVERSE else slot - 1) * N + n, inside, COMPLEX)
        h0_re, h0_im = load(h0, first, outside, COMPLEX)
        h_re, h_im = tl.where(fresh, 0.0, h_re + h0_re), tl.where(fresh, 0.0, h_im + h0_im)
        g_re, g_im = load(grad_h, at, live, COMPLEX)
        g_re, g_im = g_re + c_re, g_im + c_im
        store(grad_b, at, g_re, g_im, live, COMPLEX)
        if not CONSTANT:
            a_re, a_im = load(a, at, live, COMPLEX)
        if COMPLEX:
            d_re, d_im = g_re * h_re + g_im * h_im, g_im * h_re - g_re * h_im
            c_re, c_im = a_re * g_re + a_im * g_im, a_re * g_im - a_im * g_re
        else:
            d_re, d_im = g_re * h_re, zero
            c_re, c_im = a_re * g_re, zero
        c_re, c_im = tl.where(fresh, 0.0, c_re), tl.where(fresh, 0.0, c_im)
        if NEEDS_A:
            if CONSTANT:
                sum_re, sum_im = sum_re + d_re, sum_im + d_im
            else:
                store(grad_a, at, d_re, d_im, live, COMPLEX)
    store(grad_h0, first, c_re, c_im, live, COMPLEX)
    if NEEDS_A and CONSTANT:
        store(grad_a, first, sum_re, sum_im, live, COMPLEX)
