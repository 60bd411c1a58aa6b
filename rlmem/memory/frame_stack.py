"""Frame stack: the last frames side by side."""

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.core.types import PositiveInt
from rlmem.memory.window import Past, Window
from rlmem.scan import Linear


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
