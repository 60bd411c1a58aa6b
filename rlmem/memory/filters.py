"""Memories that filter their input by constants: the Legendre Memory Unit and the low-pass recurrent network."""

from collections.abc import Callable
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.errors import UserError
from rlmem.core.types import PositiveFloat, PositiveInt, where_start
from rlmem.memory.base import Memory, RecurrentCell
from rlmem.scan import Engine, Linear, linear_scan
from rlmem.scan.cells import SimpleSequence

State = dict[str, Tensor]


class LMU(RecurrentCell):
    """Legendre Memory Unit (Voelker et al. 2019, NeurIPS 32, eq. 4, 6 and 7).

        u = e_x x + e_h h + e_m m                  [1]
        m' = A m + B u                             [m]
        h' = tanh(W_x x + W_h h + W_m m'),  y = h'

    A and B are constant: m holds the Legendre coefficients of the last theta values of u. No biases; e_m starts at
    zero. State: {h [B, H], m [B, memory_size]}. Over a sequence the linear maps are multiplied out beforehand: one
    product of [h, m] per slot, then tanh on h alone.

    hidden_size: H, width of h and of the output
    memory_size: m, number of Legendre polynomials
    theta: slots, length of the remembered window
    matrices: exact: computed in float64, then cast to the parameters' type; float32: rounded to float32 before, as
        published
    """

    A: Tensor
    B: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        memory_size: PositiveInt = 256,
        theta: PositiveFloat = 64,
        matrices: Literal["exact", "float32"] = "exact",
    ):
        super().__init__(input_size, hidden_size)
        self.state_shape = {"h": (hidden_size,), "m": (memory_size,)}
        self.e_x = nn.Parameter(_lecun_uniform(input_size))
        self.e_h = nn.Parameter(_lecun_uniform(hidden_size))
        self.e_m = nn.Parameter(torch.zeros(1, memory_size))
        empty = (torch.empty(hidden_size, width) for width in (input_size, hidden_size, memory_size))
        self.W_x, self.W_h, self.W_m = (nn.Parameter(nn.init.xavier_normal_(W)) for W in empty)
        exact = legendre_delay(memory_size, theta)
        self.constants = exact if matrices == "exact" else tuple(c.float().double() for c in exact)
        self._round_constants()

    def _round_constants(self) -> None:
        for name, constant in zip("AB", self.constants, strict=True):
            self.register_buffer(name, constant.to(self.e_x), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """After a change of type or device, cast the constants anew, so that `double()` has them in full precision."""
        moved = super()._apply(fn, recurse)
        self._round_constants()
        return moved

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, m = state["h"], state["m"]
        u = F.linear(x, self.e_x) + F.linear(h, self.e_h) + F.linear(m, self.e_m)
        m = F.linear(m, self.A) + F.linear(u, self.B)
        h = torch.tanh(F.linear(x, self.W_x) + F.linear(h, self.W_h) + F.linear(m, self.W_m))
        return h, {"h": h, "m": m}

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        m_of_x, m_of_h, m_of_m = self.B @ self.e_x, self.B @ self.e_h, self.A + self.B @ self.e_m
        of_x = torch.cat([self.W_x + self.W_m @ m_of_x, m_of_x])
        of_h = torch.cat([self.W_h + self.W_m @ m_of_h, m_of_h])
        of_m = torch.cat([self.W_m @ m_of_m, m_of_m])
        H, sizes = self.output_size, packed.batch_sizes.tolist()
        before = torch.cat([state["h"], state["m"]], 1)
        of_hm = torch.cat([of_h, of_m], 1)
        hm = SimpleSequence.apply(F.linear(packed.data, of_x), before, of_hm, sizes, "tanh", H)
        final = hm[last]
        return hm[:, :H], {"h": final[:, :H], "m": final[:, H:]}


def legendre_delay(order: int, theta: float) -> tuple[Tensor, Tensor]:
    """A [order, order] and B [order, 1], float64, of one slot of the Legendre delay system with window `theta`.

    The zero-order hold of theta dm/dt = A m + B u with A_ij = (2i + 1) (-1 if i < j else (-1)^(i-j+1)) and
    B_i = (2i + 1) (-1)^i.
    """
    i = torch.arange(order, dtype=torch.float64)[:, None]
    alternating = 1 - 2 * (i % 2)
    above = i < i.T
    system = torch.zeros(order + 1, order + 1, dtype=torch.float64)
    system[:-1, :-1] = torch.where(above, -1.0, -alternating * alternating.T)
    system[:-1, -1:] = alternating
    held = torch.linalg.matrix_exp(system * torch.cat([2 * i + 1, i[:1]]) / theta)
    return held[:-1, :-1], held[:-1, -1:]


def _lecun_uniform(fan_in: int) -> Tensor:
    bound = sqrt(3 / fan_in)
    return torch.empty(1, fan_in).uniform_(-bound, bound)


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
