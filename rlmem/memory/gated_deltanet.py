"""Gated DeltaNet and Gated DeltaProduct."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import NonNegativeInt, PositiveInt, State
from rlmem.memory.base import Memory
from rlmem.memory.blocks import ShortConvolution, inverse_softplus, join_heads, split_heads
from rlmem.scan import Engine, Linear, delta_scan

EPS = 1e-6
"""Added to the squared length of keys and queries."""
MOST_DECAY, SHORTEST, LONGEST, LEAST_STEP = 16.0, 0.001, 0.1, 1e-4
"""First weights: exp(A_log) is uniform up to the first; softplus(dt_bias) log-uniform between the next two, and at
least the last (released code)."""


class GatedDeltaNet(Memory):
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464, eq. 10), in h heads; with more steps per slot, Gated
    DeltaProduct (Siems et al. 2025, arXiv:2502.10297).

        S' = alpha_t S_{t-1},   S_t = S' + beta_t k_t (v_t - S'^T k_t)^T,   o_t = S_t^T q_t / sqrt(k)
        q_t = unit(silu(W_q x_t)),   k_t = unit(silu(W_k x_t)),   v_t = silu(W_v x_t),   beta_t = sigmoid(W_b x_t)
        log alpha_t = -exp(A_log) * softplus(W_a x_t + dt_bias),   y_t = W_o(RMS(o_t) * o_norm * silu(W_g x_t))

    A slot multiplies the memory by alpha (I - beta k k^T), whose eigenvalue along k is 1 - beta. With
    `eigenvalues="negative"`, beta is twice the sigmoid and the eigenvalue lies in (-1, 1), without which no such memory
    tells odd from even (Grazzi et al. 2024, arXiv:2411.12537). With `steps` n, a slot writes n pairs of key and value
    one after the other, and multiplies by n such matrices: products of reflections, by which words of harder groups can
    be followed. With a convolution, silu(conv(.)) stands for the silu of q, k and v, as in
    the released layer. State: S [B, h, k, v]; with a convolution, S and conv, its last inputs.

    hidden_size: H, width of the output
    num_heads: h
    key_size: k, width of the keys of a head
    value_size: v, width of the values of a head
    steps: pairs of key and value per slot
    eigenvalues: "positive", in (0, 1), or "negative", in (-1, 1)
    conv_size: slots of the convolution of q, k and v (released layer: 4); 0: there is none
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_heads: PositiveInt = 2,
        key_size: PositiveInt = 32,
        value_size: PositiveInt = 32,
        steps: PositiveInt = 1,
        eigenvalues: Literal["positive", "negative"] = "positive",
        conv_size: NonNegativeInt = 0,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        h, n = num_heads, steps
        self.num_heads, self.steps, self.largest = h, n, 2.0 if eigenvalues == "negative" else 1.0
        self.state_shape: Any = (h, key_size, value_size)
        self.key_size, self.conv_size = key_size, conv_size
        linear = lambda width: Linear(input_size, width, bias=False)  # noqa: E731
        self.W_q, self.W_k, self.W_v = linear(h * key_size), linear(n * h * key_size), linear(n * h * value_size)
        self.W_a, self.W_b, self.W_g = linear(h), linear(n * h), linear(h * value_size)
        self.o_norm, self.W_o = nn.RMSNorm(value_size, 1e-5), Linear(h * value_size, hidden_size, bias=False)
        self.A_log = nn.Parameter(torch.rand(h).mul(MOST_DECAY).clamp(min=1e-6).log())
        dt = torch.empty(h).uniform_(math.log(SHORTEST), math.log(LONGEST)).exp().clamp(min=LEAST_STEP)
        self.dt_bias = nn.Parameter(inverse_softplus(dt))
        if n > 1:
            for weight in self.parameters():
                if weight.dim() == 2:
                    nn.init.xavier_uniform_(weight, 2**-2.5)
        if conv_size:
            self.conv = ShortConvolution((h + n * h) * key_size + n * h * value_size, conv_size, False)
            self.state_shape = {"S": (h, key_size, value_size), "conv": self.conv.state_shape}

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        h, n = self.num_heads, self.steps
        parts = self.W_q(x), self.W_k(x), self.W_v(x)
        if self.conv_size:
            mixed, conv = self.conv(torch.cat(parts, -1), state["conv"], start)
            q, k, v = mixed.split([part.shape[-1] for part in parts], -1)
        else:
            q, k, v = map(F.silu, parts)
        S = state["S"] if self.conv_size else state
        q = unit(split_heads(q, h)) * self.key_size**-0.5
        k, v = unit(split_heads(k, h, n)), split_heads(v, h, n)
        beta = self.largest * torch.sigmoid(split_heads(self.W_b(x), h, n)).squeeze(-1)
        log_alpha = split_heads(-self.A_log.exp() * F.softplus(self.W_a(x) + self.dt_bias), h)
        start = start.repeat_interleave(h, 0)[..., None]
        if n > 1:  # a slot begins and decays in its first step, and is read in its last
            log_alpha, start = (F.pad(each, (0, n - 1)) for each in (log_alpha, start))
            q = F.pad(q[:, :, None], (0, 0, n - 1, 0)).flatten(1, 2)
        o, S = delta_scan(q, k, v, beta, S.flatten(0, 1), start.flatten(1), log_alpha.flatten(1), self.engine)
        o = join_heads(self.o_norm(o[:, n - 1 :: n]), h)
        S = S.unflatten(0, (-1, h))
        return self.W_o(o * F.silu(self.W_g(x))), {"S": S, "conv": conv} if self.conv_size else S


def unit(x: Tensor) -> Tensor:
    """x [..., k] at a length of one."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)
