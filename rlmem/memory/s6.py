"""S6, the selective state-space model: in its Mamba block, and reduced to one state per channel."""

from math import ceil
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import Ge, PositiveFloat, PositiveInt, State
from rlmem.memory.base import Memory
from rlmem.memory.blocks import inverse_softplus, log_uniform, short_convolution
from rlmem.memory.recurrence import LinearRecurrence
from rlmem.scan import Engine, Linear, selective_scan


class S6(Memory):
    """Mamba's selective state-space model and its block (Gu and Dao 2023, arXiv:2312.00752, algorithm 2, section 3.4).

        v_t = W_x x_t                                                       [E]
        u_t = silu(b_conv + sum_j w_conv_j * v_{t-K+j}),   j = 1 ... K, slots of the episode only
        dt_t = softplus(W_dt W_r u_t + b_dt)   [E],   B_t = W_B u_t,   C_t = W_C u_t   [N]
        h_t = exp(dt_t A) * h_{t-1} + (exp(dt_t A) - 1) / A * (u_t B_t^T),   A = -exp(A_log)   [E, N]
        y_t = W_out ((h_t C_t + D * u_t) * silu(W_z x_t))

    E = expand H, the rank of W_r is H / 16, rounded up. The block has no residual and no norm. State: h [B, E, N], and
    v [B, K-1, E], the last inputs of the convolution, where K > 1. Time O(B T E N); memory for h of long rows is O(B
    sqrt(T) E N) (`rlmem.scan.selective`). Initial values are those of the released code: A = -(1 ... N), D = 1, and
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
