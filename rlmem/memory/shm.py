"""Stable Hadamard Memory."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import PositiveFloat, PositiveInt
from rlmem.memory.base import Memory
from rlmem.memory.blocks import sum_normalised
from rlmem.memory.positions import ages, counting, mixed_bits
from rlmem.scan import Engine, Linear, hadamard_scan

Calibration = Literal["random_theta", "none", "random_c", "fixed_c", "fixed_theta", "neural_theta"]
Draw = Literal["seeded", "row0", "fresh"]


class SHM(Memory):
    """Stable Hadamard Memory (Le et al. 2024, arXiv:2410.10132), a matrix calibrated elementwise.

        u_t = LN(x_t),   key_t = relu(W_k u_t) / sum, query_t likewise with W_q
        C_t = 1 + tanh(theta_t (W_c u_t)^T),   U_t = sigmoid(w_eta u_t) (W_v u_t) key_t^T
        M_t = M_{t-1} * C_t + U_t                                     [k, k], value row, key column
        y_t = W_out (M_t query_t + W_s u_t)

    theta_t is a row of Theta [L, k], drawn at random: over independent draws the product of the C_t has mean 1, so
    that memories neither vanish nor explode on average. Training must read what acting read, so the row is a hash of
    a seed in the state and the slots since the episode's start; `redraw` changes the seed between rollouts.
    State: {"M": [B, k, k], "seed": [B], "step": [B]}. Cost O(k^2) a slot; [T, k, k] is never stored.

    hidden_size: H, width of the output
    memory_size: k
    bank_size: L
    shortcut: whether the output has the term W_s u_t
    calibration (section 4.4): "random_theta"; or its ablations "none" (C = 1), "random_c" (normal around 1, spread
        `random_c_std`, not learned), "fixed_c" (a learned matrix), "fixed_theta" (one learned vector),
        "neural_theta" (theta_t = W_theta u_t). All but "none" begin with the same spread of C around 1, of which the
        paper says nothing: Theta has Xavier's weights, uniform within b = sqrt(6 / (L + k)), which makes it b / 3
    random_c_std: spread of calibration="random_c"; None: b / 3
    draw: "seeded"; "row0" is the published POPGym and stand-alone code, whose integer cast always yields row 0;
        "fresh" the published SAC code: new rows at every call, so that training does not read what acting read
    limit: bound on the entries of M; the published SAC code has 100, the paper none
    """

    seed: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        memory_size: PositiveInt = 32,
        bank_size: PositiveInt = 128,
        calibration: Calibration = "random_theta",
        draw: Draw = "seeded",
        shortcut: bool = True,
        random_c_std: PositiveFloat | None = None,
        limit: PositiveFloat | None = None,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.calibration, self.draw, self.limit = calibration, draw, limit
        self.k = k = memory_size
        bound = (6 / (bank_size + k)) ** 0.5
        self.random_c_std = bound / 3 if random_c_std is None else random_c_std
        self.ln = nn.LayerNorm(input_size)
        self.parts = {"W_k": k, "W_q": k, "W_v": k, "W_c": k, "w_eta": 1} | ({"W_s": k} if shortcut else {})
        self.project_in = Linear(input_size, sum(self.parts.values()), bias=False)
        self.b_s = nn.Parameter(torch.zeros(k)) if shortcut else None
        if calibration != "random_theta" or draw != "seeded":
            from rlmem.memory.published.shm import PublishedSHM  # which derives from this class

            self.become(PublishedSHM)
        self.make_weights(bank_size, bound)
        self.W_out = Linear(k, hidden_size)
        self.register_buffer("seed", torch.randint(1 << 20, ()))

    def make_weights(self, bank_size: int, bound: float) -> None:
        """Draw Theta, whose entries lie within `bound`."""
        self.Theta = nn.Parameter(nn.init.xavier_uniform_(torch.empty(bank_size, self.k)))

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        own = {name: value for name, value in super().symbols(of).items() if name != "project_in"}
        split = of(self.project_in.weight).split(list(self.parts.values()))
        return own | dict(zip(self.parts, split, strict=True))

    def initial_state(self, batch_size: int) -> dict[str, Tensor]:
        M = self._like_parameters().new_zeros(batch_size, self.k, self.k)
        counts = counting(M.dtype)
        seed = self.seed.to(counts).expand(batch_size).clone()  # `redraw` does not reach into states
        return {"M": M, "seed": seed, "step": torch.zeros_like(seed)}

    def redraw(self) -> None:
        self.seed.add_(1)

    def forward(self, x: Tensor, state: dict[str, Tensor], start: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        u = self.ln(x)
        p = dict(zip(self.parts, self.project_in(u).split(list(self.parts.values()), -1), strict=True))
        key, query = (sum_normalised(p[name]) for name in ("W_k", "W_q"))
        v = torch.sigmoid(p["w_eta"]) * p["W_v"]
        fresh = start.cumsum(1).bool()
        seed = torch.where(fresh, self.seed.to(state["seed"].dtype), state["seed"][:, None])
        step = ages(state["step"], start)
        reads, M = self.scan(u, p["W_c"], v, key, query, state["M"], start, seed, step)
        y = self.W_out(reads if self.b_s is None else reads + p["W_s"] + self.b_s)
        return y, {"M": M, "seed": seed[:, -1], "step": step[:, -1] + 1}

    def theta(self, u: Tensor, seed: Tensor, step: Tensor) -> Tensor:
        """theta_t [B, T, k], the row of Theta of each slot."""
        return F.embedding(self.rows(seed, step), self.Theta)

    def rows(self, seed: Tensor, step: Tensor) -> Tensor:
        """Which row of Theta each slot uses, int64 in the shape of `seed` and `step`."""
        return mixed_bits(seed.long(), step.long()) % len(self.Theta)

    def scan(self, u, c, v, key, query, M0, start, seed, step) -> tuple[Tensor, Tensor]:
        """M_t query_t [B, T, k] and the final M [B, k, k]."""
        return hadamard_scan(self.theta(u, seed, step), c, v, key, query, M0, start, self.limit, self.engine)
