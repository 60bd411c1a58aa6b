"""Long Short-Term Memory."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.base import RecurrentCell, previous_states
from rlmem.scan.matmul import linear, product, weight_gradients
from rlmem.types import PositiveInt

Pair = tuple[Tensor, Tensor]


class LSTM(RecurrentCell):
    """Long Short-Term Memory (Hochreiter and Schmidhuber 1997) with forget gate (Gers et al. 2000).

        i, f, o = sigmoid(W x + U h + b) each,  g = tanh(W_g x + U_g h + b_g)
        c' = f * c + i * g,  h' = o * tanh(c')

    State: (h, c), each [B, H]. Torch's initialisation; cuDNN on CUDA. On the CPU, oneDNN for episodes of
    equal length, else a loop with a hand-written backward: torch's packed LSTM there takes time quadratic in the
    number of slots.

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.rnn = nn.LSTM(input_size, hidden_size)

    def initial_state(self, batch_size: int) -> Pair:
        zeros = self._like_parameters().new_zeros(batch_size, self.output_size)
        return zeros, zeros.clone()

    def cell(self, x: Tensor, state: Pair) -> tuple[Tensor, Pair]:
        h, c = torch.lstm_cell(x, state, *self.rnn.all_weights[0])
        return h, (h, c)

    def sequence(self, packed: PackedSequence, state: Pair, last: Tensor) -> tuple[Tensor, Pair]:
        if packed.data.is_cuda:
            y, (h, c) = self.rnn(packed, (state[0][None], state[1][None]))
            return y.data, (h[0], c[0])
        sizes = packed.batch_sizes
        if sizes[0] == sizes[-1]:  # equal lengths: torch's dense kernel (oneDNN) is the fastest there is
            y, (h, c) = self.rnn(packed.data.view(len(sizes), len(last), -1), (state[0][None], state[1][None]))
            return y.flatten(0, 1), (h[0], c[0])
        W, U, b, b_hidden = self.rnn.all_weights[0]
        y, c = _Sequence.apply(linear(packed.data, W, b + b_hidden), *state, U, sizes.tolist())
        return y, (y[last], c[last])


class _Sequence(torch.autograd.Function):
    """h and c [S, H] of S packed slots from W x + b [S, 4H], the first states [E, H] and U [4H, H].

    One product per step each way; the gradient of U is a single product over all slots.
    """

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, c0: Tensor, U: Tensor, sizes: list[int]) -> Pair:
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
