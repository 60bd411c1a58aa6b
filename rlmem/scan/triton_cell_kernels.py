"""Kernels of GRU and LSTM over packed episodes, longest first: a program walks M of them through all steps.

`sizes` and `first`, the episodes of each step and the packed position of its first one, are read on the device.
Matrices are passed with the index that products sum over last. `tl.debug_barrier` lets all threads of a program see
what they wrote.
"""

import triton
import triton.language as tl
from triton.language import constexpr


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    return 2.0 * sigmoid(2.0 * x) - 1.0


@triton.jit
def gru_forward(
    wx, h0, U, bias, sizes, first, h, uh_n, T,
    H: constexpr, M: constexpr, J: constexpr, K: constexpr, PRECISION: constexpr,
):  # fmt: skip
    """wx [S, 3H] becomes r, z, n; uh_n [S, H] is U_n h + bias_n."""
    e = tl.program_id(0) * M + tl.arange(0, M)
    before = h0 + e[:, None].to(tl.int64) * H
    for t in range(T):
        size = tl.load(sizes + t)
        slot = (tl.load(first + t) + e)[:, None].to(tl.int64)
        live = (e < size)[:, None]
        if size > tl.program_id(0) * M:
            for j0 in range(0, H, J):
                j = j0 + tl.arange(0, J)
                r = tl.zeros((M, J), tl.float32)
                z = tl.zeros((M, J), tl.float32)
                q = tl.zeros((M, J), tl.float32)
                for k0 in range(0, H, K):
                    k = k0 + tl.arange(0, K)
                    x = tl.load(before + k[None, :], live, 0.0)
                    at = U + j[None, :] * H + k[:, None]
                    r = tl.dot(x, tl.load(at), r, input_precision=PRECISION)
                    z = tl.dot(x, tl.load(at + H * H), z, input_precision=PRECISION)
                    q = tl.dot(x, tl.load(at + 2 * H * H), q, input_precision=PRECISION)
                gates, b = wx + slot * 3 * H + j[None, :], (bias + j)[None, :]
                old = tl.load(before + j[None, :], live, 0.0)
                r = sigmoid(tl.load(gates, live, 0.0) + r + tl.load(b))
                z = sigmoid(tl.load(gates + H, live, 0.0) + z + tl.load(b + H))
                q = q + tl.load(b + 2 * H)
                n = tanh(tl.load(gates + 2 * H, live, 0.0) + r * q)
                tl.store(gates, r, live)
                tl.store(gates + H, z, live)
                tl.store(gates + 2 * H, n, live)
                tl.store(uh_n + slot * H + j[None, :], q, live)
                tl.store(h + slot * H + j[None, :], n + z * (old - n), live)
            tl.debug_barrier()
        before = h + slot * H


@triton.jit
def gru_backward(
    gates, uh_n, before, U, sizes, first, grad_h, grad_wx, grad_uh, carry, T,
    H: constexpr, M: constexpr, J: constexpr, K: constexpr, PRECISION: constexpr,
):  # fmt: skip
    """carry [E, H], zeros at first, becomes the gradient of the first states.

    before: [S, H], what each step starts from
    U: transposed, [H, 3H]
    """
    e = tl.program_id(0) * M + tl.arange(0, M)
    row = e[:, None].to(tl.int64)
    for step in range(T):
        t = T - 1 - step
        size = tl.load(sizes + t)
        slot = (tl.load(first + t) + e)[:, None].to(tl.int64)
        live = (e < size)[:, None]
        if size > tl.program_id(0) * M:
            for j0 in range(0, H, J):
                j = j0 + tl.arange(0, J)[None, :]
                g, at = slot * 3 * H + j, slot * H + j
                r, z = tl.load(gates + g, live, 0.0), tl.load(gates + g + H, live, 0.0)
                n, q = tl.load(gates + g + 2 * H, live, 0.0), tl.load(uh_n + at, live, 0.0)
                d = tl.load(grad_h + at, live, 0.0) + tl.load(carry + row * H + j, live, 0.0)
                dz = d * (tl.load(before + at, live, 0.0) - n) * z * (1.0 - z)
                dn = d * (1.0 - z) * (1.0 - n * n)
                dr = dn * q * r * (1.0 - r)
                tl.store(grad_wx + g, dr, live)
                tl.store(grad_wx + g + H, dz, live)
                tl.store(grad_wx + g + 2 * H, dn, live)
                tl.store(grad_uh + g, dr, live)
                tl.store(grad_uh + g + H, dz, live)
                tl.store(grad_uh + g + 2 * H, dn * r, live)
                tl.store(carry + row * H + j, d * z, live)
            tl.debug_barrier()
            add_product(carry + row * H, grad_uh + slot * 3 * H, U, live, 3 * H, H, M, J, K, PRECISION)
            tl.debug_barrier()


@triton.jit
def add_product(
    y, x, U, live, N: constexpr, H: constexpr, M: constexpr, J: constexpr, K: constexpr, PRECISION: constexpr
):
    """y += x U^T of rows x [M, N] and y [M, H], U [H, N]."""
    for j0 in range(0, H, J):
        j = j0 + tl.arange(0, J)[None, :]
        total = tl.load(y + j, live, 0.0)
        for k0 in range(0, N, K):
            k = k0 + tl.arange(0, K)
            x_k = tl.load(x + k[None, :], live, 0.0)
            total = tl.dot(x_k, tl.load(U + j * N + k[:, None]), total, input_precision=PRECISION)
        tl.store(y + j, total, live)


@triton.jit
def lstm_forward(
    wx, h0, c0, U, sizes, first, h, c, T,
    H: constexpr, M: constexpr, J: constexpr, K: constexpr, PRECISION: constexpr,
):  # fmt: skip
    """wx [S, 4H] becomes i, f, g, o."""
    e = tl.program_id(0) * M + tl.arange(0, M)
    before, c_before = h0 + e[:, None].to(tl.int64) * H, c0 + e[:, None].to(tl.int64) * H
    for t in range(T):
        size = tl.load(sizes + t)
        slot = (tl.load(first + t) + e)[:, None].to(tl.int64)
        live = (e < size)[:, None]
        if size > tl.program_id(0) * M:
            for j0 in range(0, H, J):
                j = j0 + tl.arange(0, J)
                i = tl.zeros((M, J), tl.float32)
                f = tl.zeros((M, J), tl.float32)
                g = tl.zeros((M, J), tl.float32)
                o = tl.zeros((M, J), tl.float32)
                for k0 in range(0, H, K):
                    k = k0 + tl.arange(0, K)
                    x = tl.load(before + k[None, :], live, 0.0)
                    at = U + j[None, :] * H + k[:, None]
                    i = tl.dot(x, tl.load(at), i, input_precision=PRECISION)
                    f = tl.dot(x, tl.load(at + H * H), f, input_precision=PRECISION)
                    g = tl.dot(x, tl.load(at + 2 * H * H), g, input_precision=PRECISION)
                    o = tl.dot(x, tl.load(at + 3 * H * H), o, input_precision=PRECISION)
                gates = wx + slot * 4 * H + j[None, :]
                i = sigmoid(tl.load(gates, live, 0.0) + i)
                f = sigmoid(tl.load(gates + H, live, 0.0) + f)
                g = tanh(tl.load(gates + 2 * H, live, 0.0) + g)
                o = sigmoid(tl.load(gates + 3 * H, live, 0.0) + o)
                cell = f * tl.load(c_before + j[None, :], live, 0.0) + i * g
                tl.store(gates, i, live)
                tl.store(gates + H, f, live)
                tl.store(gates + 2 * H, g, live)
                tl.store(gates + 3 * H, o, live)
                tl.store(c + slot * H + j[None, :], cell, live)
                tl.store(h + slot * H + j[None, :], o * tanh(cell), live)
            tl.debug_barrier()
        before, c_before = h + slot * H, c + slot * H


@triton.jit
def lstm_backward(
    gates, c, c_before, U, sizes, first, grad_h, grad_c, grad_wx, carry, carry_c, T,
    H: constexpr, M: constexpr, J: constexpr, K: constexpr, PRECISION: constexpr,
):  # fmt: skip
    """carry and carry_c [E, H], zeros at first, become the gradients of the first states; U [H, 4H] is transposed."""
    e = tl.program_id(0) * M + tl.arange(0, M)
    row = e[:, None].to(tl.int64)
    for step in range(T):
        t = T - 1 - step
        size = tl.load(sizes + t)
        slot = (tl.load(first + t) + e)[:, None].to(tl.int64)
        live = (e < size)[:, None]
        if size > tl.program_id(0) * M:
            for j0 in range(0, H, J):
                j = j0 + tl.arange(0, J)[None, :]
                at_gates, at = slot * 4 * H + j, slot * H + j
                i, f = tl.load(gates + at_gates, live, 0.0), tl.load(gates + at_gates + H, live, 0.0)
                g, o = tl.load(gates + at_gates + 2 * H, live, 0.0), tl.load(gates + at_gates + 3 * H, live, 0.0)
                squashed = tanh(tl.load(c + at, live, 0.0))
                d = tl.load(grad_h + at, live, 0.0) + tl.load(carry + row * H + j, live, 0.0)
                dc = tl.load(grad_c + at, live, 0.0) + tl.load(carry_c + row * H + j, live, 0.0)
                dc = dc + d * o * (1.0 - squashed * squashed)
                tl.store(grad_wx + at_gates, dc * g * i * (1.0 - i), live)
                tl.store(grad_wx + at_gates + H, dc * tl.load(c_before + at, live, 0.0) * f * (1.0 - f), live)
                tl.store(grad_wx + at_gates + 2 * H, dc * i * (1.0 - g * g), live)
                tl.store(grad_wx + at_gates + 3 * H, d * squashed * o * (1.0 - o), live)
                tl.store(carry_c + row * H + j, dc * f, live)
                tl.store(carry + row * H + j, tl.zeros_like(d), live)
            tl.debug_barrier()
            add_product(carry + row * H, grad_wx + slot * 4 * H, U, live, 4 * H, H, M, J, K, PRECISION)
            tl.debug_barrier()
