"""Linear Recurrent Unit."""

from collections.abc import Callable
from math import pi

import torch
from torch import Tensor, nn

from rlmem.core.errors import UserError
from rlmem.core.types import PositiveFloat, PositiveInt, UnitFloat
from rlmem.memory.blocks import (
    Kind,
    ResidualRecurrence,
    complex_from_real,
    conjugated,
    interleaved,
    real_from_complex,
)
from rlmem.scan import Engine
from rlmem.scan.native import of_weights

RING = {"glu": (0.0, 1.0, 6.28), "ffn": (0.8, 0.99, 2 * pi), "linear": (0.0, 1.0, 6.28)}
"""r_min, r_max and max_phase as published for each block."""


class LRU(ResidualRecurrence):
    """Linear Recurrent Unit (Orvieto et al. 2023, arXiv:2303.06349) in one residual block.

        h_t = lambda * h_{t-1} + gamma * (B u_t),   lambda = exp(-exp(nu_log) + i exp(theta_log))   [N], complex
        o_t = Re(C h_t) + D * u_t,   gamma = exp(gamma_log)

    |lambda| < 1 by construction. gamma is sqrt(1 - |lambda|^2) at initialisation and a free weight from then on.
    State: h [B, N] complex. The decay is never materialised over time.

    block "glu": as in the Memoroids study (Morad et al. 2024, arXiv:2402.09900), N = 128
        u = LN(x),   y = x + (W_out1 q) * sigmoid(W_out2 q),   q = GELU(o), tanh approximation
    block "ffn": as in the POMDP study of Lu et al. (2024, arXiv:2405.17358), N = 2H; biases, no D; dropout left out
        u = x,   B u + b_B,   o = Re(C h + b_C),   z = LN_1(o + x),   y = LN_2(z + W_2 GELU(W_1 z))
    block "linear": as in the same study on PyBullet, N = H; linear but for the norm; the encoder is that of `Stack`
        u = x,   y = LN(W_out2 o + x)

    hidden_size: H, width of the output
    state_size: N, None = as published for the block
    r_min: least |lambda| at initialisation, None = as published for the block
    r_max: greatest |lambda| at initialisation, None = as published for the block
    max_phase: greatest angle of lambda at initialisation, None = as published for the block
    A linear map W_in of the input exists only if input_size != H.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        block: Kind = "glu",
        state_size: PositiveInt | None = None,
        r_min: UnitFloat | None = None,
        r_max: UnitFloat | None = None,
        max_phase: PositiveFloat | None = None,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, block, engine)
        H, N = hidden_size, state_size or {"glu": 128, "ffn": 2 * hidden_size, "linear": hidden_size}[block]
        self.state_shape = (N,)
        given = (r_min, r_max, max_phase)
        r_min, r_max, max_phase = (p if g is None else g for g, p in zip(given, RING[block], strict=True))
        if r_min > r_max:
            raise UserError(f"r_min={r_min} is above r_max={r_max}; e.g. r_min=0.8 r_max=0.99")
        if r_min == 1 or r_max == 0:
            raise UserError(f"r_min={r_min} r_max={r_max}: such a memory reads or keeps nothing; e.g. r_min=0 r_max=1")
        # Drawn in double precision: in single, one draw in 16 million is a zero or rounds to |lambda| = 1.
        radius, angle = torch.rand(2, N, dtype=torch.float64)
        nu = -0.5 * torch.log(radius * (r_max**2 - r_min**2) + r_min**2)
        drawn = nu.log(), (max_phase * angle).log(), 0.5 * torch.log(-torch.expm1(-2 * nu))
        self.nu_log, self.theta_log, self.gamma_log = (nn.Parameter(w.to(torch.get_default_dtype())) for w in drawn)
        self.B, self.C = nn.Parameter(torch.empty(N, H, 2)), nn.Parameter(torch.empty(H, N, 2))
        self.has_biases = block == "ffn"
        if self.has_biases:
            self.b_B, self.b_C = nn.Parameter(torch.empty(N, 2)), nn.Parameter(torch.empty(H, 2))
            dense = [p for layer in self.block.children() if isinstance(layer, nn.Linear) for p in layer.parameters()]
            for weight in (self.B, self.C, self.b_B, self.b_C, *dense):
                nn.init.trunc_normal_(weight, std=0.02, a=-0.04, b=0.04)
        else:
            self.D = nn.Parameter(torch.randn(H))
            nn.init.normal_(self.B, std=(2 * H) ** -0.5)
            nn.init.normal_(self.C, std=N**-0.5)

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        weights = super().symbols(of)
        if self.has_biases:
            return weights | {s: torch.view_as_complex(weights[s]) for s in ("B", "b_B", "C", "b_C")}
        for s in ("B", "C"):
            weights[f"{s}_re"], weights[f"{s}_im"] = weights.pop(s).unbind(-1)
        return weights

    @of_weights
    def decay(self) -> Tensor:
        """lambda [N]"""
        return torch.exp(torch.complex(-self.nu_log.exp(), self.theta_log.exp()))

    @of_weights
    def gamma_B(self) -> tuple[Tensor, Tensor | None]:
        """gamma * B `interleaved`, and gamma * b_B [N, 2] if there are biases."""
        gamma = self.gamma_log.exp()[:, None]
        return interleaved(gamma[..., None] * self.B), gamma * self.b_B if self.has_biases else None

    @of_weights
    def rows_of_C(self) -> Tensor:
        """C `conjugated`."""
        return conjugated(self.C)

    def drive(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return self.decay(), complex_from_real(u, *self.gamma_B())

    def mix(self, h: Tensor, u: Tensor) -> Tensor:
        o = real_from_complex(h, self.rows_of_C())
        return o + self.b_C[:, 0] if self.has_biases else o + self.D * u
