"""Approximate gated linear transformer."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.core.types import Layers, PositiveInt
from rlmem.memory.base import Memory
from rlmem.memory.blocks import GRUGate
from rlmem.memory.positions import ages, counting
from rlmem.scan import Engine, Linear, linear_scan

State = dict[str, Tensor]
EPS = 1e-5
"""Added to the denominator of what is read."""


class AGaLiTe(Memory):
    """Approximate gated linear transformer (Pramanik et al. 2023, arXiv:2310.15719): linear attention whose outer
    products are kept as r sums of each side, which oscillate, in the gated layers of GTrXL.

        key = relu(W_k u) x relu(W_p1 u),   query = relu(W_q u) x relu(W_p2 u)
        gamma = sigmoid(W_gamma u) x sigmoid(W_p3 u),   beta = sigmoid(W_beta u)
        k_j = (1 - gamma) * k_j + cos(n w_j) gamma * key,   v_j = (1 - beta) * v_j + cos(n w_j) beta * (W_v u)
        s = (1 - gamma) * s + gamma * key,   read = sum_j v_j (k_j . query) / (2 r (s . query) + 1e-5)
        e = gate_1(e, relu(W_o read)),   e = gate_2(e, relu(W_m2 relu(W_m1 LN_2 e)))

    with u = LN_1 e of each layer, e = relu(W_emb x) of the first, w_j from -pi to pi, and n the slot's number in its
    episode, which begins with 2. x is the outer product of a head. The gates are those of
    `rlmem.memory.blocks.GRUGate`. State: tick [B], the number of the last slot, and for each layer L0.k, ...
    [B, r + 1, heads, eta head_size], whose last part is s, and L0.v, ... [B, r, heads, head_size].

    hidden_size: H, width of every layer
    num_layers: layers
    num_heads: heads
    head_size: width of values, and of keys before the outer product
    eta: width of the other factor of keys
    rank: r
    mlp_size: width of W_m1; None: H
    tick: "episode", n begins anew with every episode; or "stream", it goes on, as in the released code, up to 2^24
        slots in float32
    """

    engine: Engine = "auto"

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_layers: Layers = 1,
        num_heads: PositiveInt = 4,
        head_size: PositiveInt = 32,
        eta: PositiveInt = 4,
        rank: PositiveInt = 2,
        mlp_size: PositiveInt | None = None,
        tick: Literal["episode", "stream"] = "episode",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.tick, self.rank = tick, rank
        if tick == "stream":
            why = "tick=stream: the number of a slot is counted on over starts"
            self.breaks = dict.fromkeys(("starts_separate_episodes", "start_clears_nonfinite"), why)
        self.shapes = {"k": (rank + 1, num_heads, eta * head_size), "v": (rank, num_heads, head_size)}
        self.W_emb = Linear(input_size, hidden_size)
        sizes = hidden_size, num_heads, head_size, eta, mlp_size or hidden_size
        self.layers = nn.ModuleList(AGaLiTeLayer(*sizes) for _ in range(num_layers))
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.orthogonal_(weight, math.sqrt(2))
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def initial_state(self, batch_size: int) -> State:
        like = self._like_parameters()
        names = ((f"L{i}.{name}", shape) for i in range(len(self.layers)) for name, shape in self.shapes.items())
        states = {name: like.new_zeros(batch_size, *shape) for name, shape in names}
        return {"tick": like.new_ones(batch_size, dtype=counting(like.dtype))} | states

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        begins = start if self.tick == "episode" else torch.zeros_like(start)
        n = ages(state["tick"].detach() - 1, begins) + 2
        frequency = torch.linspace(-math.pi, math.pi, self.rank, dtype=torch.float64, device=x.device)
        wave = torch.cos(n.double()[..., None] * frequency).to(x.dtype)[..., None, None]  # [B, T, r, 1, 1]
        e, after = torch.relu(self.W_emb(x)), {"tick": n[:, -1]}
        for i, layer in enumerate(self.layers):
            before = state[f"L{i}.k"], state[f"L{i}.v"]
            e, after[f"L{i}.k"], after[f"L{i}.v"] = layer(e, wave, *before, start, self.engine)
        return e, after


class AGaLiTeLayer(nn.Module):
    """One layer of `AGaLiTe`."""

    def __init__(self, width: int, heads: int, head_size: int, eta: int, mlp_size: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.W_k, self.W_q, self.W_v, self.W_beta, self.W_gamma = (Linear(width, heads * head_size) for _ in range(5))
        self.W_p1, self.W_p2, self.W_p3 = (Linear(width, heads * eta) for _ in range(3))
        self.W_o, self.W_m1, self.W_m2 = (
            Linear(heads * head_size, width),
            Linear(width, mlp_size),
            Linear(mlp_size, width),
        )
        self.g1, self.g2 = GRUGate(width), GRUGate(width)

    def forward(
        self, e: Tensor, wave: Tensor, k0: Tensor, v0: Tensor, start: Tensor, engine: Engine
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's output and its states, from its input and states; wave [B, T, r, 1, 1] has the oscillations."""
        u = self.ln1(e)
        key, query = (
            self._outer(torch.relu(W(u)), torch.relu(P(u))) for W, P in ((self.W_k, self.W_p1), (self.W_q, self.W_p2))
        )
        gamma, beta = (
            self._outer(torch.sigmoid(self.W_gamma(u)), torch.sigmoid(self.W_p3(u))),
            torch.sigmoid(self.W_beta(u)),
        )
        beta, value = (z.unflatten(-1, (self.heads, -1)) for z in (beta, self.W_v(u)))
        waves = torch.cat([wave, torch.ones_like(wave[:, :, :1])], 2)
        k = linear_scan(1 - gamma[:, :, None], waves * (gamma * key)[:, :, None], k0, start, engine)
        v = linear_scan(1 - beta[:, :, None], wave * (beta * value)[:, :, None], v0, start, engine)
        product = (k * query[:, :, None]).sum(-1, keepdim=True)  # [B, T, r + 1, heads, 1]
        read = (v * product[:, :, :-1]).sum(2) / (2 * v.shape[2] * product[:, :, -1] + EPS)
        e = self.g1(e, torch.relu(self.W_o(read.flatten(-2))))
        y = self.g2(e, torch.relu(self.W_m2(torch.relu(self.W_m1(self.ln2(e))))))
        return y, k[:, -1].clone(), v[:, -1].clone()  # not views, which would keep the states of all slots

    def _outer(self, a: Tensor, b: Tensor) -> Tensor:
        """The outer product of each head, [B, T, heads, eta * size] of [B, T, heads * size] and [B, T, heads * eta]."""
        a, b = (z.unflatten(-1, (self.heads, -1)) for z in (a, b))
        return (b[..., :, None] * a[..., None, :]).flatten(-2)
