"""Temporal convolutional network."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.core.types import DoublingLayers, PositiveInt
from rlmem.memory.window import Past, Window
from rlmem.scan import Linear


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
