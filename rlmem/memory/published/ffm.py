"""The published variants of Fast and Forgetful Memory: its ablations, the Memoroids' version and the closed form."""

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.memory.ffm import FFM
from rlmem.memory.recurrence import LinearRecurrence

Projected = tuple[Tensor, Tensor, Tensor, Tensor]
"""value [..., m], skip [..., H], gate_in [..., m] and gate_out [..., H]."""
MAX_LENGTH = 1024
"""Most slots of one cumulative sum."""


class PublishedFFM(LinearRecurrence, FFM):
    """An `FFM` with options that replace pieces of the paper's model; it has no fused kernels."""

    def decay(self) -> Tensor:
        if self.version == "memoroid" and self.clip == "forward":
            return -self.a.abs()
        return FFM.decay(self)

    def project(self, x: Tensor) -> Projected:
        value, skip, gate_in, gate_out = self.project_in(x).split(self.sizes, -1)
        return value, skip if self.sizes[1] else x, gate_in, gate_out

    def gates(self, p: Projected) -> tuple[Tensor, Tensor]:
        value, _, gate_in, _ = p
        u = value if self.ablation == "ni" else value * torch.sigmoid(gate_in)
        return self.gamma(), u[..., None]

    def read(self, h: Tensor, p: Projected) -> Tensor:
        _, skip, _, gate_out = p
        pairs = torch.view_as_real(h)
        if self.version == "memoroid":  # of each trace all real parts, then all imaginary parts
            pairs = pairs.transpose(-1, -2)
        z, g = self.mix(pairs.flatten(-3)), torch.sigmoid(gate_out)
        if self.ablation == "no":
            return F.layer_norm(z, z.shape[-1:]) + skip
        if self.version == "memoroid":
            return F.layer_norm(z * g, z.shape[-1:]) + skip * (1 - g)
        return torch.lerp(skip, F.layer_norm(z, z.shape[-1:]), g)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        if not self.closed:
            return super().forward(x, state, start)
        outputs = []
        for x_part, start_part in zip(x.split(MAX_LENGTH, 1), start.split(MAX_LENGTH, 1), strict=True):
            p = self.project(x_part)
            S = closed_form(*self.log_gamma(), self.gates(p)[1], state, start_part)
            outputs.append(self.read(S, p))
            state = S[:, -1]
        return torch.cat(outputs, 1), state.clone()


def closed_form(decay: Tensor, turn: Tensor, u: Tensor, state: Tensor, start: Tensor) -> Tensor:
    """S_t = gamma^-e_t sum_q gamma^e_q u_q, e_t = T - 1 - t, over the slots q of t's own episode, in complex128.

    The paper's cumulative sum (eq. 13), from u [B, T, m, 1] and the state [B, m, c]; decay + i turn is log gamma.
    """
    T = start.shape[1]
    decay, turn = decay.double(), turn.double()
    power = lambda n: torch.polar(torch.exp(n * decay), n * turn)  # noqa: E731
    time = torch.arange(T, dtype=torch.float64, device=u.device)[:, None, None]
    total = (power(T - 1 - time) * u).cumsum(1)
    first = torch.where(start, torch.arange(T, device=u.device), 0).cummax(1).values  # [B, T]
    index = (first - 1).clamp(min=0)[..., None, None].expand_as(total)
    before = torch.where((first > 0)[..., None, None], total.gather(1, index), 0)
    fresh = start.cumsum(1).bool()[..., None, None]
    carried = torch.where(fresh, 0, power(time + 1) * torch.where(fresh, 0, state[:, None]))
    return ((total - before) * power(time - T + 1) + carried).to(state.dtype)
