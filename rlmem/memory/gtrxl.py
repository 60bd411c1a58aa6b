"""Gated Transformer-XL, and Transformer-XL."""

from collections.abc import Callable
from math import nan
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.errors import UserError
from rlmem.memory.blocks import GRUGate, gates_by_symbol
from rlmem.memory.window import SMALLEST_CHUNK, Past, Window
from rlmem.scan import Linear, attention, native
from rlmem.scan.native import derived, linear
from rlmem.types import Layers, PositiveInt

LayerKind = Literal["gtrxl", "trxl_i", "trxl"]
Context = Literal["window", "segment"]
PROBED = 100
"""Slots of the rows of `rlmem check`: a memory that holds them all shows no difference between calls of any length."""


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
        if head_size is None and hidden_size % num_heads:
            raise UserError(f"GTrXL: num_heads={num_heads} does not divide hidden_size={hidden_size}; e.g. num_heads=1")
        width = head_size or hidden_size // num_heads
        self.num_heads, self.context, self.unfilled, self.queries = num_heads, context, unfilled, queries
        kept = {"k": num_heads * width, "v": num_heads * width} if context == "window" else {"e": hidden_size}
        self.caches = {f"L{i}.{part}": (window - 1, size) for i in range(num_layers) for part, size in kept.items()}
        if context == "segment" and window > 1:
            self.breaks = {"tape_equals_segments": "context=segment: no gradient passes from a call to the one before"}
            if window < PROBED:
                self.breaks |= {"step_equals_forward": "context=segment: a slot of a longer call sees more slots"}
        self.W_emb = Linear(input_size, hidden_size)
        self.u, self.v = (nn.Parameter(torch.zeros(num_heads, width)) for _ in range(2))
        sizes = hidden_size, num_heads * width, mlp_size or hidden_size
        self.layers = nn.ModuleList(RelativeLayer(*sizes, layer) for _ in range(num_layers))

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        weights = super().symbols(of)
        for i, layer in enumerate(self.layers):
            weights = gates_by_symbol(layer, weights, f"L{i}.")
        return weights

    def read(self, x: Tensor, past: Past) -> Tensor:
        e = torch.relu(self.W_emb(x))
        for i, layer in enumerate(self.layers):
            e = layer(e, lambda e, of=layer, name=f"L{i}": self._attention(of, name, e, past))
        return e

    def _attention(self, layer: "RelativeLayer", name: str, e: Tensor, past: Past) -> Tensor:
        """What each slot of e [B, T, H] reads, [B, T, heads * head width]."""
        T, segment = e.shape[1], self.context == "segment"
        if segment:
            past.before[f"{name}.e"] = past.before[f"{name}.e"].detach()
            seen = past.stream(f"{name}.e", e)
            past.state[f"{name}.e"] = past.state[f"{name}.e"].detach()
            k, v = layer.keys_and_values(seen)
        else:
            k, v = (past.stream(f"{name}.{part}", z) for part, z in zip("kv", layer.keys_and_values(e), strict=True))
        q = layer.W_q(layer.before(e) if self.queries == "normed" else e)
        S = k.shape[1] - T
        if not segment and self.unfilled == "masked" and native.takes(q, k, v, past.age):
            # (q + u) . k by the kernel, and (q + v) . r, which depends on the distance alone, as what it adds
            to_distances = q.unflatten(-1, self.v.shape).transpose(1, 2) + self.v[:, None]  # [B, heads, T, head width]
            r = layer.distances(S).unflatten(-1, self.v.shape).transpose(0, 1)  # [heads, S + 1, head width]
            by_distance = self.v.shape[1] ** -0.5 * to_distances @ r.mT
            return attention.attend(q + self.u.flatten(), k, v, past.age, self.num_heads, by_distance)
        farthest = S + T - 1 if segment else S
        position = torch.arange(T, device=e.device, dtype=past.age.dtype)
        reach = S + torch.minimum(past.age, position) if segment else past.age.new_full(past.age.shape, S)
        empty = layer.keys_and_values(e.new_zeros(1, e.shape[-1])) if self.unfilled == "attended" else None
        C = T if segment or T <= 2 * SMALLEST_CHUNK else SMALLEST_CHUNK
        return self._read(q, k, v, layer.distances(farthest), past.age, reach, C, empty)

    def _read(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        r: Tensor,
        age: Tensor,
        reach: Tensor,
        C: int,
        empty: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Attention of q [B, T, -] to k and v [B, S + T, -], in chunks of C queries, each with C + S keys.

        r: what stands for each distance, from the farthest to 0
        age: slots of the episode before each slot, [B, T]
        reach: how far back each slot sees
        empty: key and value of a slot that the episode did not have; None: it is not seen
        """
        B, T, _ = q.shape
        S, L, padding = k.shape[1] - T, len(r), -T % C

        def chunks(z: Tensor, size: int) -> Tensor:  # [B, -, F] -> [B * n, size, F]
            return F.pad(z, (0, 0, 0, padding)).unfold(1, size, C).transpose(2, 3).flatten(0, 1)

        def split(z: Tensor) -> Tensor:  # [..., size, F] -> [..., heads, size, F / heads]
            return z.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

        lag = torch.arange(S, S + C, device=q.device)[:, None] - torch.arange(C + S, device=q.device)
        age, reach = chunks(age[..., None], C), chunks(reach[..., None], C)
        inside = ((lag >= 0) & (lag <= reach))[:, None]
        visible = inside & (lag <= age)[:, None]  # [B * n, 1, C, C + S]
        # as in `Past.attend`: zero, and NaN by selection where it is seen, what would pass a weight of zero
        lost = ~(k.isfinite() & v.isfinite()).all(-1, keepdim=True) if T > 1 else None
        if lost is not None:
            k, v = torch.where(lost, 0, k), torch.where(lost, 0, v)
        k, v = split(chunks(k, C + S)), split(chunks(v, C + S))
        q = split(chunks(q, C)) * self.u.shape[1] ** -0.5
        scale = self.u.shape[1] ** -0.5
        content = (q + scale * self.u[:, None]) @ k.mT
        if empty is not None:
            nothing = (q + scale * self.u[:, None]) @ split(empty[0]).mT
            content = torch.where(visible, content, nothing)
        # [i, lag] to [i, j] with j - i - (S - lag) constant: a row that is one longer shifts each by one more
        distance = F.pad((q + scale * self.v[:, None]) @ split(r).mT, (0, C + S + 1 - L)).flatten(-2)
        distance = distance[..., L - 1 - S :][..., : C * (C + S)].unflatten(-1, (C, C + S))
        unseen = ~(visible if empty is None else inside)
        weight = content.add_(distance).masked_fill_(unseen, -torch.inf).softmax(-1)  # in place: these are large
        if empty is None:
            y = weight @ v
        else:
            rest = weight.masked_fill(visible, 0).sum(-1, keepdim=True)
            y = weight.masked_fill(~visible, 0) @ v + rest * split(empty[1])
        if lost is not None:
            y = torch.where((visible & chunks(lost, C + S).transpose(1, 2)[:, None]).any(-1, keepdim=True), nan, y)
        return y.transpose(1, 2).reshape(B, -1, y.shape[1] * y.shape[3])[:, :T]


class RelativeLayer(nn.Module):
    """One layer of `GTrXL`: attention, then a perceptron, each joined to its input by a gate or a sum."""

    def __init__(self, width: int, heads_width: int, mlp_size: int, kind: LayerKind):
        super().__init__()
        self.kind = kind
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
        W, width = self.W_r.weight, self.W_r.in_features

        def made(W: Tensor) -> Tensor:
            n = torch.arange(farthest, -1, -1, dtype=torch.float64, device=W.device)
            angle = n[:, None] * 10000 ** -(torch.arange(0, width, 2, dtype=torch.float64, device=W.device) / width)
            position = torch.cat([angle.sin(), angle.cos()], -1)[:, :width].to(W.dtype)
            return linear(position, W)

        return derived(f"distances {farthest}", W, made) + self.W_r.bias

    def _joined(self, gate: str, e: Tensor, a: Tensor) -> Tensor:
        return getattr(self, gate)(e, a) if self.kind == "gtrxl" else e + a
