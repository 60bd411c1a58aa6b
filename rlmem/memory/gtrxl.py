"""Gated Transformer-XL, and Transformer-XL."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.core.types import Layers, PositiveInt
from rlmem.memory.blocks import GRUGate, head_width
from rlmem.memory.window import Past, Window
from rlmem.scan import Linear, attention
from rlmem.scan.native import linear, of_weights

LayerKind = Literal["gtrxl", "trxl_i", "trxl"]
Context = Literal["window", "segment"]


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
