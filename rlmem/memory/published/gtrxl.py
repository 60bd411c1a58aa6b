"""The attention of GTrXL as released code has it: to the segment of a call, and to slots before the episode."""

from math import inf, nan

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.memory.gtrxl import GTrXL, RelativeLayer
from rlmem.memory.window import Past

PROBED = 100
"""Slots of the rows of `rlmem check`: a memory that holds them all shows no difference between calls of any length."""


class PublishedGTrXL(GTrXL):
    """A `GTrXL` that attends as released code does."""

    def keep(self, num_layers: int, width: int, window: int) -> None:
        if self.context == "window":
            return super().keep(num_layers, width, window)
        self.caches = {f"L{i}.e": (window - 1, self.output_size) for i in range(num_layers)}
        breaks = {"tape_equals_segments": "context=segment: no gradient passes from a call to the one before"}
        if window < PROBED:
            breaks["step_equals_forward"] = "context=segment: a slot of a longer call sees more slots"
        self.breaks = breaks if window > 1 else {}

    def attention(self, layer: RelativeLayer, name: str, e: Tensor, past: Past) -> Tensor:
        segment, stored = self.context == "segment", f"{name}.e"
        if not segment and self.unfilled == "masked":
            return super().attention(layer, name, e, past)
        if segment:
            past.before[stored] = past.before[stored].detach()
            k, v = layer.keys_and_values(past.stream(stored, e))
            past.state[stored] = past.state[stored].detach()
        else:
            k, v = (past.stream(f"{name}.{part}", z) for part, z in zip("kv", layer.keys_and_values(e), strict=True))
        by_head, scale = self.by_head(self.query(layer, e)), self.v.shape[1] ** -0.5
        queries = scale * (by_head + self.u[:, None]), scale * (by_head + self.v[:, None])
        r = self.by_head(layer.distances(k.shape[1] - 1))
        empty = layer.keys_and_values(e.new_zeros(1, e.shape[-1])) if self.unfilled == "attended" else None
        return attend(queries, k, v, r, past.age, segment, empty)

    def query(self, layer: RelativeLayer, e: Tensor) -> Tensor:
        return layer.W_q(layer.before(e) if self.queries == "normed" else e)


def attend(
    q: tuple[Tensor, Tensor],
    k: Tensor,
    v: Tensor,
    r: Tensor,
    age: Tensor,
    segment: bool,
    empty: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """What each slot reads [B, T, H], in memory O(T (S + T)) a head.

    q: of the content and of the distance, [B, heads, T, width] each, scaled
    k, v: [B, S + T, H], whose first S slots lie before the row
    r: [heads, S + T, width], what stands for each distance, from the farthest to 0
    age: [B, T], slots of the episode before each slot
    segment: True if a slot sees all slots of its row before it, and S before the row; otherwise it sees S before it
    empty: key and value of a slot that the episode did not have, [1, H] each; None: it is not seen
    """
    (_, heads, T, _), S = q[0].shape, k.shape[1] - q[0].shape[2]
    split = lambda z: z.unflatten(-1, (heads, -1)).transpose(-3, -2)  # noqa: E731
    position = torch.arange(T, device=k.device)[:, None]
    lag = S + position - torch.arange(S + T, device=k.device)
    reach = torch.minimum(age[..., None], position.to(age.dtype)) + S if segment else S
    inside = ((lag >= 0) & (lag <= reach)).expand(len(k), -1, -1)[:, None]
    visible = inside & (lag <= age[..., None])[:, None]
    # An inf or NaN would pass a weight of zero: it is zeroed, and what sees it becomes NaN by selection.
    lost = ~(k.isfinite() & v.isfinite()).all(-1, keepdim=True)
    k, v = split(torch.where(lost, 0, k)), split(torch.where(lost, 0, v))
    content = q[0] @ k.mT
    if empty is not None:
        content = torch.where(visible, content, q[0] @ split(empty[0]).mT)
    # [i, distance] to [i, j]: a row that is one longer shifts each by one more
    distance = F.pad(q[1] @ r.mT, (0, 1)).flatten(-2)[..., T - 1 :]
    distance = distance[..., : T * (S + T)].unflatten(-1, (T, S + T))
    weight = (content + distance).masked_fill(~(visible if empty is None else inside), -inf).softmax(-1)
    y = weight.masked_fill(~visible, 0) @ v
    if empty is not None:
        y = y + weight.masked_fill(visible, 0).sum(-1, keepdim=True) * split(empty[1])
    y = torch.where((visible & lost.transpose(1, 2)[:, None]).any(-1, keepdim=True), nan, y)
    return y.transpose(1, 2).flatten(2)
