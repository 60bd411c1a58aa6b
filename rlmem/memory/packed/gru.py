"""The packed sequence of a GRU on the CPU: one product per step each way."""

import torch
from torch import Tensor

from rlmem.memory.packed.steps import previous_states
from rlmem.scan.matmul import product, weight_gradients


class GRUSequence(torch.autograd.Function):
    """h [S, H] of S packed slots from W x + b [S, 3H], the first states [E, H], U [3H, H] and its bias [3H].

    One product per step each way; the gradient of U is a single product over all slots.
    """

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, U: Tensor, bias: Tensor, sizes: list[int]) -> Tensor:
        H = h0.shape[1]
        uh, h_all = torch.empty_like(wx), wx.new_empty(len(wx), H)
        gates = torch.empty_like(wx)  # r, z, n after their nonlinearities
        h, end = h0, 0
        for size in sizes:
            now, end = slice(end, end + size), end + size
            uh[now] = product(h[:size], U, bias)
            rz = torch.add(wx[now, : 2 * H], uh[now, : 2 * H], out=gates[now, : 2 * H]).sigmoid_()
            r, z = rz.chunk(2, 1)
            n = torch.addcmul(wx[now, 2 * H :], r, uh[now, 2 * H :], out=gates[now, 2 * H :]).tanh_()
            h = torch.lerp(n, h[:size], z, out=h_all[now])
        ctx.save_for_backward(gates, uh[:, 2 * H :], h_all, h0, U)
        ctx.sizes = sizes
        return h_all

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h_all: Tensor):
        gates, uh_n, h_all, h0, U = ctx.saved_tensors
        h_before = previous_states(h0, h_all, ctx.sizes)
        r, z, n = gates.chunk(3, 1)
        d_n = (1 - z) * (1 - n.square())  # dh/d(pre-activation of n)
        d_rzn = torch.stack([d_n * uh_n * r * (1 - r), (h_before - n) * z * (1 - z), d_n], 1)
        grad_wx, grad_uh = torch.empty_like(gates), torch.empty_like(gates)
        H = h0.shape[1]
        grad_h, end = torch.zeros_like(h0), len(gates)
        for size in reversed(ctx.sizes):
            now, end = slice(end - size, end), end - size
            dh = grad_h[:size].add_(grad_h_all[now])
            torch.mul(d_rzn[now], dh[:, None], out=grad_wx[now].unflatten(1, (3, -1)))
            grad_uh[now] = grad_wx[now]
            grad_uh[now, 2 * H :].mul_(r[now])  # the reset gate stands between U_n h and n
            dh.mul_(z[now]).add_(product(grad_uh[now], U.t()))
        return grad_wx, grad_h, *weight_gradients(grad_uh, h_before, U), None
