"""Elman's simple recurrent network."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.base import previous_states
from rlmem.memory.torch_cell import TorchCell
from rlmem.types import PositiveInt


class Elman(TorchCell):
    """Simple recurrent network (Elman 1990, Finding structure in time), in torch's form.

        h' = tanh(W x + b + U h + c)

    State: h [B, H]. Torch's initialisation; cuDNN on CUDA, and on the CPU a loop of one product per step with a
    hand-written backward, since torch's own packed kernel there takes time quadratic in the number of slots.

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256):
        super().__init__(input_size, nn.RNN(input_size, hidden_size))

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.rnn_tanh_cell(x, state, *self.rnn.all_weights[0])
        return h, h

    def packed_on_cpu(self, packed: PackedSequence, state: Tensor) -> Tensor:
        W, U, b, c = self.rnn.all_weights[0]
        return tanh_sequence(F.linear(packed.data, W, b + c), state, U, packed.batch_sizes.tolist(), self.output_size)


def tanh_sequence(wx: Tensor, h0: Tensor, U: Tensor, sizes: list[int], squashed: int) -> Tensor:
    """All h [S, H] of h' = f(wx + U h) over packed steps of `sizes`, from the first states h0 [E, H].

    f is tanh on the first `squashed` of the H units and the identity on the others.
    """
    return _Sequence.apply(wx, h0, U, sizes, squashed)


class _Sequence(torch.autograd.Function):
    """One product per step each way; the gradient of U is a single product over all slots."""

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, U: Tensor, sizes: list[int], squashed: int) -> Tensor:
        h_all = torch.empty_like(wx)
        h = h0
        for now, wx_t in zip(h_all.split(sizes), wx.split(sizes), strict=True):
            h = torch.addmm(wx_t, h[: len(now)], U.t(), out=now)
            h[:, :squashed].tanh_()
        ctx.save_for_backward(h_all, h0, U)
        ctx.sizes, ctx.squashed = sizes, squashed
        return h_all

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h_all: Tensor):
        h_all, h0, U = ctx.saved_tensors
        slope = torch.ones_like(h_all)
        slope[:, : ctx.squashed] -= h_all[:, : ctx.squashed].square()
        grad_wx, grad_h = torch.empty_like(h_all), torch.zeros_like(h0)
        steps = zip(*(x.split(ctx.sizes) for x in (grad_wx, grad_h_all, slope)), strict=True)
        for now, grad_t, slope_t in reversed(list(steps)):
            dh = grad_h[: len(now)]
            torch.mul(dh.add_(grad_t), slope_t, out=now)
            torch.mm(now, U, out=dh)
        return grad_wx, grad_h, grad_wx.t() @ previous_states(h0, h_all, ctx.sizes), None, None
