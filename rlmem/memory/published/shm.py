"""The published variants of Stable Hadamard Memory: its ablations, and the rows that released code draws."""

import torch
from torch import Tensor, nn

from rlmem.memory.positions import mixed_bits
from rlmem.memory.shm import SHM
from rlmem.scan import Linear, hadamard_scan, outer_scan

FRESH_BREAKS = (
    "step_equals_forward", "parameters_take_effect", "starts_separate_episodes", "start_clears_nonfinite",
    "tape_equals_segments", "padding_changes_nothing", "rows_independent", "no_global_randomness",
)  # fmt: skip
"""The properties of `rlmem.conformance` that compare two readings of the same slots."""


class PublishedSHM(SHM):
    """An `SHM` that is calibrated as in an ablation, or draws rows as released code does."""

    def make_weights(self, bank_size: int, bound: float) -> None:
        k, input_size = self.k, self.input_size
        if self.calibration == "fixed_c":
            self.C = nn.Parameter(1 + bound / 3 * torch.randn(k, k))
        elif self.calibration == "neural_theta":
            self.W_theta = Linear(input_size, k, bias=False)
            largest = bound / input_size**0.5  # since u has a spread of one
            nn.init.uniform_(self.W_theta.weight, -largest, largest)
            if self.limit is None:
                why = "calibration=neural_theta makes theta and c of one input: products grow"
                self.breaks = {"finite_gradients": why}
        elif self.calibration in ("random_theta", "fixed_theta"):
            super().make_weights(bank_size, bound)
            if self.calibration == "fixed_theta":
                self.Theta = nn.Parameter(self.Theta.detach()[:1].clone())
            elif self.draw == "fresh":
                self.breaks = dict.fromkeys(FRESH_BREAKS, "draw=fresh draws new rows at every call")

    def theta(self, u: Tensor, seed: Tensor, step: Tensor) -> Tensor:
        if self.calibration == "neural_theta":
            return self.W_theta(u)
        if self.calibration == "fixed_theta":
            return self.Theta[0].expand(*u.shape[:-1], self.k)
        if self.calibration == "none":
            return u.new_zeros(*u.shape[:-1], self.k)
        return super().theta(u, seed, step)

    def rows(self, seed: Tensor, step: Tensor) -> Tensor:
        if self.draw == "row0":
            return torch.zeros_like(step, dtype=torch.int64)
        if self.draw == "fresh":
            return torch.randint(len(self.Theta), step.shape, device=step.device)
        return super().rows(seed, step)

    def scan(self, u, c, v, key, query, M0, start, seed, step) -> tuple[Tensor, Tensor]:
        if self.calibration == "none" and self.limit is None:
            reads, S = outer_scan(query, key, v, M0.transpose(1, 2), start, engine=self.engine)
            return reads, S.transpose(1, 2)
        if self.calibration in ("fixed_c", "random_c"):  # not of the form 1 + tanh(theta c^T)
            calibration = self.fixed if self.calibration == "fixed_c" else self.random
            return hadamard_scan(seed, step, v, key, query, M0, start, self.limit, self.engine, calibration)
        return super().scan(u, c, v, key, query, M0, start, seed, step)

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
