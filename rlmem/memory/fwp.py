"""Fast weight programmer."""

from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.core.types import PositiveInt
from rlmem.memory.base import Memory
from rlmem.memory.blocks import sum_normalised
from rlmem.scan import Engine, Linear, delta_scan, outer_scan


class FWP(Memory):
    """Fast weight programmer with the delta rule (Schlag et al. 2021, arXiv:2102.11174), one head.

        S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T,   beta_t = sigmoid(w_beta u_t),   v_t = W_v u_t
        k_t = relu(W_k u_t) / (1e-5 + sum of relu(W_k u_t)),   q_t likewise,   u_t = LN(x_t)
        y_t = W_out(S_t^T q_t + W_shortcut u_t),   no W_out where k = H

    Writing first removes what the key already retrieves. Differs from the paper: phi is a ReLU (the paper's DPFP
    is one of several), and the norm and the shortcut are those of the published RL baselines.
    State: S [B, k, k], keys by values. Cost: O(T (64 + k) k) as products of matrices and, with the delta rule, one
    triangular solve; S is never held per slot.

    hidden_size: H, width of the output
    key_size: k, width of keys, queries and values
    rule: delta, or sum: S_t = S_{t-1} + k_t v_t^T, POPGym's release (Morad et al. 2023, arXiv:2303.01859)
    readout: linear as above, or feed_forward: relu(W_ff2 relu(W_ff1 .)) of S_t^T q_t before the shortcut, as in
        POPGym, whose clock is left out
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        key_size: PositiveInt = 16,
        rule: Literal["delta", "sum"] = "delta",
        readout: Literal["linear", "feed_forward"] = "linear",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.state_shape = (key_size, key_size)
        self.rule, self.readout = rule, readout
        self.ln = nn.LayerNorm(input_size)
        self.W_k, self.W_q, self.W_v = (Linear(input_size, key_size, bias=False) for _ in range(3))
        if rule == "delta":
            self.w_beta = Linear(input_size, 1, bias=False)
        if readout == "feed_forward":
            self.W_ff1, self.W_ff2 = Linear(key_size, key_size), Linear(key_size, key_size)
        self.W_shortcut = Linear(input_size, key_size)
        self.W_out = Linear(key_size, hidden_size) if key_size != hidden_size else nn.Identity()

    def runs_on(self, device: torch.device | str) -> Engine:
        engine = super().runs_on(device)
        return "chunked" if self.rule == "delta" and engine == "native" else engine  # which has no kernel for it

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        u = self.ln(x)
        q, k, v = sum_normalised(self.W_q(u)), sum_normalised(self.W_k(u)), self.W_v(u)
        if self.rule == "delta":
            beta = torch.sigmoid(self.w_beta(u)).squeeze(-1)
            read, S = delta_scan(q, k, v, beta, state, start, engine=self.engine)
        else:
            read, S = outer_scan(q, k, v, state, start, engine=self.engine)
        if self.readout == "feed_forward":
            read = torch.relu(self.W_ff2(torch.relu(self.W_ff1(read))))
        return self.W_out(read + self.W_shortcut(u)), S
