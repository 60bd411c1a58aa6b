"""Ages, which are slots since the episode's start, and encodings of them."""

import torch
from torch import Tensor


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
