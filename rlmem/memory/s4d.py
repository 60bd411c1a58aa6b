"""S4D, a diagonal state-space model per channel."""

from math import log, pi
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import PositiveFloat, PositiveInt
from rlmem.memory.blocks import conjugate, log_uniform
from rlmem.memory.recurrence import LinearRecurrence
from rlmem.scan import Engine, Linear
from rlmem.scan.native import of_weights


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
