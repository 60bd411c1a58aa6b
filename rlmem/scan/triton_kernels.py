"""The kernels of the `triton` engine: the recurrence and its adjoint, in the order and layout of `kernels.cpp`."""

import triton
import triton.language as tl


@triton.jit
def forward(
    a,
    b,
    h0,
    start,
    h,
    T,
    N,
    EACH: tl.constexpr,
    CONSTANT: tl.constexpr,
    COMPLEX: tl.constexpr,
    REVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    if COMPLEX:
        re = tl.load(h0 + 2 * (row * N + n), live, 0.0)
        im = tl.load(h0 + 2 * (row * N + n) + 1, live, 0.0)
        if CONSTANT:
            a_re = tl.load(a + 2 * n, live, 0.0)
            a_im = tl.load(a + 2 * n + 1, live, 0.0)
    else:
        re = tl.load(h0 + row * N + n, live, 0.0)
        if CONSTANT:
            a_re = tl.load(a + n, live, 0.0)
    for k in range(T):
        slot = row * T + (T - 1 - k if REVERSE else k)
        fresh = tl.load(start + slot) != 0
        at = slot * N + n
        before = tl.where(fresh, 0.0, re)
        if COMPLEX:
            before_im = tl.where(fresh, 0.0, im)
            if not CONSTANT:
                a_re = tl.load(a + 2 * at, live, 0.0)
                a_im = tl.load(a + 2 * at + 1, live, 0.0)
            if EACH > 1:
                b_re = tl.load(b + slot * (N // EACH) + n // EACH, live, 0.0)
                b_im = tl.zeros_like(b_re)
            else:
                b_re = tl.load(b + 2 * at, live, 0.0)
                b_im = tl.load(b + 2 * at + 1, live, 0.0)
            re = a_re * before - a_im * before_im + b_re
            im = a_re * before_im + a_im * before + b_im
            tl.store(h + 2 * at, re, live)
            tl.store(h + 2 * at + 1, im, live)
        else:
            if not CONSTANT:
                a_re = tl.load(a + at, live, 0.0)
            re = a_re * before + tl.load(b + at, live, 0.0)
            tl.store(h + at, re, live)


@triton.jit
def backward(
    a,
    h,
    h0,
    grad_h,
    grad_a,
    grad_b,
    grad_h0,
    start,
    T,
    N,
    NEEDS_A: tl.constexpr,
    EACH: tl.constexpr,
    CONSTANT: tl.constexpr,
    COMPLEX: tl.constexpr,
    REVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    first = row * N + n
    width: tl.constexpr = 2 if COMPLEX else 1
    zero = tl.load(h0 + width * first, live, 0.0) * 0
    zero = tl.where(zero == 0, zero, 0.0)
    c_re, c_im, sum_re, sum_im = zero, zero, zero, zero  # the adjoint that flows backwards; sums for a constant a
    if CONSTANT:
        a_re = tl.load(a + width * n, live, 0.0)
        if COMPLEX:
            a_im = tl.load(a + 2 * n + 1, live, 0.0)
    for k in range(T):
        slot = row * T + (k if REVERSE else T - 1 - k)
        fresh = tl.load(start + slot) != 0
        at = slot * N + n
        inside = live & (k + 0 * n < T - 1)  # else the slot before is h0
        outside = live & (k + 0 * n == T - 1)
        earlier = h + width * ((slot + 1 if REVERSE else slot - 1) * N + n)
        h_re = tl.load(earlier, inside, 0.0) + tl.load(h0 + width * first, outside, 0.0)
        h_re = tl.where(fresh, 0.0, h_re)
        g_re = tl.load(grad_h + width * at, live, 0.0) + c_re
        tl.store(grad_b + width * at, g_re, live)
        if not CONSTANT:
            a_re = tl.load(a + width * at, live, 0.0)
        if COMPLEX:
            h_im = tl.load(earlier + 1, inside, 0.0) + tl.load(h0 + 2 * first + 1, outside, 0.0)
            h_im = tl.where(fresh, 0.0, h_im)
            g_im = tl.load(grad_h + 2 * at + 1, live, 0.0) + c_im
            tl.store(grad_b + 2 * at + 1, g_im, live)
            if not CONSTANT:
                a_im = tl.load(a + 2 * at + 1, live, 0.0)
            d_re = g_re * h_re + g_im * h_im
            d_im = g_im * h_re - g_re * h_im
            c_re = tl.where(fresh, 0.0, a_re * g_re + a_im * g_im)
            c_im = tl.where(fresh, 0.0, a_re * g_im - a_im * g_re)
        else:
            d_re = g_re * h_re
            c_re = tl.where(fresh, 0.0, a_re * g_re)
        if NEEDS_A:
            if CONSTANT:
                sum_re += d_re
                if COMPLEX:
                    sum_im += d_im
            else:
                tl.store(grad_a + width * at, d_re, live)
                if COMPLEX:
                    tl.store(grad_a + 2 * at + 1, d_im, live)
    tl.store(grad_h0 + width * first, c_re, live)
    if COMPLEX:
        tl.store(grad_h0 + 2 * first + 1, c_im, live)
    if NEEDS_A and CONSTANT:
        tl.store(grad_a + width * first, sum_re, live)
        if COMPLEX:
            tl.store(grad_a + 2 * first + 1, sum_im, live)
