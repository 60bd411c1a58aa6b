"""Linear attention, and what writes by the delta rule: the fast weight programmer, Gated DeltaNet and DeltaProduct."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import NonNegativeInt, PositiveInt, State
from rlmem.memory.base import Memory
from rlmem.memory.blocks import ShortConvolution, inverse_softplus, join_heads, split_heads, sum_normalised
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


EPS = 1e-6
"""Added to the squared length of keys and queries of GatedDeltaNet."""
MOST_DECAY, SHORTEST, LONGEST, LEAST_STEP = 16.0, 0.001, 0.1, 1e-4
"""First weights of GatedDeltaNet: exp(A_log) is uniform up to the first; softplus(dt_bias) log-uniform between the next
two, and at least the last (released code)."""


class GatedDeltaNet(Memory):
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464, eq. 10), in h heads; with more steps per slot, Gated
    DeltaProduct (Siems et al. 2025, arXiv:2502.10297).

        S' = alpha_t S_{t-1},   S_t = S' + beta_t k_t (v_t - S'^T k_t)^T,   o_t = S_t^T q_t / sqrt(k)
        q_t = unit(silu(W_q x_t)),   k_t = unit(silu(W_k x_t)),   v_t = silu(W_v x_t),   beta_t = sigmoid(W_b x_t)
        log alpha_t = -exp(A_log) * softplus(W_a x_t + dt_bias),   y_t = W_o(RMS(o_t) * o_norm * silu(W_g x_t))

    A slot multiplies the memory by alpha (I - beta k k^T), whose eigenvalue along k is 1 - beta. With
    `eigenvalues="negative"`, beta is twice the sigmoid and the eigenvalue lies in (-1, 1), without which no such memory
    tells odd from even (Grazzi et al. 2024, arXiv:2411.12537). With `steps` n, a slot writes n pairs of key and value
    one after the other, and multiplies by n such matrices: products of reflections, by which words of harder groups can
    be followed. With a convolution, silu(conv(.)) stands for the silu of q, k and v, as in
    the released layer. State: S [B, h, k, v]; with a convolution, S and conv, its last inputs.

    hidden_size: H, width of the output
    num_heads: h
    key_size: k, width of the keys of a head
    value_size: v, width of the values of a head
    steps: pairs of key and value per slot
    eigenvalues: "positive", in (0, 1), or "negative", in (-1, 1)
    conv_size: slots of the convolution of q, k and v (released layer: 4); 0: there is none
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_heads: PositiveInt = 2,
        key_size: PositiveInt = 32,
        value_size: PositiveInt = 32,
        steps: PositiveInt = 1,
        eigenvalues: Literal["positive", "negative"] = "positive",
        conv_size: NonNegativeInt = 0,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        h, n = num_heads, steps
        self.num_heads, self.steps, self.largest = h, n, 2.0 if eigenvalues == "negative" else 1.0
        self.state_shape: Any = (h, key_size, value_size)
        self.key_size, self.conv_size = key_size, conv_size
        linear = lambda width: Linear(input_size, width, bias=False)  # noqa: E731
        self.W_q, self.W_k, self.W_v = linear(h * key_size), linear(n * h * key_size), linear(n * h * value_size)
        self.W_a, self.W_b, self.W_g = linear(h), linear(n * h), linear(h * value_size)
        self.o_norm, self.W_o = nn.RMSNorm(value_size, 1e-5), Linear(h * value_size, hidden_size, bias=False)
        self.A_log = nn.Parameter(torch.rand(h).mul(MOST_DECAY).clamp(min=1e-6).log())
        dt = torch.empty(h).uniform_(math.log(SHORTEST), math.log(LONGEST)).exp().clamp(min=LEAST_STEP)
        self.dt_bias = nn.Parameter(inverse_softplus(dt))
        if n > 1:
            for weight in self.parameters():
                if weight.dim() == 2:
                    nn.init.xavier_uniform_(weight, 2**-2.5)
        if conv_size:
            self.conv = ShortConvolution((h + n * h) * key_size + n * h * value_size, conv_size, False)
            self.state_shape = {"S": (h, key_size, value_size), "conv": self.conv.state_shape}

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        h, n = self.num_heads, self.steps
        parts = self.W_q(x), self.W_k(x), self.W_v(x)
        if self.conv_size:
            mixed, conv = self.conv(torch.cat(parts, -1), state["conv"], start)
            q, k, v = mixed.split([part.shape[-1] for part in parts], -1)
        else:
            q, k, v = map(F.silu, parts)
        S = state["S"] if self.conv_size else state
        q = unit(split_heads(q, h)) * self.key_size**-0.5
        k, v = unit(split_heads(k, h, n)), split_heads(v, h, n)
        beta = self.largest * torch.sigmoid(split_heads(self.W_b(x), h, n)).squeeze(-1)
        log_alpha = split_heads(-self.A_log.exp() * F.softplus(self.W_a(x) + self.dt_bias), h)
        start = start.repeat_interleave(h, 0)[..., None]
        if n > 1:  # a slot begins and decays in its first step, and is read in its last
            log_alpha, start = (F.pad(each, (0, n - 1)) for each in (log_alpha, start))
            q = F.pad(q[:, :, None], (0, 0, n - 1, 0)).flatten(1, 2)
        o, S = delta_scan(q, k, v, beta, S.flatten(0, 1), start.flatten(1), log_alpha.flatten(1), self.engine)
        o = join_heads(self.o_norm(o[:, n - 1 :: n]), h)
        S = S.unflatten(0, (-1, h))
        return self.W_o(o * F.silu(self.W_g(x))), {"S": S, "conv": conv} if self.conv_size else S


def unit(x: Tensor) -> Tensor:
    """x [..., k] at a length of one."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)
