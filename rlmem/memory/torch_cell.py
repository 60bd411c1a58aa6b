"""What cells with torch's own weights share, and the packed sequences of GRU and LSTM on the CPU.

Both take one product per step each way, and the gradient of U is a single product over all slots.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.memory.base import RecurrentCell, ZeroState
from rlmem.memory.packed import by_step, previous_states
from rlmem.scan.matmul import product, weight_gradients
from rlmem.types import State


class TorchCell(ZeroState, RecurrentCell):
    """A cell whose weights are those of a torch module `rnn`: cuDNN on CUDA, `states_on_cpu` elsewhere.

    Torch's own packed kernels on the CPU take time quadratic in the number of slots. The output is h, which is the
    state or the first part of it.
    """

    def __init__(self, input_size: int, rnn: nn.RNNBase):
        super().__init__(input_size, rnn.hidden_size)
        self.state_shape = (rnn.hidden_size,)
        self.rnn = rnn

    @abstractmethod
    def states_on_cpu(self, x: Tensor, state: State, sizes: list[int]) -> State:
        """The states after all S slots of packed episodes x [S, D], from their first states [E, H]."""

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        if packed.data.is_cuda:
            y, final = self.rnn(packed, tree_map(lambda s: s[None], state))
            return y.data, tree_map(lambda s: s[0], final)
        states = self.states_on_cpu(packed.data, state, packed.batch_sizes.tolist())
        return tree_leaves(states)[0], tree_map(lambda s: s[last], states)


class GRUSequence(torch.autograd.Function):
    """h [S, H] of S packed slots from W x + b [S, 3H], the first states [E, H], U [3H, H] and its bias [3H]."""

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, U: Tensor, bias: Tensor, sizes: list[int]) -> Tensor:
        H = h0.shape[1]
        uh, gates = torch.empty_like(wx), torch.empty_like(wx)  # gates: r, z, n after their nonlinearities
        h, h_all = h0, wx.new_empty(len(wx), H)
        for wx_t, uh_t, gates_t, h_t in by_step(sizes, wx, uh, gates, h_all):
            before = h[: len(h_t)]
            uh_t[:] = product(before, U, bias)
            rz = torch.add(wx_t[:, : 2 * H], uh_t[:, : 2 * H], out=gates_t[:, : 2 * H]).sigmoid_()
            r, z = rz.chunk(2, 1)
            n = torch.addcmul(wx_t[:, 2 * H :], r, uh_t[:, 2 * H :], out=gates_t[:, 2 * H :]).tanh_()
            h = torch.lerp(n, before, z, out=h_t)
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
        H, grad_h = h0.shape[1], torch.zeros_like(h0)
        for wx_t, uh_t, grad_t, d_t, r_t, z_t in reversed(
            by_step(ctx.sizes, grad_wx, grad_uh, grad_h_all, d_rzn, r, z)
        ):
            dh = grad_h[: len(wx_t)].add_(grad_t)
            torch.mul(d_t, dh[:, None], out=wx_t.unflatten(1, (3, -1)))
            uh_t[:] = wx_t
            uh_t[:, 2 * H :].mul_(r_t)  # the reset gate stands between U_n h and n
            dh.mul_(z_t).add_(product(uh_t, U.t()))
        return grad_wx, grad_h, *weight_gradients(grad_uh, h_before, U), None


class LSTMSequence(torch.autograd.Function):
    """h and c [S, H] of S packed slots from W x + b [S, 4H], the first states [E, H] and U [4H, H]."""

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, c0: Tensor, U: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        H = h0.shape[1]
        gates, h_all, c_all = torch.empty_like(wx), wx.new_empty(len(wx), H), wx.new_empty(len(wx), H)
        h, c = h0, c0
        for wx_t, gates_t, h_t, c_t in by_step(sizes, wx, gates, h_all, c_all):
            torch.add(wx_t, product(h[: len(h_t)], U), out=gates_t)
            i, f, g, o = gates_t.chunk(4, 1)
            gates_t[:, : 2 * H].sigmoid_()
            o.sigmoid_()
            g.tanh_()
            c = torch.mul(f, c[: len(c_t)], out=c_t).addcmul_(i, g)
            h = torch.tanh(c, out=h_t).mul_(o)
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
        # dc/d(pre-activations of i, f, g)
        d_ifg = torch.stack([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g.square())], 1)
        grad_gates, grad_h, grad_c = torch.empty_like(gates), torch.zeros_like(h0), torch.zeros_like(c0)
        steps = by_step(ctx.sizes, grad_gates, grad_h_all, grad_c_all, d_tanh_c, d_ifg, d_o, f)
        for gates_t, grad_h_t, grad_c_t, d_c, d_ifg_t, d_o_t, f_t in reversed(steps):
            dh = grad_h[: len(gates_t)].add_(grad_h_t)
            dc = grad_c[: len(gates_t)].add_(grad_c_t).addcmul_(dh, d_c)
            parts = gates_t.unflatten(1, (4, -1))
            torch.mul(d_ifg_t, dc[:, None], out=parts[:, :3])
            torch.mul(d_o_t, dh, out=parts[:, 3])
            dc.mul_(f_t)
            dh.copy_(product(gates_t, U.t()))
        return grad_gates, grad_h, grad_c, weight_gradients(grad_gates, h_before, U)[0], None
