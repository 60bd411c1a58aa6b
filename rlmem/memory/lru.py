"""Linear Recurrent Unit and S5: diagonal recurrences with complex states, in a residual block."""

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
    log_uniform,
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
        ring = (r_min, r_max, max_phase)
        r_min, r_max, max_phase = (p if g is None else g for g, p in zip(ring, RING[block], strict=True))
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


class S5(ResidualRecurrence):
    """S5 (Smith et al. 2023, arXiv:2208.04933) in the residual block of the Memoroids study (arXiv:2402.09900).

        u_t = LN(x_t)
        h_t = Lambda_bar * h_{t-1} + B_bar u_t,   Lambda_bar = exp(Lambda dt)   [N], complex
        B_bar = (Lambda_bar - 1) / Lambda * B,   dt = exp(log_step)   [N]
        o_t = 2 Re(C h_t) + D * u_t
        y_t = x_t + (W_out1 q) * sigmoid(W_out2 q),   q = GELU(o_t), tanh approximation

    A state-space model of 2N conjugate states of which N are kept: hence the 2. Lambda begins as the eigenvalues of
    the normal part of HiPPO-LegS, B and C as real matrices (the published code's LeCun normal, whose fan-in counts 2N
    states for B and 2N H for C) in the basis of its eigenvectors; Re Lambda may become positive later, as published.
    State: h [B, N] complex. The decay is never materialised over time. A linear map W_in of the input exists only if
    input_size != H.

    hidden_size: H, width of the output
    state_size: N
    dt_min: least dt at initialisation, which is uniform in its logarithm
    dt_max: greatest dt at initialisation
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        state_size: PositiveInt = 128,
        dt_min: PositiveFloat = 0.001,
        dt_max: PositiveFloat = 0.1,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, "glu", engine)
        self.state_shape = (state_size,)
        H, N = hidden_size, state_size
        Lambda, V = hippo_eigenvalues(N)
        real = torch.get_default_dtype()
        self.Lambda_re, self.Lambda_im = (nn.Parameter(part.to(real)) for part in (Lambda.real, Lambda.imag))
        B = lecun_normal(2 * N, H, fan_in=2 * N)
        C = torch.view_as_complex(lecun_normal(H, 2 * N, 2, fan_in=2 * N * H))
        self.B = nn.Parameter(torch.view_as_real(V.mH @ B.to(V.dtype)).to(real))
        self.C = nn.Parameter(torch.view_as_real(C @ V).to(real))
        self.D = nn.Parameter(torch.randn(H))
        self.log_step = nn.Parameter(log_uniform((N, 1), dt_min, dt_max))

    def drive(self, u: Tensor) -> tuple[Tensor, Tensor]:
        Lambda_bar, rows = self.discretised()
        return Lambda_bar, complex_from_real(u, rows)

    @of_weights
    def discretised(self) -> tuple[Tensor, Tensor]:
        """Lambda_bar [N], and B_bar `interleaved`."""
        Lambda = torch.complex(self.Lambda_re, self.Lambda_im)
        Lambda_bar = torch.exp(Lambda * self.log_step[:, 0].exp())
        B_bar = ((Lambda_bar - 1) / Lambda)[:, None] * torch.view_as_complex(self.B)
        return Lambda_bar, interleaved(torch.view_as_real(B_bar))

    @of_weights
    def rows_of_C(self) -> Tensor:
        """2 C `conjugated`."""
        return conjugated(2 * self.C)

    def mix(self, h: Tensor, u: Tensor) -> Tensor:
        return real_from_complex(h, self.rows_of_C()) + self.D * u


def hippo_eigenvalues(N: int) -> tuple[Tensor, Tensor]:
    """The N eigenvalues of negative imaginary part, ascending, of the normal part of the HiPPO-LegS matrix of size 2N,
    and their eigenvectors [2N, N]; complex128."""
    n = torch.arange(2 * N, dtype=torch.float64)
    p = torch.sqrt(2 * n + 1)
    A = torch.diag(n) - torch.tril(p[:, None] * p)
    normal = A + p[:, None] * p / 2  # -1/2 on the diagonal, antisymmetric off it
    frequency, V = torch.linalg.eigh(-1j * (normal + torch.eye(2 * N, dtype=torch.float64) / 2))
    return torch.complex(torch.full_like(frequency, -0.5), frequency)[:N], V[:, :N]


def lecun_normal(*shape: int, fan_in: int) -> Tensor:
    """Normal of variance 1 / fan_in, truncated at two standard deviations of the underlying one; float64."""
    std = fan_in**-0.5 / 0.87962566103423978  # the truncated unit normal's own standard deviation
    return nn.init.trunc_normal_(torch.empty(shape, dtype=torch.float64), std=std, a=-2 * std, b=2 * std)
