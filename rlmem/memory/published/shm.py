"""The published variants of Stable Hadamard Memory: its ablations, and the rows that released code draws."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlmem.memory.base import Memory
from rlmem.memory.positions import mixed_bits
from rlmem.scan import Linear, hadamard_scan, outer_scan

Calibration = Literal["random_theta", "none", "random_c", "fixed_c", "fixed_theta", "neural_theta"]
Draw = Literal["seeded", "row0", "fresh"]
FRESH_BREAKS = (
    "step_equals_forward", "parameters_take_effect", "starts_separate_episodes", "start_clears_nonfinite",
    "tape_equals_segments", "padding_changes_nothing", "rows_independent", "no_global_randomness",
)  # fmt: skip
"""The properties of `rlmem.conformance` that compare two readings of the same slots."""


def broken(calibration: Calibration, draw: Draw, limit: float | None) -> Mapping[str, str]:
    """The properties that a variant breaks on purpose, as in `Memory.breaks`."""
    if calibration == "neural_theta" and limit is None:
        return {"finite_gradients": "calibration=neural_theta makes theta and c of one input: products grow"}
    if calibration == "random_theta" and draw == "fresh":
        return dict.fromkeys(FRESH_BREAKS, "draw=fresh draws new rows at every call")
    return {}


def set_weights(memory: Any, calibration: Calibration, bank_size: int, bound: float) -> None:
    """Give an SHM the weights that an ablation has in the place of Theta [bank_size, k], which is within `bound`."""
    k, input_size = memory.k, memory.input_size
    if calibration == "fixed_c":
        memory.C = nn.Parameter(1 + bound / 3 * torch.randn(k, k))
    elif calibration == "neural_theta":
        memory.W_theta = Linear(input_size, k, bias=False)
        largest = bound / input_size**0.5  # since u has a spread of one
        nn.init.uniform_(memory.W_theta.weight, -largest, largest)
    elif calibration == "fixed_theta":
        memory.Theta = nn.Parameter(nn.init.xavier_uniform_(torch.empty(bank_size, k))[:1].clone())


class Variants(Memory):
    """The pieces of an `rlmem.memory.shm.SHM` that its options replace."""

    calibration: Calibration
    draw: Draw
    limit: float | None
    random_c_std: float
    k: int
    Theta: Tensor
    C: Tensor
    W_theta: Callable[[Tensor], Tensor]

    def theta(self, u: Tensor, seed: Tensor, step: Tensor) -> Tensor:
        if self.calibration == "neural_theta":
            return self.W_theta(u)
        if self.calibration == "fixed_theta":
            return self.Theta[0].expand(*u.shape[:-1], self.k)
        if self.calibration == "none":
            return u.new_zeros(*u.shape[:-1], self.k)
        return super().theta(u, seed, step)  # type: ignore[misc] # of the SHM that it is mixed into

    def rows(self, seed: Tensor, step: Tensor) -> Tensor:
        if self.draw == "row0":
            return torch.zeros_like(step, dtype=torch.int64)
        if self.draw == "fresh":
            return torch.randint(len(self.Theta), step.shape, device=step.device)
        return super().rows(seed, step)  # type: ignore[misc]

    def scan(self, u, c, v, key, query, M0, start, seed, step) -> tuple[Tensor, Tensor]:
        if self.calibration == "none" and self.limit is None:
            reads, S = outer_scan(query, key, v, M0.transpose(1, 2), start, engine=self.engine)
            return reads, S.transpose(1, 2)
        if self.calibration in ("fixed_c", "random_c"):  # not of the form 1 + tanh(theta c^T)
            calibration = self.fixed if self.calibration == "fixed_c" else self.random
            return hadamard_scan(seed, step, v, key, query, M0, start, self.limit, self.engine, calibration)
        return super().scan(u, c, v, key, query, M0, start, seed, step)  # type: ignore[misc]

    def fixed(self, seed: Tensor, step: Tensor) -> Tensor:
        """The learned matrix, for each slot."""
        return self.C.expand(*seed.shape, self.k, self.k)

    def random(self, seed: Tensor, step: Tensor) -> Tensor:
        """Normal matrices around 1, from the bits of the slots' seeds and ages."""
        cell = torch.arange(self.k * self.k, device=seed.device).view(self.k, self.k)
        draws = mixed_bits(mixed_bits(seed.long(), step.long())[..., None, None], cell)
        uniform = ((draws & 0xFFFFFF) + 0.5) / 2**24, ((draws >> 24) + 0.5) / 2**24
        radius, angle = torch.sqrt(-2 * torch.log(uniform[0])), 2 * torch.pi * uniform[1]  # Box-Muller
        return 1 + self.random_c_std * (radius * torch.cos(angle)).to(seed.dtype)
