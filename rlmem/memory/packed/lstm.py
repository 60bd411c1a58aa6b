"""The packed sequence of an LSTM on the CPU: one product per step each way."""

import torch
from torch import Tensor

from rlmem.memory.packed.steps import previous_states
from rlmem.scan.matmul import product, weight_gradients


class LSTMSequence(torch.autograd.Function):
    """h and c [S, H] of S packed slots from W x + b [S, 4H], the first states [E, H] and U [4H, H].

    One product per step each way; the gradient of U is a single product over all slots.
    """

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, c0: Tensor, U: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        H = h0.shape[1]
        gates, h_all, c_all = torch.empty_like(wx), wx.new_empty(len(wx), H), wx.new_empty(len(wx), H)
        h, c, end = h0, c0, 0
        for n in sizes:
            now, end = slice(end, end + n), end + n
            torch.add(wx[now], product(h[:n], U), out=gates[now])
            gates[now, : 2 * H].sigmoid_()
            gates[now, 3 * H :].sigmoid_()
            gates[now, 2 * H : 3 * H].tanh_()
            i, f, g, o = gates[now].chunk(4, 1)
            c = torch.mul(f, c[:n], out=c_all[now]).addcmul_(i, g)
            h = torch.tanh(c, out=h_all[now]).mul_(o)
        ctx.save_for_backward(gates, h_all, c_all, h0, c0, U)
        ctx.sizes = sizes
        return h_all, c_all

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h_all: Tensor, grad_c_all: Tensor):
        gates, h_all, c_all, h0, c0, U = ctx.saved_tensors
        h_before, c_before = (previous_states(x0, x, ctx.sizes) for x0, x in ((h0, h_all), (c0, c_all)))
        tanh_c = torch.tanh(c_all)
        i, f, g, o = gates.chunk(4, 1)
        d_tanh_c = o * (1 - tanh_c.square())  # dh/dc
        d_o = tanh_c * o * (1 - o)  # dh/d(pre-activation of o)
        d_ifg = torch.stack(
            [g * i * (1 - i), c_before * f * (1 - f), i * (1 - g.square())], 1
        )  # dc/d(those of i, f, g)
        grad_gates = torch.empty_like(gates)
        grad_h, grad_c, end = torch.zeros_like(h0), torch.zeros_like(c0), len(gates)
        for n in reversed(ctx.sizes):
            now, end = slice(end - n, end), end - n
            dh = grad_h[:n].add_(grad_h_all[now])
            dc = grad_c[:n].add_(grad_c_all[now]).addcmul_(dh, d_tanh_c[now])
            parts = grad_gates[now].unflatten(1, (4, -1))
            torch.mul(d_ifg[now], dc[:, None], out=parts[:, :3])
            torch.mul(d_o[now], dh, out=parts[:, 3])
            dc.mul_(f[now])
            dh.copy_(product(grad_gates[now], U.t()))
        return grad_gates, grad_h, grad_c, weight_gradients(grad_gates, h_before, U)[0], None
