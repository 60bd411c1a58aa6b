"""Mamba-2."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.core.types import PositiveInt
from rlmem.memory.base import Memory
from rlmem.memory.blocks import inverse_softplus, join_heads, split_heads
from rlmem.scan import Engine, Linear, outer_scan

DECAY, SHORTEST, LONGEST, LEAST_STEP = (1.0, 16.0), 0.001, 0.1, 1e-4
"""First weights: exp(A_log) is uniform between the first two; softplus(dt_bias) log-uniform between the next two, and
at least the last (released code)."""


class Mamba2(Memory):
    """Mamba-2 (Dao and Gu 2024, arXiv:2405.21060, section 7), one group, without its short convolution.

        S_t = exp(-exp(A_log) dt_t) S_{t-1} + dt_t b_t u_t^T,   o_t = S_t^T c_t + D u_t, per head of width p
        u_t = silu(W_x x_t),   b_t = silu(W_B x_t),   c_t = silu(W_C x_t),   dt_t = softplus(W_dt x_t + dt_bias)
        y_t = W_out(RMS(o_t * silu(W_z x_t)) * norm_scale)

    b and c belong to all heads; the decay is one number for each head. State: S [B, heads, n, p].

    hidden_size: H, width of the output
    inner_size: width of u, all heads together
    head_size: p, divides inner_size
    state_size: n, width of b and c
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        inner_size: PositiveInt = 128,
        head_size: PositiveInt = 64,
        state_size: PositiveInt = 16,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        if inner_size % head_size:
            raise UserError(
                f"head_size={head_size} does not divide inner_size={inner_size}; e.g. head_size={inner_size}"
            )
        self.num_heads, h = inner_size // head_size, inner_size // head_size
        self.state_shape = (h, state_size, head_size)
        linear = lambda width: Linear(input_size, width, bias=False)  # noqa: E731
        self.W_z, self.W_x = linear(inner_size), linear(inner_size)
        self.W_B, self.W_C, self.W_dt = linear(state_size), linear(state_size), linear(h)
        self.A_log = nn.Parameter(torch.empty(h).uniform_(*DECAY).log())
        dt = torch.empty(h).uniform_(math.log(SHORTEST), math.log(LONGEST)).exp().clamp(min=LEAST_STEP)
        self.dt_bias, self.D = nn.Parameter(inverse_softplus(dt)), nn.Parameter(torch.ones(h))
        self.norm_scale, self.W_out = nn.RMSNorm(inner_size, 1e-5), Linear(inner_size, hidden_size, bias=False)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        h = self.num_heads
        b, c = (F.silu(W(x)).repeat_interleave(h, 0) for W in (self.W_B, self.W_C))
        dt = F.softplus(self.W_dt(x) + self.dt_bias)
        u, step = F.silu(self.W_x(x)), split_heads(dt, h)
        log_decay = split_heads(-self.A_log.exp() * dt, h).squeeze(-1)
        start = start.repeat_interleave(h, 0)
        o, S = outer_scan(c, b, step * split_heads(u, h), state.flatten(0, 1), start, log_decay, self.engine)
        o = join_heads(o, h) + self.D.repeat_interleave(self.state_shape[2]) * u
        return self.W_out(self.norm_scale(o * F.silu(self.W_z(x)))), S.unflatten(0, (-1, h))
