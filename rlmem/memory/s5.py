"""S5, a diagonal state-space layer."""

import torch
from torch import Tensor, nn

from rlmem.core.types import PositiveFloat, PositiveInt
from rlmem.memory.blocks import (
    ResidualRecurrence,
    complex_from_real,
    conjugated,
    interleaved,
    log_uniform,
    real_from_complex,
)
from rlmem.scan import Engine
from rlmem.scan.native import of_weights


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
