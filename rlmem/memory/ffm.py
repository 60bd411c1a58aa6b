"""Fast and Forgetful Memory."""

from collections.abc import Callable
from math import log, pi
from sys import float_info

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.memory.base import LinearRecurrence
from rlmem.scan import Engine
from rlmem.types import PositiveInt

BETA = 0.01
"""Fraction of a trace that is left after its longest memory (appendix B)."""
MAX_LENGTH = 1024
"""The published bound on |a| keeps exp(-a * MAX_LENGTH) within double precision; kept for comparability."""


class FFM(LinearRecurrence):
    """Fast and Forgetful Memory (Morad et al. 2023, arXiv:2310.04128, eq. 5-14).

        u_t = W_value x_t * sigmoid(W_gate_in x_t)                      [m]
        S_t = gamma * S_{t-1} + u_t 1_c^T,   gamma_jk = exp(a_j + i b_k)   [m, c], complex
        y_t = LN(W_mix [Re S_t, Im S_t]) * g + (W_skip x_t) * (1 - g),   g = sigmoid(W_gate_out x_t)

    a < 0 (the paper's -alpha) is clipped to the published bounds in the forward pass; the layer norm has no
    parameters and stands before the gate, as in the published code. The four projections are one linear layer, in
    the order value, skip, gate_in, gate_out. State: S [B, m, c] complex. |gamma| < 1 and no exponent is above zero,
    so float32 is enough where the published closed form needs complex128.

    hidden_size: H, width of the output;  trace_size: m;  context_size: c
    max_period: slots; the slowest trace keeps 1 % and the slowest frequency turns once in that time, at initialisation
    """

    complex_state = True

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        trace_size: PositiveInt = 32,
        context_size: PositiveInt = 4,
        max_period: PositiveInt = 1024,
        engine: Engine = "auto",
    ):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.state_shape = (trace_size, context_size)
        self.engine = engine
        self.sizes = [trace_size, hidden_size, trace_size, hidden_size]
        self.project_in = nn.Linear(input_size, sum(self.sizes))
        self.mix = nn.Linear(2 * trace_size * context_size, hidden_size)
        limit = log(float_info.max) / MAX_LENGTH - 0.01
        self.a_min, self.a_max = -limit, -1e-8
        slowest, fastest = log(BETA) / max_period, -limit + 0.01
        self.a = nn.Parameter(torch.linspace(fastest, max(min(-1e-6, slowest), fastest), trace_size))
        self.b = nn.Parameter(2 * pi / torch.linspace(1, max_period, context_size))

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        weights, biases = (of(p).split(self.sizes) for p in (self.project_in.weight, self.project_in.bias))
        parts = ("value", "skip", "gate_in", "gate_out")
        fused = {f"W_{part}": w for part, w in zip(parts, weights, strict=True)}
        fused |= {f"b_{part}": b for part, b in zip(parts, biases, strict=True)}
        mix = {"W_mix": of(self.mix.weight), "b_mix": of(self.mix.bias)}
        return fused | mix | {"a": of(self.a), "b": of(self.b)}

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.project_in(x).split(self.sizes, -1)

    def gates(self, p: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        value, _, gate_in, _ = p
        u = (value * torch.sigmoid(gate_in))[..., None].expand(*value.shape, len(self.b))
        decay = torch.exp(self.a.clamp(self.a_min, self.a_max))[:, None]
        gamma = torch.complex(decay * torch.cos(self.b), decay * torch.sin(self.b))
        return gamma, torch.complex(u, torch.zeros_like(u))

    def read(self, h: Tensor, p: tuple[Tensor, ...]) -> Tensor:
        _, skip, _, gate_out = p
        z = self.mix(torch.view_as_real(h).flatten(-3))
        return torch.lerp(skip, F.layer_norm(z, z.shape[-1:]), torch.sigmoid(gate_out))
