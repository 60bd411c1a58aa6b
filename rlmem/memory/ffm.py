"""Fast and Forgetful Memory."""

from collections.abc import Callable
from math import log, pi
from sys import float_info
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.memory.base import LinearRecurrence
from rlmem.scan import Engine, chosen_engine
from rlmem.scan.ffm import ffm_unroll
from rlmem.scan.matmul import Linear
from rlmem.types import PositiveInt

BETA = 0.01
"""Fraction of a trace that is left after its longest memory (appendix B)."""
MAX_LENGTH = 1024
"""The published bound on |a| keeps exp(-a * MAX_LENGTH) within double precision; kept for comparability."""
LIMIT = log(float_info.max) / MAX_LENGTH - 0.01

Parts = tuple[Tensor, ...]


class FFM(LinearRecurrence):
    """Fast and Forgetful Memory (Morad et al. 2023, arXiv:2310.04128, eq. 5-14).

        u_t = W_value x_t * sigmoid(W_gate_in x_t)                      [m]
        S_t = gamma * S_{t-1} + u_t 1_c^T,   gamma_jk = exp(a_j + i b_k)   [m, c], complex
        y_t = LN(W_mix [Re S_t, Im S_t]) * g + (W_skip x_t) * (1 - g),   g = sigmoid(W_gate_out x_t)

    Every W has a bias; the layer norm has no parameters; W_value, W_skip, W_gate_in and W_gate_out are one layer.
    State: S [B, m, c] complex. |gamma| < 1 and the scan has no exponent above zero, so float32 is enough.

    hidden_size: H, width of the output;  trace_size: m;  context_size: c
    max_period: slots; the slowest trace keeps 1 % and the slowest frequency turns once in that time, at initialisation
    ablation (table 3): ni no input gate, no no output gate, nc no context (b = 1e-6), fc context not learned,
        nd no decay (a = 0), fd decay not learned, hp one decay and frequency for each of m c traces, without outer sum
    version: "original", the experiments' code (a < 0, clipped to its bounds), or "memoroid" (Morad et al. 2024,
        arXiv:2402.09900): exp(-|a| + i b), another initialisation, the layer norm after the gate: LN(z * g)
    skip: "linear", or "identity" as in that paper's eq. 84, which needs H = D
    clip: "forward" leaves `a` where it is, with no gradient outside the bounds; "parameter" writes the clipped value
        back at every unroll, as the published standalone package does
    form: "scan", or "closed", the published cumulative sum (eq. 13) in complex128, for comparison
    """

    complex_state = True

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        trace_size: PositiveInt = 32,
        context_size: PositiveInt = 4,
        max_period: PositiveInt = 1024,
        ablation: Literal["none", "ni", "no", "nc", "fc", "nd", "fd", "hp"] = "none",
        version: Literal["original", "memoroid"] = "original",
        skip: Literal["linear", "identity"] = "linear",
        clip: Literal["forward", "parameter"] = "forward",
        form: Literal["scan", "closed"] = "scan",
        engine: Engine = "auto",
    ):
        super().__init__()
        if skip == "identity" and input_size != hidden_size:
            raise ValueError(
                f"skip=identity needs hidden_size = input size, got {hidden_size} and {input_size}; e.g. skip=linear"
            )
        self.input_size, self.output_size = input_size, hidden_size
        self.ablation, self.version, self.clip, self.form, self.engine = ablation, version, clip, form, engine
        if form == "closed":
            self.breaks = {"no_gradient_across_start": "form=closed subtracts sums, which leaves their rounding"}
        m, c = (trace_size * context_size, 1) if ablation == "hp" else (trace_size, context_size)
        self.state_shape = (m, c)
        self.sizes = [m, 0 if skip == "identity" else hidden_size, m, hidden_size]
        self.project_in = Linear(input_size, sum(self.sizes))
        self.mix = Linear(2 * m * c, hidden_size)
        if version == "memoroid":
            a = torch.linspace(1e-6, 0.5, m)
        else:
            slowest, fastest = log(BETA) / max_period, -LIMIT + 0.01
            a = torch.linspace(fastest, max(min(-1e-6, slowest), fastest), m)
        b = 2 * pi / torch.linspace(1, max_period, m if ablation == "hp" else c)
        self.a = nn.Parameter(torch.zeros(m) if ablation == "nd" else a, requires_grad=ablation not in ("nd", "fd"))
        self.b = nn.Parameter(torch.full((c,), 1e-6) if ablation == "nc" else b, ablation not in ("nc", "fc"))

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        fused: dict[str, Tensor] = {}
        for letter, parameter in (("W", self.project_in.weight), ("b", self.project_in.bias)):
            parts = of(parameter).split(self.sizes)
            fused |= {f"{letter}_{name}": part for name, part in zip(_NAMES, parts, strict=True) if len(part)}
        mix = {"W_mix": of(self.mix.weight), "b_mix": of(self.mix.bias)}
        return fused | mix | {"a": of(self.a), "b": of(self.b)}

    def project(self, x: Tensor) -> Parts:
        value, skip, gate_in, gate_out = self.project_in(x).split(self.sizes, -1)
        return value, skip if self.sizes[1] else x, gate_in, gate_out

    def log_gamma(self) -> tuple[Tensor, Tensor]:
        """log|gamma| <= 0 and arg gamma, each broadcasting to [m, c]."""
        decay = -self.a.abs() if self.version == "memoroid" else self.a.clamp(-LIMIT, -1e-8)
        return decay[:, None], self.b[:, None] if self.ablation == "hp" else self.b

    def gates(self, p: Parts) -> tuple[Tensor, Tensor]:
        value, _, gate_in, _ = p
        u = value if self.ablation == "ni" else value * torch.sigmoid(gate_in)
        return self.gamma(), u[..., None]

    def gamma(self) -> Tensor:
        """[m, c] complex, |gamma| < 1."""
        decay, turn = self.log_gamma()
        return torch.polar(torch.exp(decay).expand(self.state_shape), turn.expand(self.state_shape))

    def read(self, h: Tensor, p: Parts) -> Tensor:
        _, skip, _, gate_out = p
        pairs = torch.view_as_real(h)  # [..., m, c, 2]
        z = self.mix((pairs.transpose(-1, -2) if self.version == "memoroid" else pairs).flatten(-3))
        if self.ablation == "no":
            return F.layer_norm(z, z.shape[-1:]) + skip
        g = torch.sigmoid(gate_out)
        if self.version == "memoroid":
            return F.layer_norm(z * g, z.shape[-1:]) + skip * (1 - g)
        return torch.lerp(skip, F.layer_norm(z, z.shape[-1:]), g)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        if self.clip == "parameter":
            self.a.data.clamp_(-LIMIT, -1e-8)
        if self.form == "scan" and self._fuses(x):
            weights = (self.project_in.weight, self.project_in.bias, self.gamma(), self.mix.weight, self.mix.bias)
            return ffm_unroll(x, *weights, state, start)
        if self.form == "scan":
            return super().forward(x, state, start)
        outputs = []
        for x_part, start_part in zip(x.split(MAX_LENGTH, 1), start.split(MAX_LENGTH, 1), strict=True):
            p = self.project(x_part)
            h = self._closed(self.gates(p)[1], state, start_part)
            outputs.append(self.read(h, p))
            state = h[:, -1]
        return torch.cat(outputs, 1), state.clone()

    def _fuses(self, x: Tensor) -> bool:
        """Whether this is the published form, on the engine that has a kernel for all of it."""
        plain = self.version == "original" and self.ablation not in ("ni", "no") and self.sizes[1]
        supported = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(x.device.type)
        return bool(plain and supported and x.shape[1] > 1 and chosen_engine(self.engine, x.device) == "native")

    def _closed(self, u: Tensor, state: Tensor, start: Tensor) -> Tensor:
        """S_t = gamma^-e_t sum_q gamma^e_q u_q, e_t = T - 1 - t, over the slots q of t's own episode."""
        T = start.shape[1]
        decay, turn = (x.double() for x in self.log_gamma())
        power = lambda n: torch.polar(torch.exp(n * decay), n * turn)  # noqa: E731
        time = torch.arange(T, dtype=torch.float64, device=u.device)[:, None, None]
        total = (power(T - 1 - time) * u).cumsum(1)
        first = torch.where(start, torch.arange(T, device=u.device), 0).cummax(1).values  # [B, T]
        index = (first - 1).clamp(min=0)[..., None, None].expand_as(total)
        before = torch.where((first > 0)[..., None, None], total.gather(1, index), 0)
        fresh = start.cumsum(1).bool()[..., None, None]
        carried = torch.where(fresh, 0, power(time + 1) * torch.where(fresh, 0, state[:, None]))
        return ((total - before) * power(time - T + 1) + carried).to(state.dtype)


_NAMES = ("value", "skip", "gate_in", "gate_out")
