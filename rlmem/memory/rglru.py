"""Real-gated linear recurrent unit."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import PositiveInt, where_start
from rlmem.memory.base import Memory
from rlmem.memory.blocks import head_width
from rlmem.scan import Engine, Linear, linear_scan

SHARPNESS = 8.0
"""c of the paper: how far an open gate raises the decay."""
RADIUS = (0.9, 0.999)
"""Range of the decays sigmoid(-Lambda) at first, their squares uniform, as in the released code."""
STEEPEST = 1000.0
"""Bound of the derivative of the square root, as in the released code."""


class RGLRU(Memory):
    """Real-gated linear recurrent unit (De et al. 2024, Griffin, arXiv:2402.19427, section 2.4).

        r = sigmoid(W_a u + b_a),   i = sigmoid(W_x u + b_x),   log a = -8 r * softplus(Lambda)
        h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * (i_t * u_t),   y_t = h_t

    u = x, or W_in x if input_size != H. W_a and W_x consist of blocks on consecutive parts of u. Lambda has the sign of
    the released code, which is the opposite of the paper's. State: h [B, H].

    hidden_size: H, width of state and output
    num_heads: blocks of W_a and W_x; divides H
    first_slot: "scaled", as every slot; or "whole": at an episode's first slot the input is not scaled by
        sqrt(1 - a^2), as in the released code
    """

    W_a: nn.Parameter
    W_x: nn.Parameter
    b_a: nn.Parameter
    b_x: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_heads: PositiveInt = 4,
        first_slot: Literal["scaled", "whole"] = "scaled",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        if first_slot == "whole":
            self.breaks = {"starts_separate_episodes": "first_slot=whole: a zero state alone does not begin an episode"}
        self.first_slot, self.state_shape = first_slot, (hidden_size,)
        width = head_width(hidden_size, num_heads)
        self.W_in = nn.Identity() if input_size == hidden_size else Linear(input_size, hidden_size)
        low, high = (radius**2 for radius in RADIUS)
        decay = (torch.rand(hidden_size, dtype=torch.float64) * (high - low) + low).sqrt()
        self.Lambda = nn.Parameter((1 / decay - 1).log().to(torch.get_default_dtype()))
        for gate in ("x", "a"):
            self.register_parameter(f"W_{gate}", nn.Parameter(torch.randn(num_heads, width, width) / width**0.5))
            self.register_parameter(f"b_{gate}", nn.Parameter(torch.zeros(num_heads, width)))

    def gates(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """a and b [..., H] of h = a h + b, from x [..., D] and start [...]."""
        u = self.W_in(x)
        W, bias = torch.cat([self.W_a, self.W_x], 1), torch.stack([self.b_a, self.b_x], 1)
        by_head = u.unflatten(-1, self.b_a.shape).flatten(0, -3).transpose(0, 1)
        pre = (by_head @ W.mT).transpose(0, 1).unflatten(-1, (2, -1)) + bias  # [n, heads, 2, width]
        pre, rate = pre.unflatten(0, u.shape[:-1]), SHARPNESS * F.softplus(self.Lambda)
        r, i = (torch.sigmoid(part).flatten(-2) for part in pre.unbind(-2))
        log_a = -rate * r
        scale: Tensor = _Root.apply(-torch.expm1(2 * log_a))
        if self.first_slot == "whole":
            scale = torch.where(start[..., None], 1.0, scale)
        return log_a.exp(), scale * i * u

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        h = linear_scan(*self.gates(x, start), state, start, self.engine)
        return h, h[:, -1].clone()

    def step(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.gates(x, start)
        h = a * where_start(start, torch.zeros_like(state), state) + b
        return h, h


class _Root(torch.autograd.Function):
    """The square root, with a derivative of at most STEEPEST."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        root = x.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        return grad / (2 * root).clamp(min=1 / STEEPEST)
