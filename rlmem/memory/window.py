"""The base of memories over the last slots of an episode, with its caches, resets and masks; frame stack and TCN."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.core.types import DoublingLayers, PositiveInt
from rlmem.memory.base import Memory
from rlmem.memory.positions import ages, counting
from rlmem.scan import Linear, attention


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


class FrameStack(Window):
    """The last frames, compressed and concatenated (Mnih et al. 2015; in the form of POPGym's baseline, Morad et al.
    2023, arXiv:2303.01859).

        y_t = phi(W_2 phi(W_1 [c_{t-n+1}, ..., c_t] + b_1) + b_2),   c_s = W_c x_s + b_c,   phi = LeakyReLU

    Frames before the episode's start are zero, but W_c's bias applies to them, too. POPGym's baseline also has a
    clock (`Clocked`).
    State: age [B] and frames [B, n - 1, D]. Cost: O(T n).

    hidden_size: H, width of both layers; a frame is compressed to H // n features (at least one)
    window: n, frames seen, the present one included
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, window: PositiveInt = 4):
        super().__init__(input_size, hidden_size)
        self.window = window
        self.caches = {"frames": (window - 1, input_size)}
        compressed = max(hidden_size // window, 1)
        self.W_c = Linear(input_size, compressed)
        self.W_1, self.W_2 = Linear(window * compressed, hidden_size), Linear(hidden_size, hidden_size)

    def read(self, x: Tensor, past: Past) -> Tensor:
        c = self.W_c(past.frames("frames", x, self.window))  # [B, T, n, H / n]
        return F.leaky_relu(self.W_2(F.leaky_relu(self.W_1(torch.flatten(c, 2)))))


class TCN(Window):
    """Temporal convolutional network (Bai et al. 2018, arXiv:1803.01271, section 3): residual blocks of causal
    convolutions whose dilation doubles from block to block.

        (conv_W z)_t = sum_j W[:, :, j] z_{t - (k-1-j) d} + b      d = 2^i in block i; zeros before the episode
        u = relu(conv_1 z),   o = relu(conv_2 u),   z' = relu(W_skip z + o)

    conv_1 and conv_2 use g W / |W|, weight normalisation per output channel; there is no W_skip where z has H features.
    No dropout (published: after u and o), since training must re-read what acting used; torch's initialisation
    (published code: N(0, 0.01)). Sees 1 + 2 (k-1) (2^L - 1) slots. Cost: O(T k H^2) per block.
    State: age [B], and the inputs of the convolutions, L0.1, L0.2, ... [B, (k-1) d, width].

    hidden_size: H, channels of every block
    kernel_size: k
    num_layers: L, blocks; 1 for form=linear
    form: residual, as above; linear is POPGym's published TCN without its clock, y = conv_1 x
        (state: age, frames [B, k-1, D])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        kernel_size: PositiveInt = 4,
        num_layers: DoublingLayers = 4,
        form: Literal["residual", "linear"] = "residual",
    ):
        super().__init__(input_size, hidden_size)
        self.form = form
        if form == "linear":
            if num_layers > 1:
                raise UserError(f"TCN: form=linear is one convolution, got num_layers={num_layers}; e.g. num_layers=1")
            self.caches = {"frames": (kernel_size - 1, input_size)}
            self.W_conv = nn.Conv1d(input_size, hidden_size, kernel_size)
            return
        widths = [input_size] + [hidden_size] * num_layers
        self.layers = nn.ModuleList(DilatedBlock(widths[i], hidden_size, kernel_size, 2**i) for i in range(num_layers))
        self.caches = {}
        for i, width in enumerate(widths[:-1]):
            slots = (kernel_size - 1) * 2**i
            self.caches |= {f"L{i}.1": (slots, width), f"L{i}.2": (slots, hidden_size)}

    def read(self, x: Tensor, past: Past) -> Tensor:
        if self.form == "linear":
            return convolve(past, "frames", x, self.W_conv.weight, self.W_conv.bias)
        for i, layer in enumerate(self.layers):
            x = layer(x, past, f"L{i}")
        return x


class DilatedBlock(nn.Module):
    """Two weight-normalised convolutions and a skip connection."""

    def __init__(self, width_in: int, width: int, kernel_size: int, dilation: int):
        super().__init__()
        self.dilation = dilation
        self.W_1, self.W_2 = nn.Conv1d(width_in, width, kernel_size), nn.Conv1d(width, width, kernel_size)
        self.g_1, self.g_2 = (nn.Parameter(W.weight.detach().flatten(1).norm(dim=1)) for W in (self.W_1, self.W_2))
        self.W_skip = Linear(width_in, width) if width_in != width else nn.Identity()

    def forward(self, z: Tensor, past: Past, name: str) -> Tensor:
        u = F.relu(self._conv(past, f"{name}.1", z, self.W_1, self.g_1))
        o = F.relu(self._conv(past, f"{name}.2", u, self.W_2, self.g_2))
        return F.relu(self.W_skip(z) + o)

    def _conv(self, past: Past, name: str, z: Tensor, conv: nn.Conv1d, g: Tensor) -> Tensor:
        scale = g / conv.weight.flatten(1).norm(dim=1)
        return convolve(past, name, z, conv.weight, None, self.dilation) * scale + conv.bias


def convolve(past: Past, name: str, z: Tensor, W: Tensor, b: Tensor | None, dilation: int = 1) -> Tensor:
    """Causal convolution of z [B, T, D] by W [H, D, k] within the episode: [B, T, H]."""
    frames = past.frames(name, z, W.shape[2], dilation)
    return F.linear(frames.flatten(2), W.transpose(1, 2).flatten(1), b)
