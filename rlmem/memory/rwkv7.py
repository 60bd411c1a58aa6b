"""RWKV-7's time mixing."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import PositiveInt
from rlmem.memory.base import RecurrentCell
from rlmem.memory.blocks import head_width
from rlmem.scan import Linear
from rlmem.scan.cells import over_steps, previous_states

State = dict[str, Tensor]
MIXING = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}
"""First weights of mu: one minus the channel's place, from 0 to 1, to this power."""
SLOWEST = math.exp(-0.5)
"""Bound of minus the logarithm of a decay."""


class RWKV7(RecurrentCell):
    """Time mixing of RWKV-7 (Peng et al. 2025, arXiv:2503.14456, section 4), of the first layer, in heads of width n.

        x_q = x + (x' - x) * mu_q for q in r, w, k, v, a, g, with x' the input of the slot before
        r = W_r x_r,   k' = W_k x_k,   v = W_v x_v,   a = sigmoid(a2 a1 x_a + a0),   g = g2 sigmoid(g1 x_g)
        w = exp(-exp(-1/2) sigmoid(w2 tanh(w1 x_w) + w0)),   c = unit(k' * k_k),   k = k' * (1 + (a - 1) * k_a)
        S_t = diag(w) S_{t-1} - (a * c) (S_{t-1}^T c)^T + k v^T
        y = W_o(g * (LN(S_t^T r) + (sum of r * k * r_k) v)),   the norm, unit and the sum per head

    The transition diag(w) - (a * c) c^T tracks states that diagonal ones cannot. First weights are those of one layer
    in the released code, but for W_o, which is zero there. A linear map W_in of the input exists only if
    input_size != H. State: x [B, H], the last input, and S [B, heads, n, n], keys by values. A loop over slots, with S
    held for each where a gradient is recorded.

    hidden_size: H, width of the output
    num_heads: heads; divides H
    rank: width of the inner layers w1, a1 and g1
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 64,
        num_heads: PositiveInt = 4,
        rank: PositiveInt = 16,
    ):
        super().__init__(input_size, hidden_size)
        self.num_heads, H, n = num_heads, hidden_size, head_width(hidden_size, num_heads)
        self.state_shape = {"x": (H,), "S": (num_heads, n, n)}
        self.W_in = Linear(input_size, H) if input_size != H else nn.Identity()
        place = torch.arange(H) / H
        for name, power in MIXING.items():
            self.register_parameter(f"mu_{name}", nn.Parameter(1 - place**power))
        self.W_r, self.W_k, self.W_v, self.W_o = (Linear(H, H, bias=False) for _ in range(4))
        self.w1, self.a1, self.g1 = (Linear(H, rank, bias=False) for _ in range(3))
        self.w2, self.a2, self.g2 = (Linear(rank, H, bias=False) for _ in range(3))
        for gain, weights in ((1.0, (self.W_r, self.W_v)), (0.1, (self.W_k, self.w2, self.a2, self.g2))):
            for weight in weights:
                nn.init.orthogonal_(weight.weight, gain)
        for weight in (self.w1, self.a1, self.g1):
            nn.init.zeros_(weight.weight)
        channel, wave = torch.linspace(0, 1, H), torch.linspace(-1, 1, n)
        wave = (wave * wave.abs()).repeat(num_heads)
        self.w0 = nn.Parameter(-5.5 + 6 * channel + 2.5 * wave)
        self.a0 = nn.Parameter(-0.19 + 0.3 * wave + 0.4 * (channel - 0.5))
        self.k_k, self.k_a = nn.Parameter(0.71 - 0.1 * (channel - 0.5)), nn.Parameter(torch.full((H,), 1.02))
        self.r_k = nn.Parameter(torch.full((num_heads, n), -0.04))
        self.gn_scale, self.gn_bias = nn.Parameter(torch.ones(H)), nn.Parameter(torch.zeros(H))

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        x = self.W_in(x)
        inputs, rest = self._inputs(x, state["x"])
        o, S = _step(inputs, state["S"])
        return self._output(o, *rest), {"x": x, "S": S}

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        sizes, x = packed.batch_sizes.tolist(), self.W_in(packed.data)
        inputs, rest = self._inputs(x, previous_states(state["x"], x, sizes))
        steps = zip(*(part.split(sizes) for part in inputs), strict=True)
        o, S = over_steps(_step, steps, sizes, state["S"])
        return self._output(o, *rest), {"x": x[last], "S": S}

    def _inputs(self, x: Tensor, before: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
        """What a step reads, r, w, a * c, c, k and v [n, heads, width], and what the output needs besides."""
        mixed = {name: torch.lerp(x, before, getattr(self, f"mu_{name}")) for name in MIXING}
        r, k, v = self.W_r(mixed["r"]), self.W_k(mixed["k"]), self.W_v(mixed["v"])
        w = (-SLOWEST * torch.sigmoid(self.w2(torch.tanh(self.w1(mixed["w"]))) + self.w0)).exp()
        a = torch.sigmoid(self.a2(self.a1(mixed["a"])) + self.a0)
        g = self.g2(torch.sigmoid(self.g1(mixed["g"])))
        c, k = k * self.k_k, k * (1 + (a - 1) * self.k_a)
        r, w, a, c, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in (r, w, a, c, k, v))
        c = F.normalize(c, dim=-1, eps=1e-12)
        own = ((r * k * self.r_k).sum(-1, keepdim=True) * v).flatten(-2)
        return (r, w, a * c, c, k, v), (own, g)

    def _output(self, o: Tensor, own: Tensor, g: Tensor) -> Tensor:
        width = o.shape[-1]
        normed = F.layer_norm(o, (width,), eps=1e-5 * width).flatten(-2) * self.gn_scale + self.gn_bias
        return self.W_o((normed + own) * g)


def _step(inputs: Any, S: Tensor) -> tuple[Tensor, Tensor]:
    """What r reads of the next S, [n, heads, width], and that S."""
    r, w, removed, c, k, v = inputs
    held = c[..., None, :] @ S
    S = w[..., None] * S - removed[..., None] * held + k[..., None] * v[..., None, :]
    return (r[..., None, :] @ S).squeeze(-2), S
