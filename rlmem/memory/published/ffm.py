"""The published variants of Fast and Forgetful Memory: its ablations, the Memoroids' version and the closed form."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Ablation = Literal["none", "ni", "no", "nc", "fc", "nd", "fd", "hp"]
Version = Literal["original", "memoroid"]
MAX_LENGTH = 1024
"""Most slots of one cumulative sum."""


def vary(ffm: Any, ablation: Ablation, version: Version, clip: Literal["forward", "parameter"]) -> set[str]:
    """Replace the pieces of an FFM that a variant computes differently, and return their names."""
    replaced: dict[str, Callable[..., Tensor]] = {}
    if version == "memoroid":
        replaced |= {"decay": minus_absolute, "as_real": apart, "map_out": norm_after_gate}
    if ablation == "ni":
        replaced["map_in"] = without_gate
    if ablation == "no":
        replaced["map_out"] = sum_of_both
    if clip == "parameter":
        replaced["decay"] = partial(written_back, ffm.decay)
    for name, piece in replaced.items():
        setattr(ffm, name, piece)
    return {*replaced}


def initial(a: Tensor, b: Tensor, ablation: Ablation, version: Version) -> tuple[Tensor, Tensor]:
    """The paper's first decays a [m] and frequencies b, or those of a variant."""
    if version == "memoroid":
        a = torch.linspace(1e-6, 0.5, len(a))
    return torch.zeros_like(a) if ablation == "nd" else a, torch.full_like(b, 1e-6) if ablation == "nc" else b


def minus_absolute(a: Tensor) -> Tensor:
    return -a.abs()


def written_back(decay: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
    """The decay of the stand-alone package, which clips the parameter itself."""
    a.data.copy_(decay(a.data))
    return decay(a)


def without_gate(value: Tensor, gate_in: Tensor) -> Tensor:
    return value


def apart(S: Tensor) -> Tensor:
    """[..., 2 m c]: of each trace all real parts, then all imaginary parts."""
    return torch.view_as_real(S).transpose(-1, -2).flatten(-3)


def norm_after_gate(z: Tensor, skip: Tensor, gate_out: Tensor) -> Tensor:
    g = torch.sigmoid(gate_out)
    return F.layer_norm(z * g, z.shape[-1:]) + skip * (1 - g)


def sum_of_both(z: Tensor, skip: Tensor, gate_out: Tensor) -> Tensor:
    return F.layer_norm(z, z.shape[-1:]) + skip


def closed_unroll(ffm: Any, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """`forward` of an FFM by `closed_form`, MAX_LENGTH slots at a time."""
    outputs = []
    for x_part, start_part in zip(x.split(MAX_LENGTH, 1), start.split(MAX_LENGTH, 1), strict=True):
        p = ffm.project(x_part)
        decay, turn = ffm.log_gamma()
        S = closed_form(decay, turn, ffm.gates(p)[1], state, start_part)
        outputs.append(ffm.read(S, p))
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
