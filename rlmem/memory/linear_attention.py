"""Linear attention, and the fast weight programmer."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import PositiveInt
from rlmem.memory.base import Memory
from rlmem.memory.blocks import sum_normalised
from rlmem.scan import Engine, Linear, delta_scan, linear_scan, normalised_scan, outer_scan


class LinearAttention(Memory):
    """Linear attention as an RNN (Katharopoulos et al. 2020, arXiv:2006.16236, eq. 16-20), one head.

        S_t = S_{t-1} + phi(W_k x_t) (W_v x_t)^T,   z_t = z_{t-1} + phi(W_k x_t),   phi(u) = 1 + elu(u)
        read_t = S_t^T q_t / (z_t . q_t),   q_t = phi(W_q x_t)

    State: {"S" [B, k, v], "z" [B, k]}. Cost: O(T (64 + k) v) as products of matrices, S never held per slot.

    hidden_size: H, width of the output
    key_size: k, width of keys and queries
    value_size: v, width of values
    form: what surrounds the read, each as in its source
        memoroid: y = LN(MLP(read) + W_skip x), three layers with leaky ReLU; v has a bias; z . q at least 1e-6
            (Morad et al. 2024, arXiv:2402.09900)
        popgym: x is layer-normed first; y = W_out(FF(read) + W_shortcut x), FF two layers of width v with ReLU, and
            no W_out where v = H; 1e-5 is added to z . q (Morad et al. 2023, arXiv:2303.01859); its clock is left out
    denominator: inner_product is z . q; sum_product is (sum of z) (sum of q), which both sources computed in its place
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        key_size: PositiveInt = 16,
        value_size: PositiveInt = 16,
        form: Literal["memoroid", "popgym"] = "memoroid",
        denominator: Literal["inner_product", "sum_product"] = "inner_product",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.state_shape = {"S": (key_size, value_size), "z": (key_size,)}
        self.form, self.denominator = form, denominator
        self.W_k, self.W_q = (Linear(input_size, key_size, bias=False) for _ in range(2))
        self.W_v = Linear(input_size, value_size, bias=form == "memoroid")
        if form == "memoroid":
            self.W_mlp1 = Linear(value_size, hidden_size)
            self.W_mlp2, self.W_mlp3 = Linear(hidden_size, hidden_size), Linear(hidden_size, hidden_size)
            self.W_skip = Linear(input_size, hidden_size)
            self.ln = nn.LayerNorm(hidden_size)
        else:
            self.ln = nn.LayerNorm(input_size)
            self.W_ff1, self.W_ff2 = Linear(value_size, value_size), Linear(value_size, value_size)
            self.W_shortcut = Linear(input_size, value_size)
            self.W_out = Linear(value_size, hidden_size) if value_size != hidden_size else nn.Identity()

    def forward(self, x: Tensor, state: dict[str, Tensor], start: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        memoroid = self.form == "memoroid"
        x = x if memoroid else self.ln(x)
        q, k, v = 1 + F.elu(self.W_q(x)), 1 + F.elu(self.W_k(x)), self.W_v(x)
        numerator, denominator, S, z = normalised_scan(q, k, v, state["S"], state["z"], start, None, self.engine)
        if self.denominator == "sum_product":
            one = x.new_ones(1)
            z_sum = linear_scan(one, k.sum(-1, keepdim=True), state["z"].sum(-1, keepdim=True), start, self.engine)
            denominator = z_sum * q.sum(-1, keepdim=True)
        if memoroid:
            read = numerator / denominator.clamp(min=1e-6)
            y = self.ln(self.W_mlp3(F.leaky_relu(self.W_mlp2(F.leaky_relu(self.W_mlp1(read))))) + self.W_skip(x))
        else:
            read = numerator / (denominator + 1e-5)
            y = self.W_out(torch.relu(self.W_ff2(torch.relu(self.W_ff1(read)))) + self.W_shortcut(x))
        return y, {"S": S, "z": z}


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
