"""The gates around FFM's scan on the `triton` engine, a program for each slot, as in `ffm.cpp`.

Rows of p are the projections value [m] | skip [H] | gate_in [m] | gate_out [H]; dp is laid out likewise.
"""

import triton
import triton.language as tl
from triton.language import constexpr


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def ffm_in_forward(p, u, m, H, BLOCK: constexpr):
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, value = j < m, p + row * 2 * (m + H) + j
    gate = sigmoid(tl.load(value + m + H, live, 0.0))
    tl.store(u + row * m + j, tl.load(value, live, 0.0) * gate, live)


@triton.jit
def ffm_in_backward(p, du, dp, m, H, BLOCK: constexpr):
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, at = j < m, row * 2 * (m + H) + j
    d, value = tl.load(du + row * m + j, live, 0.0), tl.load(p + at, live, 0.0)
    gate = sigmoid(tl.load(p + at + m + H, live, 0.0))
    tl.store(dp + at, d * gate, live)
    tl.store(dp + at + m + H, d * value * gate * (1.0 - gate), live)


@triton.jit
def ffm_step(p, gamma, state, start, h, c, m, H, BLOCK: constexpr):
    """One slot: h = gamma * state + u, or u where start; gamma [m c] and state [rows, m c] are complex."""
    row, n = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, value, at = n < m * c, p + row * 2 * (m + H) + n // c, 2 * (row * m * c + n)
    u = tl.load(value, live, 0.0) * sigmoid(tl.load(value + m + H, live, 0.0))
    fresh = tl.load(start + row) != 0
    re = tl.where(fresh, 0.0, tl.load(state + at, live, 0.0))
    im = tl.where(fresh, 0.0, tl.load(state + at + 1, live, 0.0))
    g_re, g_im = tl.load(gamma + 2 * n, live, 0.0), tl.load(gamma + 2 * n + 1, live, 0.0)
    tl.store(h + at, g_re * re - g_im * im + u, live)
    tl.store(h + at + 1, g_re * im + g_im * re, live)


@triton.jit
def normal(z, row, j, live, H):
    """A row of z less its mean, in units of its standard deviation, as layer norm takes them; and 1 over the latter."""
    x = tl.load(z + row * H + j, live, 0.0)
    x = tl.where(live, x - tl.sum(x, 0) / H, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / H + 1e-5)
    return x * scale, scale


@triton.jit
def ffm_out_forward(p, z, y, m, H, BLOCK: constexpr):
    """y = LN(z) g + skip (1 - g), g = sigmoid(gate_out)."""
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, skip_at = j < H, p + row * 2 * (m + H) + m + j
    x, _ = normal(z, row, j, live, H)
    skip, gate = tl.load(skip_at, live, 0.0), sigmoid(tl.load(skip_at + H + m, live, 0.0))
    tl.store(y + row * H + j, skip + gate * (x - skip), live)


@triton.jit
def ffm_out_backward(p, z, dy, dz, dp, m, H, BLOCK: constexpr):
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, at = j < H, row * 2 * (m + H) + m + j
    x, scale = normal(z, row, j, live, H)
    skip, gate = tl.load(p + at, live, 0.0), sigmoid(tl.load(p + at + H + m, live, 0.0))
    d = tl.load(dy + row * H + j, live, 0.0)
    dx = d * gate
    tl.store(dp + at, d - dx, live)
    tl.store(dp + at + H + m, dx * (1.0 - gate) * (x - skip), live)
    mean, slope = tl.sum(dx, 0) / H, tl.sum(dx * x, 0) / H
    tl.store(dz + row * H + j, scale * (dx - mean - x * slope), live)
