"""Low-pass recurrent network."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.core.types import PositiveFloat, PositiveInt, where_start
from rlmem.memory.base import Memory
from rlmem.scan import Engine, Linear, linear_scan


class LPRNN(Memory):
    """Low-pass RNN, "RNN with concrete" (Stepleton et al. 2018, arXiv:1805.04955, sec. 2 and appendix D).

        p_n = alpha_n source_n + (1 - alpha_n) p_n(t-1),   alpha_n = base^-n,   n = 1..K     [D]
        chain:     source_1 = I' x,  source_n = p_{n-1} of the same slot
        parallel:  source_1 = I' x,  source_n = x
        y = W_out relu(W_sum [relu(W_view[n] p_n + b_view[n]) for n] + b_sum) + b_out

    The pools have no weights: they are linear scans of constant decay, parallel over time. I' starts as the
    (padded) identity. The K viewports feed one summariser. State: p [B, K, D].

    hidden_size: H, width of the output
    num_pools: K
    pool_size: D; None is the width of the input, which `parallel` needs
    viewport_size: width of each viewport
    summariser_size: width of the summariser
    base: > 1; pool n keeps 1 - base^-n of its content per slot
    filters: chain, or parallel, the paper's control
    block_gradients: no gradient from a pool into the source of the next (n >= 2), as published; each pool's own past
        keeps its gradient
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_pools: PositiveInt = 8,
        pool_size: PositiveInt | None = 198,
        viewport_size: PositiveInt = 48,
        summariser_size: PositiveInt = 256,
        base: PositiveFloat = 2.0,
        filters: Literal["chain", "parallel"] = "chain",
        block_gradients: bool = True,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        D = input_size if pool_size is None else pool_size
        if filters == "parallel" and input_size != D:
            raise UserError(f"pool_size={D}: parallel filters read the input itself, of width {input_size}; give null")
        if base <= 1:
            raise UserError(f"base={base}: must be above 1, since pool n forgets with base^-n; e.g. base=2")
        self.base, self.filters, self.block_gradients = base, filters, block_gradients
        K, V = num_pools, viewport_size
        self.state_shape = (K, D)
        self.I_prime = nn.Parameter(torch.eye(D, input_size))
        self.W_view = nn.Parameter(torch.empty(K, V, D).uniform_(-(D**-0.5), D**-0.5))
        self.b_view = nn.Parameter(torch.empty(K, V).uniform_(-(D**-0.5), D**-0.5))
        self.W_sum = Linear(K * V, summariser_size)
        self.W_out = Linear(summariser_size, hidden_size)

    @property
    def alpha(self) -> Tensor:
        """[K], computed in the type of the parameters."""
        n = torch.arange(1, len(self.W_view) + 1, dtype=self.I_prime.dtype, device=self.I_prime.device)
        return self.base**-n

    def pools(self, x: Tensor, state: Tensor, start: Tensor) -> Tensor:
        """p [B, T, K, D] of all slots of x [B, T, input_size]."""
        first, alpha = F.linear(x, self.I_prime), self.alpha
        if self.filters == "parallel":
            others = self._blocked(x)[:, :, None].expand(-1, -1, len(alpha) - 1, -1)
            driver = alpha[:, None] * torch.cat([first[:, :, None], others], 2)
            return linear_scan(1 - alpha[:, None], driver, state, start, self.engine)
        pools = [linear_scan(1 - alpha[0], alpha[0] * first, state[:, 0], start, self.engine)]
        for alpha_n, before in zip(alpha[1:], state.unbind(1)[1:], strict=True):
            driver = alpha_n * self._blocked(pools[-1])
            pools.append(linear_scan(1 - alpha_n, driver, before, start, self.engine))
        return torch.stack(pools, 2)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        p = self.pools(x, state, start)
        return self._read(p), p[:, -1]

    def step(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        before = where_start(start, torch.zeros_like(state), state)
        source, pools = F.linear(x, self.I_prime), []
        for n, p in enumerate(before.unbind(1), 1):
            pools.append(torch.lerp(p, source, self.base**-n))
            source = self._blocked(pools[-1] if self.filters == "chain" else x)
        p = torch.stack(pools, 1)
        return self._read(p), p

    def _read(self, p: Tensor) -> Tensor:
        views = torch.relu(torch.einsum("...kd,kvd->...kv", p, self.W_view) + self.b_view)
        return self.W_out(torch.relu(self.W_sum(views.flatten(-2))))

    def _blocked(self, source: Tensor) -> Tensor:
        return source.detach() if self.block_gradients else source
