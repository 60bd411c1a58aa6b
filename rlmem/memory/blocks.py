"""What models share: products with complex weights, first step sizes, a normalisation, and residual blocks."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import log
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.memory.recurrence import LinearRecurrence
from rlmem.scan import Engine
from rlmem.scan.native import Linear, linear


def complex_from_real(u: Tensor, rows: Tensor, bias: Tensor | None = None) -> Tensor:
    """W u + bias, complex [..., N], of real u [..., D], as one real product; bias [N, 2] holds (re, im).

    rows: `interleaved` W
    """
    product = linear(u, rows, None if bias is None else bias.flatten())
    return torch.view_as_complex(product.unflatten(-1, (len(rows) // 2, 2)))


def interleaved(W: Tensor) -> Tensor:
    """W [N, D, 2], which holds (re, im), as rows re_1, im_1, re_2, ... [2 N, D]."""
    return W.transpose(1, 2).flatten(0, 1)


def real_from_complex(h: Tensor, rows: Tensor) -> Tensor:
    """Re(W h), real [..., D], of complex h [..., N], as one real product.

    rows: `conjugated` W
    """
    return linear(torch.view_as_real(h).flatten(-2), rows)


def conjugated(W: Tensor) -> Tensor:
    """W [D, N, 2], which holds (re, im), as rows re_1, -im_1, re_2, ... [D, 2 N]."""
    return conjugate(W).flatten(1)


def conjugate(W: Tensor) -> Tensor:
    """(re, -im) of the last dimension."""
    return torch.view_as_real(torch.view_as_complex(W).conj_physical())


def head_width(hidden_size: int, num_heads: int) -> int:
    """The width of each head. Raises UserError if they do not share `hidden_size` evenly."""
    if hidden_size % num_heads:
        raise UserError(f"num_heads={num_heads} does not divide hidden_size={hidden_size}; e.g. num_heads=1")
    return hidden_size // num_heads


def split_heads(u: Tensor, heads: int, steps: int = 1) -> Tensor:
    """u [B, T, steps * heads * width], in this order, as [B * heads, T * steps, width]."""
    u = u.unflatten(-1, (steps, heads, -1))
    return u.permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)


def join_heads(u: Tensor, heads: int) -> Tensor:
    """The inverse: u [B * heads, T, width] as [B, T, heads * width]."""
    return u.unflatten(0, (-1, heads)).transpose(1, 2).flatten(2)


def inverse_softplus(x: Tensor) -> Tensor:
    """u with softplus(u) = x > 0."""
    return x + torch.log(-torch.expm1(-x))


def log_uniform(shape: tuple[int, ...], dt_min: float, dt_max: float) -> Tensor:
    """Logarithms of step sizes, uniform from log dt_min to log dt_max. Raises UserError if dt_min > dt_max."""
    if dt_min > dt_max:
        raise UserError(f"dt_min={dt_min} is above dt_max={dt_max}; e.g. dt_min=0.001 dt_max=0.1")
    return torch.empty(shape).uniform_(log(dt_min), log(dt_max))


def sum_normalised(u: Tensor) -> Tensor:
    """The positive parts of u [..., k], divided by their sum plus 1e-5."""
    u = torch.relu(u)
    return u / (1e-5 + u.sum(-1, keepdim=True))


def short_convolution(v: Tensor, before: Tensor, start: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
    """b + sum_j w_j * v_{t-K+j}, j = 1 ... K, over slots of the episode only, and the last K - 1 slots of v.

    v: [B, T, E]
    before: [B, K - 1, E], the slots before, of the episode that runs then; zeros before its beginning
    start: [B, T] bool
    w: [E, K]
    b: [E]; None: zeros
    """
    T, K = v.shape[1], w.shape[1]
    episode = F.pad(start.cumsum(1), (K - 1, 0))[..., None]  # before is episode 0, which a start at slot 0 ends
    v = torch.cat([before, v], 1)
    y = v.new_zeros(()) if b is None else b
    for j in range(K):
        same = episode[:, j : j + T] == episode[:, K - 1 :]
        y = y + w[:, j] * torch.where(same, v[:, j : j + T], 0)
    return y, torch.where(episode[:, T:] == episode[:, -1:], v[:, T:], 0)


class ShortConvolution(nn.Module):
    """silu(b + sum_j w_j * v_{t-K+j}), channel by channel, over the last K slots of the episode; b may be left out."""

    def __init__(self, width: int, size: int, bias: bool = True):
        super().__init__()
        self.w = nn.Parameter(torch.empty(width, size).uniform_(-(size**-0.5), size**-0.5))
        self.b = nn.Parameter(torch.empty(width).uniform_(-(size**-0.5), size**-0.5)) if bias else None
        self.state_shape = (size - 1, width)

    def forward(self, v: Tensor, before: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        v, after = short_convolution(v, before, start, self.w, self.b)
        return F.silu(v), after


class Block(nn.Module, ABC):
    """The layers around a recurrence: `before` makes its input u from x, `after` makes y from its output o and x."""

    def before(self, x: Tensor) -> Tensor:
        return x

    @abstractmethod
    def after(self, o: Tensor, x: Tensor) -> Tensor:
        """y [..., H]"""


class GLUBlock(Block):
    """u = LN(x) and y = x + (W_out1 q) * sigmoid(W_out2 q) with q = GELU(o), tanh approximation."""

    def __init__(self, size: int):
        super().__init__()
        self.ln = nn.LayerNorm(size)
        self.W_out1, self.W_out2 = Linear(size, size), Linear(size, size)

    def before(self, x: Tensor) -> Tensor:
        return self.ln(x)

    def after(self, o: Tensor, x: Tensor) -> Tensor:
        q = F.gelu(o, approximate="tanh")
        return x + self.W_out1(q) * torch.sigmoid(self.W_out2(q))


class FFNBlock(Block):
    """u = x and y = LN_2(z + W_2 GELU(W_1 z)) with z = LN_1(o + x) and W_1 [4H, H]."""

    def __init__(self, size: int):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.W_1, self.W_2 = Linear(size, 4 * size), Linear(4 * size, size)

    def after(self, o: Tensor, x: Tensor) -> Tensor:
        z = self.ln1(o + x)
        return self.ln2(z + self.W_2(F.gelu(self.W_1(z))))


class LinearBlock(Block):
    """u = x and y = LN(W_out2 o + x)."""

    def __init__(self, size: int):
        super().__init__()
        self.ln = nn.LayerNorm(size)
        self.W_out2 = Linear(size, size)

    def after(self, o: Tensor, x: Tensor) -> Tensor:
        return self.ln(self.W_out2(o) + x)


class GRUGate(nn.Module):
    """A gated skip connection (Parisotto et al. 2019, arXiv:1910.06764, section 3.2), which begins near its input e.

        r = sigmoid(Wr a + Ur e),   z = sigmoid(Wz a + Uz e - bias),   (1 - z) * e + z * tanh(Wg a + Ug (r * e))

    W stacks Wr, Wz and Wg, and U stacks Ur and Uz.
    """

    def __init__(self, size: int):
        super().__init__()
        self.W, self.U = Linear(size, 3 * size, bias=False), Linear(size, 2 * size, bias=False)
        self.Ug = Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.full((size,), 2.0))

    def forward(self, e: Tensor, a: Tensor) -> Tensor:
        r_a, z_a, g_a = self.W(a).chunk(3, -1)
        r_e, z_e = self.U(e).chunk(2, -1)
        r, z = torch.sigmoid(r_a + r_e), torch.sigmoid(z_a + z_e - self.bias)
        return torch.lerp(e, torch.tanh(g_a + self.Ug(r * e)), z)

    def symbols(self, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """As `Memory.symbols`."""
        weights = (*of(self.W.weight).chunk(3), *of(self.U.weight).chunk(2), of(self.Ug.weight), of(self.bias))
        return dict(zip(("Wr", "Wz", "Wg", "Ur", "Uz", "Ug", "bias"), weights, strict=True))


Kind = Literal["glu", "ffn", "linear"]
BLOCKS: dict[Kind, type[Block]] = {"glu": GLUBlock, "ffn": FFNBlock, "linear": LinearBlock}


class ResidualRecurrence(LinearRecurrence):
    """A recurrence inside a residual block: the author writes `drive` and `mix`, the block the rest.

    The block makes the recurrence's input u from x, and y from its output o and x. It adds x to its output, so both
    have width H; a linear map W_in stands before it only if the input has another width.
    """

    complex_state = True

    def __init__(self, input_size: int, hidden_size: int, block: Kind, engine: Engine):
        super().__init__(input_size, hidden_size, engine)
        residual = BLOCKS[block](hidden_size)  # its weights are drawn before those of W_in
        self.W_in = Linear(input_size, hidden_size) if input_size != hidden_size else nn.Identity()
        self.block = residual

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        weights = super().symbols(of)
        return {s.replace("b_block.W_", "b_").removeprefix("block."): weight for s, weight in weights.items()}

    @abstractmethod
    def drive(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """a [N], constant in time, and b [..., N] of the recurrence from the block's u [..., H]."""

    @abstractmethod
    def mix(self, h: Tensor, u: Tensor) -> Tensor:
        """The recurrence's output o [..., H] from its states h [..., N] and u."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.W_in(x)
        return x, self.block.before(x)

    def gates(self, p: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return self.drive(p[1])

    def read(self, h: Tensor, p: tuple[Tensor, Tensor]) -> Tensor:
        x, u = p
        return self.block.after(self.mix(h, u), x)
