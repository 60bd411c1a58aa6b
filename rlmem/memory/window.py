"""The base of memories over the last slots of an episode: caches, resets and masks, written once.

Also ages, which are slots since the episode's start, and encodings of them.
"""

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlmem.memory.base import Memory
from rlmem.scan import attention


class Window(Memory):
    """Base of memories that see the last slots of the present episode, by convolution or by attention.

    The author sets `caches` (what each layer keeps from slot to slot) and writes `read` with `past.frames` and
    `past.attend`; caching, resets and masks are done here. Weights of `self.layers`, if there are layers, have the
    symbols L0.*, L1.*, ... State: age [B], slots read since the episode's start, and every cache [B, slots, width],
    oldest first, zeros where the episode had not begun.
    """

    caches: dict[str, tuple[int, int]]
    """Name -> slots, width."""
    layers: nn.ModuleList

    @abstractmethod
    def read(self, x: Tensor, past: "Past") -> Tensor:
        """y [B, T, H] from x [B, T, D] and from the slots that each slot may see."""

    def initial_state(self, batch_size: int) -> dict[str, Tensor]:
        like = self._like_parameters()
        caches = {name: like.new_zeros(batch_size, *shape) for name, shape in self.caches.items()}
        return {"age": like.new_zeros(batch_size, dtype=counting(like.dtype))} | caches

    def forward(self, x: Tensor, state: dict[str, Tensor], start: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        past = Past(state, start)
        return self.read(x, past), past.state


class Past:
    """What every slot of one call may see: slots of its own episode, cached or present.

    age [B, T]: slots since the episode's start; what lies `lag` slots back is visible if lag <= age
    state: the state after the last slot, complete once every cache has been used
    """

    def __init__(self, state: Mapping[str, Tensor], start: Tensor):
        fresh = start[:, :1, None]
        self.before = {name: torch.where(fresh, 0, cache) for name, cache in state.items() if name != "age"}
        self.age = ages(state["age"], start)
        self.state = {**state, "age": self.age[:, -1] + 1}

    def frames(self, name: str, x: Tensor, taps: int, dilation: int = 1) -> Tensor:
        """The slots that lie (taps - 1) * dilation, ..., dilation and 0 back: [B, T, taps, D], zero where invisible."""
        T = x.shape[1]
        stream = self.stream(name, x)
        lags = [(taps - 1 - j) * dilation for j in range(taps)]
        before = [stream[:, lags[0] - lag : lags[0] - lag + T] for lag in lags]
        visible = [(self.age >= lag)[..., None] for lag in lags]
        return torch.stack([torch.where(seen, z, 0) for seen, z in zip(visible, before, strict=True)], 2)

    def attend(self, name: str, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        """Softmax attention of each slot to itself and to the visible slots of the cache's length before it.

        q, k, v and the result are [B, T, H]; keys and values are cached as `name`.k and `name`.v.
        """
        k, v = self.stream(f"{name}.k", k), self.stream(f"{name}.v", v)
        return attention.attend(q, k, v, self.age, heads)

    def stream(self, name: str, x: Tensor) -> Tensor:
        """The cached slots and the present ones, [B, S + T, D]; the last S of them are kept."""
        T, S = x.shape[1], self.before[name].shape[1]
        stream = torch.cat([self.before[name], x], 1)
        cache = stream[:, T:]
        if T > 1:
            lag = torch.arange(S, 0, -1, device=x.device)  # seen from the next slot
            cache = torch.where((lag <= self.state["age"][:, None])[..., None], cache, 0)
        self.state[name] = cache
        return stream


def counting(dtype: torch.dtype) -> torch.dtype:
    """The type in which a memory of `dtype` counts slots: bfloat16 is exact up to 256 only."""
    return torch.promote_types(dtype, torch.float32)


def ages(age: Tensor, start: Tensor) -> Tensor:
    """Slots [B, T] since the episode's start, given how many slots of a running episode were read before, age [B].

    Floating, in the type of `age`: exact up to 2^24 in float32. A start selects: an inf in `age` does not survive it.
    """
    if start.shape[1] == 1:
        return torch.where(start, 0, age[:, None])
    t = torch.arange(start.shape[1], dtype=age.dtype, device=age.device)
    begun = torch.where(start, t, -1).cummax(1).values
    return torch.where(begun < 0, age[:, None] + t, t - begun)


def sinusoid(age: Tensor, width: int, base: float) -> Tensor:
    """Sine encoding [..., width] of ages: sin in even and cos in odd features, wavelengths 2 pi to 2 pi base.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.5. Computed, not looked up, so episodes may have any length.
    """
    angle = _angles(age, width, base)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :width].to(age.dtype)


def rotation(age: Tensor, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine [B, T, width // 2] of the angles age * base^(-2i/width) by which pairs of features are rotated.

    Su et al. 2021, arXiv:2104.09864.
    """
    angle = _angles(age, width - width % 2, base)
    return angle.cos().to(age.dtype), angle.sin().to(age.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, T, heads, width] with its feature pairs (2i, 2i+1) rotated; the last feature of an odd width stays.

    The dot product of two rotated vectors depends on their ages only by the difference.
    """
    cos, sin = cos[:, :, None], sin[:, :, None]
    end = 2 * cos.shape[-1]
    even, odd = x[..., 0:end:2], x[..., 1:end:2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
    return torch.cat([turned, x[..., end:]], -1)


def _angles(age: Tensor, width: int, base: float) -> Tensor:
    """age * base^(-2i/width), in float64: in float32 the fastest angles of late slots would lose their digits."""
    exponent = torch.arange(0, width, 2, dtype=torch.float64, device=age.device) / max(width, 1)
    return age.double()[..., None] * base**-exponent


def mixed_bits(a: Tensor, b: Tensor) -> Tensor:
    """48 well-mixed bits from two integers (a splitmix64 finaliser; int64 products wrap)."""
    x = a * -7046029254386353131 + (b + 1) * -4658895280553007687
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return (x ^ ((x >> 31) & 0x1FFFFFFFF)) & 0xFFFFFFFFFFFF
