"""State-space models: S6 in its Mamba block and reduced to one state per channel, S4D, and Mamba-2."""

from math import ceil, log, pi
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.core.types import Ge, PositiveFloat, PositiveInt, State
from rlmem.memory.base import Memory
from rlmem.memory.blocks import conjugate, inverse_softplus, join_heads, log_uniform, short_convolution, split_heads
from rlmem.memory.recurrence import LinearRecurrence
from rlmem.scan import Engine, Linear, outer_scan, selective_scan
from rlmem.scan.native import of_weights


class S6(Memory):
    """Mamba's selective state-space model and its block (Gu and Dao 2023, arXiv:2312.00752, algorithm 2, section 3.4).

        v_t = W_x x_t                                                       [E]
        u_t = silu(b_conv + sum_j w_conv_j * v_{t-K+j}),   j = 1 ... K, slots of the episode only
        dt_t = softplus(W_dt W_r u_t + b_dt)   [E],   B_t = W_B u_t,   C_t = W_C u_t   [N]
        h_t = exp(dt_t A) * h_{t-1} + (exp(dt_t A) - 1) / A * (u_t B_t^T),   A = -exp(A_log)   [E, N]
        y_t = W_out ((h_t C_t + D * u_t) * silu(W_z x_t))

    E = expand H, the rank of W_r is H / 16, rounded up. The block has no residual and no norm. State: h [B, E, N], and
    v [B, K-1, E], the last inputs of the convolution, where K > 1. Time O(B T E N); memory for h of long rows is O(B
    sqrt(T) E N) (`rlmem.scan.walk`). Initial values are those of the released code: A = -(1 ... N), D = 1, and
    softplus(b_dt) between dt_min and dt_max.

    hidden_size: H, width of the output
    state_size: N
    expand: E / H
    conv_size: K, slots of the convolution; 0 = no convolution
    dt_min: least softplus(b_dt) at initialisation, which is uniform in its logarithm
    dt_max: greatest softplus(b_dt) at initialisation
    discretisation: "zoh" = zero-order hold (eq. 4), as above; "euler" = as in the released code, dt_t (u_t B_t^T)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        state_size: PositiveInt = 16,
        expand: PositiveInt = 2,
        conv_size: Annotated[int, Ge(0)] = 4,
        dt_min: PositiveFloat = 0.001,
        dt_max: PositiveFloat = 0.1,
        discretisation: Literal["zoh", "euler"] = "zoh",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        E, N, R = expand * hidden_size, state_size, ceil(hidden_size / 16)
        self.state_shape = {"h": (E, N)} | ({"v": (conv_size - 1, E)} if conv_size > 1 else {})
        self.conv_size, self.zero_order_hold = conv_size, discretisation == "zoh"
        self.W_x, self.W_z = Linear(input_size, E, bias=False), Linear(input_size, E, bias=False)
        if conv_size:
            bound = conv_size**-0.5
            self.w_conv = nn.Parameter(torch.empty(E, conv_size).uniform_(-bound, bound))
            self.b_conv = nn.Parameter(torch.empty(E).uniform_(-bound, bound))
        self.W_r, self.W_dt = Linear(E, R, bias=False), Linear(R, E)
        nn.init.uniform_(self.W_dt.weight, -(R**-0.5), R**-0.5)
        dt = log_uniform((E,), dt_min, dt_max).exp()
        with torch.no_grad():
            self.W_dt.bias.copy_(inverse_softplus(dt))
        self.W_B, self.W_C = Linear(E, N, bias=False), Linear(E, N, bias=False)
        self.A_log = nn.Parameter(torch.arange(1, N + 1).log().repeat(E, 1))
        self.D = nn.Parameter(torch.ones(E))
        self.W_out = Linear(E, hidden_size, bias=False)

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        v = self.W_x(x)
        carried = {}
        if self.conv_size:
            before = state.get("v", v[:, :0])
            v, carried["v"] = short_convolution(v, before, start, self.w_conv, self.b_conv)
        u = F.silu(v)
        dt, A = F.softplus(self.W_dt(self.W_r(u))), -self.A_log.exp()
        y, h = selective_scan(dt, u, self.W_B(u), self.W_C(u), A, state["h"], start, self.zero_order_hold, self.engine)
        return self.W_out((y + self.D * u) * F.silu(self.W_z(x))), {"h": h} | (carried if self.conv_size > 1 else {})


class DiagonalS6(LinearRecurrence):
    """S6 reduced to one state per channel and equal widths, as the memax library has it (after arXiv:2312.00752).

        dt_t = softplus(W_dt x_t + b_dt),   A = -exp(A_log)                                  [H]
        h_t = exp(dt_t A) * h_{t-1} + (exp(dt_t A) - 1) / A * (W_B x_t + b_B) * x_t
        y_t = (W_C x_t + b_C) * h_t

    No convolution, no expansion, no gate. State: h [B, H]. A linear map W_in of the input exists only if
    input_size != H.

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, engine: Engine = "auto"):
        super().__init__(input_size, hidden_size, engine)
        H = hidden_size
        self.state_shape = (H,)
        self.W_in = Linear(input_size, H) if input_size != H else nn.Identity()
        self.W_dt, self.W_B, self.W_C = Linear(H, H), Linear(H, H), Linear(H, H)
        self.A_log = nn.Parameter(torch.randn(H))

    def project(self, x: Tensor) -> Tensor:
        return self.W_in(x)

    def gates(self, p: Tensor) -> tuple[Tensor, Tensor]:
        A = -self.A_log.exp()
        growth = torch.expm1(F.softplus(self.W_dt(p)) * A)  # exp(dt A) - 1, without the cancellation
        return growth + 1, growth / A * self.W_B(p) * p

    def read(self, h: Tensor, p: Tensor) -> Tensor:
        return self.W_C(p) * h


class S4D(LinearRecurrence):
    """S4D (Gu et al. 2022, arXiv:2206.11893), S4D-Lin initialisation, in POPGym's form (arXiv:2303.01859).

        h_t = dA * h_{t-1} + dB * x_t,   dA = exp(A dt),   dB = B (dA - 1) / A   [H, n], complex
        o_t = 2 Re(sum_n C * h_t) + D * x_t
        y_t = p * sigmoid(q),   [p, q] = W_out GELU(o_t)

    A = -exp(log_neg_A_re) + i A_im and dt = exp(log_dt). What is scanned and carried is s = h / dB, which the input
    drives alone: s_t = dA * s_{t-1} + x_t, so dB * x_t is never materialised, nor is the decay over time.
    State: s [B, H, n] complex. A linear map W_in of the input exists only if input_size != H.

    hidden_size: H, width of the output
    state_size: n, half of a conjugate-symmetric state per channel
    dt_min: least dt at initialisation, which is uniform in its logarithm
    dt_max: greatest dt at initialisation
    step_matrices: "cached" = as published, `step` keeps dA, dB and C of its first call, so that acting stays with the
        initial model while training moves on
    Left out: published training also ignores the carried state, by an FFT convolution from zero.
    """

    complex_state = True
    first: Tensor
    has_first: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        state_size: PositiveInt = 8,
        dt_min: PositiveFloat = 0.001,
        dt_max: PositiveFloat = 0.1,
        step_matrices: Literal["fresh", "cached"] = "fresh",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.state_shape = H, n = hidden_size, state_size
        self.cached = step_matrices == "cached"
        self.W_in = Linear(input_size, H) if input_size != H else nn.Identity()
        self.log_dt = nn.Parameter(log_uniform((H,), dt_min, dt_max))
        self.log_neg_A_re = nn.Parameter(torch.full((H, n), log(0.5)))
        self.A_im = nn.Parameter((pi * torch.arange(n)).repeat(H, 1))
        self.B = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(H, n, 1))
        self.C = nn.Parameter(0.5**0.5 * torch.randn(H, n, 2))
        self.D = nn.Parameter(torch.randn(H))
        self.W_out = Linear(H, 2 * H)
        if self.cached:
            self.breaks = {"parameters_take_effect": "step_matrices=cached never refreshes the matrices of `step`"}
            # in the checkpoint: a resumed run keeps the matrices it acted with
            self.register_buffer("first", torch.zeros(2, H, n, 2))
            self.register_buffer("has_first", torch.tensor(False))

    @of_weights
    def matrices(self) -> tuple[Tensor, Tensor]:
        """dA and C dB [H, n]."""
        A = torch.complex(-self.log_neg_A_re.exp(), self.A_im)
        dA = torch.exp(A * self.log_dt.exp()[:, None])
        return dA, torch.view_as_complex(self.C) * torch.view_as_complex(self.B) * ((dA - 1) / A)

    @torch.no_grad()
    def first_matrices(self) -> tuple[Tensor, Tensor]:
        if not self.has_first:
            self.first.copy_(torch.view_as_real(torch.stack(self.matrices())))
            self.has_first.fill_(True)
        dA, CdB = torch.view_as_complex(self.first.clone())
        return dA, CdB

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        one_slot = x.dim() == 2
        if self.cached and one_slot:
            return self.W_in(x), *self.first_matrices()
        return self.W_in(x), *self.matrices()

    def gates(self, p: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, dA, _ = p
        return dA, x[..., None]

    def read(self, h: Tensor, p: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        x, _, CdB = p
        weight = 2 * conjugate(torch.view_as_real(CdB)).flatten(1)  # Re(w s) = Re(conj(w)) Re(s) + Im(conj(w)) Im(s)
        o = (torch.view_as_real(h).flatten(-2) * weight).sum(-1)
        return F.glu(self.W_out(F.gelu(o + self.D * x)), -1)


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
        dt = torch.empty(h).uniform_(log(SHORTEST), log(LONGEST)).exp().clamp(min=LEAST_STEP)
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
