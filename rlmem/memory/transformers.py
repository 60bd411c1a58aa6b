"""Self-attention over the last slots of an episode: GPT, Gated Transformer-XL and Transformer-XL."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import Layers, PositiveFloat, PositiveInt
from rlmem.memory.blocks import GRUGate, head_width
from rlmem.memory.positions import rotate, rotation, sinusoid
from rlmem.memory.window import Past, Window
from rlmem.scan import Linear, attention
from rlmem.scan.native import linear, of_weights

Positions = Literal["sinusoidal", "learned", "rotary", "none"]
LayerKind = Literal["gtrxl", "trxl_i", "trxl"]
Context = Literal["window", "segment"]


class GPT(Window):
    """GPT-2's pre-norm transformer (Radford et al. 2019) as a memory; by default one block, as Lu et al. 2024
    (arXiv:2405.17358) use for T-Maze, where their width is 128 and their window the whole episode.

        z = W_in x + p_age                                    (no W_in if D = H)
        z = z + W_o attention(W_qkv LN_1 z)                   per layer; Vaswani et al. 2017, arXiv:1706.03762, eq. 1
        z = z + W_2 GELU(W_1 LN_2 z)                          per layer, 4 H wide, tanh form of GELU
        y = LN_f z

    A layer attends to the last `window` slots of the episode, so L layers reach L (window - 1) slots back; forward
    over many slots uses the same masks. Positions are slots since the episode's start (published: since the start of
    the sampled segment). No dropout (published: 0.1), since training must re-read what acting used. Weights are
    N(0, 0.02), biases zero; W_in keeps torch's initialisation.
    State: age [B]; keys and values L0.k, L0.v, ... [B, window - 1, H]. Cost: O(T window H) per layer.

    hidden_size: H, width of every layer
    num_layers: L
    num_heads: heads of attention; must divide H
    window: slots that one layer attends to, the present one included
    positions: sinusoidal and learned are added to the input, rotary rotates queries and keys, none has no order
    base: sets the longest wavelength of sinusoidal and rotary positions (POPGym: 1024, the longest episode)
    max_length: rows of the table of learned positions; later slots share the last row
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_layers: Layers = 1,
        num_heads: PositiveInt = 1,
        window: PositiveInt = 128,
        positions: Positions = "sinusoidal",
        base: PositiveFloat = 10000.0,
        max_length: PositiveInt = 1024,
    ):
        super().__init__(input_size, hidden_size)
        head_width(hidden_size, num_heads)
        self.positions, self.base, self.num_heads = positions, base, num_heads
        self.caches = {f"L{i}.{part}": (window - 1, hidden_size) for i in range(num_layers) for part in "kv"}
        self.layers = nn.ModuleList(AttentionBlock(hidden_size, num_heads) for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(hidden_size)
        if input_size != hidden_size:
            self.W_in = Linear(input_size, hidden_size)
        if positions == "learned":
            self.W_p = nn.Embedding(max_length, hidden_size)
            nn.init.normal_(self.W_p.weight, std=0.02)

    def read(self, x: Tensor, past: Past) -> Tensor:
        z = self.W_in(x) if self.input_size != self.output_size else x
        if self.positions == "sinusoidal":
            z = z + sinusoid(past.age, self.output_size, self.base).to(z.dtype)
        elif self.positions == "learned":
            last = self.W_p.num_embeddings - 1
            z = z + self.W_p(past.age.nan_to_num(last).clamp(0, last).long())  # NaN: the last row
        head_width = self.output_size // self.num_heads
        rotated = self.positions == "rotary"
        turn = tuple(w.to(z.dtype) for w in rotation(past.age, head_width, self.base)) if rotated else None
        for i, layer in enumerate(self.layers):
            z = layer(z, past, f"L{i}", turn)
        return self.ln_f(z)


class AttentionBlock(nn.Module):
    """One pre-norm layer: attention, then a perceptron, each added to its input. W_qkv stacks W_q, W_k and W_v."""

    def __init__(self, width: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.W_qkv, self.W_o = Linear(width, 3 * width), Linear(width, width)
        self.W_1, self.W_2 = Linear(width, 4 * width), Linear(4 * width, width)
        for layer in (self.W_qkv, self.W_o, self.W_1, self.W_2):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, z: Tensor, past: Past, name: str, turn: tuple[Tensor, Tensor] | None) -> Tensor:
        q, k, v = self.W_qkv(self.ln_1(z)).chunk(3, -1)
        if turn is not None:
            q, k = (rotate(part.unflatten(-1, (self.num_heads, -1)), *turn).flatten(-2) for part in (q, k))
        z = z + self.W_o(past.attend(name, q, k, v, self.num_heads))
        return z + self.W_2(F.gelu(self.W_1(self.ln_2(z)), approximate="tanh"))


class GTrXL(Window):
    """Gated Transformer-XL (Parisotto et al. 2019, arXiv:1910.06764), on the relative attention of Transformer-XL (Dai
    et al. 2019, arXiv:1901.02860, section 3.3).

        e = relu(W_emb x),   then for each layer, with F = LN_1 e of this and of the slots before:
        q = W_q F,   k = W_k F,   v = W_v F,   r_n = W_r [sin(n f), cos(n f)],   f_a = 10000^(-2 a / H)
        weight of the slot n back ~ exp(((q + u) . k + (q + v) . r_n) / sqrt(head width)),   u and v of all layers
        e = gate_1(e, relu(W_o attention)),   e = gate_2(e, relu(W_m2 relu(W_m1 LN_2 e)))

    The gates are those of `rlmem.memory.blocks.GRUGate`; as published, they begin near the identity. With
    `context="window"`, a layer attends to the last `window` slots of the episode, and gradients flow to them as far as
    the row reaches. As published, `context="segment"`, a memory of window - 1 slots is carried from call to call
    without gradient, and a slot sees it and all slots of its call up to itself: so what it sees depends on the cuts,
    and acting sees less than training.
    State: age [B], and for each layer keys and values L0.k, L0.v, ... [B, window - 1, heads * head_size], or the inputs
    L0.e, ... [B, window - 1, H] of segments. Cost: O(T (window + H) H) per layer.

    hidden_size: H, width of every layer
    num_layers: layers
    num_heads: heads of attention
    head_size: width of a head; None: H / num_heads
    window: slots that one layer attends to, the present one included
    layer: "gtrxl", as above; "trxl_i", a sum in place of each gate; "trxl", the canonical layer, whose norms stand
        after the sums, without the activations of its outputs
    mlp_size: width of W_m1; None: H, as in the released code that this is held to
    context: what a slot sees, and how far gradients flow, as above. "segment" takes memory O(T^2) a head; where
        rows are longer than a step, acting sees less than training does, which PPO's replay check reports
    unfilled: slots before the episode's beginning are "masked"; or "attended", as zeros, as in released code
    queries: from "normed" e, as above; or from "plain" e, as in released code
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_layers: Layers = 1,
        num_heads: PositiveInt = 1,
        head_size: PositiveInt | None = None,
        window: PositiveInt = 128,
        layer: LayerKind = "gtrxl",
        mlp_size: PositiveInt | None = None,
        context: Context = "window",
        unfilled: Literal["masked", "attended"] = "masked",
        queries: Literal["normed", "plain"] = "normed",
    ):
        super().__init__(input_size, hidden_size)
        width = head_size or head_width(hidden_size, num_heads)
        self.num_heads, self.context, self.unfilled, self.queries = num_heads, context, unfilled, queries
        if context != "window" or unfilled != "masked" or queries != "normed":
            from rlmem.memory.published.gtrxl import PublishedGTrXL  # which derives from this class

            self.become(PublishedGTrXL)
        self.keep(num_layers, num_heads * width, window)
        self.W_emb = Linear(input_size, hidden_size)
        self.u, self.v = (nn.Parameter(torch.zeros(num_heads, width)) for _ in range(2))
        sizes = hidden_size, num_heads * width, mlp_size or hidden_size, window
        self.layers = nn.ModuleList(RelativeLayer(*sizes, layer) for _ in range(num_layers))

    def keep(self, num_layers: int, width: int, window: int) -> None:
        """Set the caches: keys and values of all layers."""
        self.caches = {f"L{i}.{part}": (window - 1, width) for i in range(num_layers) for part in "kv"}

    def read(self, x: Tensor, past: Past) -> Tensor:
        e = torch.relu(self.W_emb(x))
        for i, layer in enumerate(self.layers):
            e = layer(e, lambda e, of=layer, name=f"L{i}": self.attention(of, name, e, past))
        return e

    def attention(self, layer: "RelativeLayer", name: str, e: Tensor, past: Past) -> Tensor:
        """What each slot of e [B, T, H] reads, [B, T, heads * head width]."""
        k, v = (past.stream(f"{name}.{part}", z) for part, z in zip("kv", layer.keys_and_values(e), strict=True))
        q, r = self.query(layer, e), self.by_head(layer.distances(k.shape[1] - e.shape[1]))
        # (q + u) . k, and (q + v) . r, which depends on the distance alone
        to_distances = self.v.shape[1] ** -0.5 * (self.by_head(q) + self.v[:, None]) @ r.mT
        return attention.attend(q + self.u.flatten(), k, v, past.age, self.num_heads, to_distances)

    def query(self, layer: "RelativeLayer", e: Tensor) -> Tensor:
        """q of each slot of e."""
        return layer.W_q(layer.before(e))

    def by_head(self, z: Tensor) -> Tensor:
        """[..., T, heads * head width] as [..., heads, T, head width]."""
        return z.unflatten(-1, self.v.shape).transpose(-3, -2)


class RelativeLayer(nn.Module):
    """One layer of `GTrXL`: attention, then a perceptron, each joined to its input by a gate or a sum."""

    def __init__(self, width: int, heads_width: int, mlp_size: int, window: int, kind: LayerKind):
        super().__init__()
        self.kind, self.window = kind, window
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.W_q, self.W_k, self.W_v, self.W_r = (Linear(width, heads_width) for _ in range(4))
        self.W_o, self.W_m1, self.W_m2 = Linear(heads_width, width), Linear(width, mlp_size), Linear(mlp_size, width)
        if kind == "gtrxl":
            self.g1, self.g2 = GRUGate(width), GRUGate(width)

    def forward(self, e: Tensor, attention: Callable[[Tensor], Tensor]) -> Tensor:
        read = self.W_o(attention(e))
        if self.kind == "trxl":
            e = self.ln1(e + read)
            return self.ln2(e + self.W_m2(torch.relu(self.W_m1(e))))
        e = self._joined("g1", e, torch.relu(read))
        return self._joined("g2", e, torch.relu(self.W_m2(torch.relu(self.W_m1(self.ln2(e))))))

    def before(self, e: Tensor) -> Tensor:
        """What queries, keys and values are made of."""
        return e if self.kind == "trxl" else self.ln1(e)

    def keys_and_values(self, e: Tensor) -> tuple[Tensor, Tensor]:
        e = self.before(e)
        return self.W_k(e), self.W_v(e)

    def distances(self, farthest: int) -> Tensor:
        """What stands for each distance, from the farthest to 0: [farthest + 1, heads * head width]."""
        return (self.in_window() if farthest == self.window - 1 else self.from_farthest(farthest)) + self.W_r.bias

    @of_weights
    def in_window(self) -> Tensor:
        """`from_farthest` of the slots of a window, the only distances where slots see no others."""
        return self.from_farthest(self.window - 1)

    def from_farthest(self, farthest: int) -> Tensor:
        """W_r [sin(n f), cos(n f)], without the bias, of the distances n from the farthest to 0."""
        W, width = self.W_r.weight, self.W_r.in_features
        n = torch.arange(farthest, -1, -1, dtype=torch.float64, device=W.device)
        angle = n[:, None] * 10000 ** -(torch.arange(0, width, 2, dtype=torch.float64, device=W.device) / width)
        return linear(torch.cat([angle.sin(), angle.cos()], -1)[:, :width].to(W.dtype), W)

    def _joined(self, gate: str, e: Tensor, a: Tensor) -> Tensor:
        return getattr(self, gate)(e, a) if self.kind == "gtrxl" else e + a
