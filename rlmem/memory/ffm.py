"""Fast and Forgetful Memory."""

from collections.abc import Callable
from math import e, log, pi
from sys import float_info
from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.core.types import PositiveInt
from rlmem.memory.base import Projecting
from rlmem.scan import Engine, Linear
from rlmem.scan.ffm import ffm_step, ffm_unroll
from rlmem.scan.native import of_weights

Init = Literal["published", "geometric"]
Ablation = Literal["none", "ni", "no", "nc", "fc", "nd", "fd", "hp"]
Version = Literal["original", "memoroid"]

BETA = 0.01
"""Fraction of the slowest trace that is left after `max_period` slots (appendix B)."""
LIMIT = log(float_info.max) / 1024 - 0.01
"""The published bound on |a|, which keeps exp(-a * 1024) within double precision; kept for comparability."""


class FFM(Projecting):
    """Fast and Forgetful Memory (Morad et al. 2023, arXiv:2310.04128, eq. 5-14).

        u_t = W_value x_t * sigmoid(W_gate_in x_t)                      [m]
        S_t = gamma * S_{t-1} + u_t 1_c^T,   gamma_jk = exp(a_j + i b_k)   [m, c], complex
        y_t = LN(W_mix [Re S_t, Im S_t]) * g + (W_skip x_t) * (1 - g),   g = sigmoid(W_gate_out x_t)

    Every W has a bias; the layer norm has no parameters; W_value, W_skip, W_gate_in and W_gate_out are one layer.
    State: S [B, m, c] complex. |gamma| < 1 and the scan has no exponent above zero, so float32 is enough.
    With the `ablation` "ni" or "no", `version`, `skip` or `form` of published code it is a `PublishedFFM`, from which a
    class with these options is derived.

    hidden_size: H, width of the output
    trace_size: m, number of traces
    context_size: c, number of contexts of every trace
    max_period: slots; the slowest trace keeps 1 % and the slowest frequency turns once in that time, at initialisation
    init: first periods of the frequencies: "published", evenly spaced from 1 slot to `max_period` (appendix B), so that
        four up to 1,024 have none between 1 and 342; "geometric", from 2 slots, the shortest that slots can show, to
        `max_period`, each the same multiple of the one before
    ablation: one of table 3: "ni", no input gate; "no", no output gate; "nc", no context (b = 1e-6); "fc", context not
        learned; "nd", no decay (a = 0); "fd", decay not learned; "hp", a decay and a frequency for each of m c traces,
        without the outer sum
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
        init: Init = "published",
        ablation: Ablation = "none",
        version: Version = "original",
        skip: Literal["linear", "identity"] = "linear",
        clip: Literal["forward", "parameter"] = "forward",
        form: Literal["scan", "closed"] = "scan",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        if skip == "identity" and input_size != hidden_size:
            sizes = f"{hidden_size} and {input_size}"
            raise ValueError(f"skip=identity needs hidden_size = input size, got {sizes}; e.g. skip=linear")
        m, c = (trace_size * context_size, 1) if ablation == "hp" else (trace_size, context_size)
        self.state_shape = (m, c)
        self.sizes = [m, 0 if skip == "identity" else hidden_size, m, hidden_size]
        self.project_in = Linear(input_size, sum(self.sizes))
        self.mix = Linear(2 * m * c, hidden_size)
        slowest, fastest = log(BETA) / max_period, -LIMIT + 0.01
        a = torch.linspace(fastest, max(min(-1e-6, slowest), fastest), m)
        b = 2 * pi / periods(init, max_period, m if ablation == "hp" else c)
        a = torch.linspace(1e-6, 0.5, m) if version == "memoroid" else a
        a, b = torch.zeros_like(a) if ablation == "nd" else a, torch.full_like(b, 1e-6) if ablation == "nc" else b
        self.a = nn.Parameter(a, requires_grad=ablation not in ("nd", "fd"))
        self.b = nn.Parameter(b, requires_grad=ablation not in ("nc", "fc"))
        self.ablation, self.version, self.clip, self.closed = ablation, version, clip, form == "closed"
        if self.closed:
            self.breaks = {"no_gradient_across_start": "form=closed subtracts sums, which leaves their rounding"}
        replaced = version == "memoroid" or skip == "identity" or ablation in ("ni", "no") or self.closed
        if replaced:
            from rlmem.memory.published.ffm import PublishedFFM  # which derives from this class

            self.become(PublishedFFM)

    def decay(self) -> Tensor:
        """log |gamma| [m], below 0."""
        if self.clip == "parameter":
            self.a.data.clamp_(-LIMIT, -1e-8)
        return self.a.clamp(-LIMIT, -1e-8)

    def log_gamma(self) -> tuple[Tensor, Tensor]:
        """log|gamma| < 0 and arg gamma, each broadcasting to [m, c]."""
        return self.decay()[:, None], self.b.view(-1, self.state_shape[1])

    @of_weights
    def gamma(self) -> Tensor:
        """[m, c] complex, |gamma| < 1."""
        decay, turn = self.log_gamma()
        return torch.polar(torch.exp(decay).expand(self.state_shape), turn.expand(self.state_shape))

    def project_slots(self, x: Tensor) -> Tensor:
        """As in `Projecting`: value, skip and both gates of each slot, before their sigmoids."""
        return self.project_in(x)

    def read_projected(self, p: Tensor, which: Tensor | None, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """As in `Projecting`; without `which`, every slot has a projection of its own, p [B, T, P]."""
        return ffm_unroll(p, self.gamma(), self.mix.weight, self.mix.bias, state, start, self.engine, which)

    def step_projected(self, p: Tensor, which: Tensor | None, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """As in `Projecting`; without `which`, p [B, P]."""
        mix = self.mix
        return ffm_step(p, self.gamma(), mix.weight, mix.bias, state, start, self.engine, which, mix.panels)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        return self.read_projected(self.project_slots(x), None, state, start)

    def step(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        return self.step_projected(self.project_slots(x), None, state, start)

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        fused: dict[str, Tensor] = {}
        for letter, parameter in (("W", self.project_in.weight), ("b", self.project_in.bias)):
            names = (f"{letter}_{name}" for name in ("value", "skip", "gate_in", "gate_out"))
            parts = zip(names, of(parameter).split(self.sizes), strict=True)
            fused |= {name: part for name, part in parts if len(part)}
        mix = {"W_mix": of(self.mix.weight), "b_mix": of(self.mix.bias)}
        return fused | mix | {"a": of(self.a), "b": of(self.b)}


def periods(init: Init, longest: int, count: int) -> Tensor:
    """The first periods [count] of frequencies in slots, up to `longest`."""
    if init == "published":
        return torch.linspace(1, longest, count)
    return torch.logspace(log(min(2, longest)), log(longest), count, base=e)
