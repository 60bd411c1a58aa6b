"""Linear attention, and what writes by the delta rule: the fast weight programmer, Gated DeltaNet and DeltaProduct,
and RWKV-7."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import NonNegativeInt, PositiveInt, State
from rlmem.memory.base import Memory, RecurrentCell
from rlmem.memory.blocks import ShortConvolution, head_width, inverse_softplus, join_heads, split_heads, sum_normalised
from rlmem.scan import Engine, Linear, delta_scan, linear_scan, normalised_scan, outer_scan
from rlmem.scan.cells import over_steps, previous_states


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


MIXING = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}
"""First weights of mu: one minus the channel's place, from 0 to 1, to this power."""
SLOWEST = math.exp(-0.5)
"""Bound of minus the logarithm of a decay."""


class RWKV7(RecurrentCell):
    """Time mixing of RWKV-7 (Peng et al. 2025, arXiv:2503.14456, section 4), of the first layer, in heads of width n.

        x_q = x + (x' - x) * mu_q for q in r, w, k, v, a, g, with x' the input of the slot before
        r = W_r x_r,   k' = W_k x_k,   v = W_v x_v,   a = sigmoid(a2 a1 x_a + a0),   g = g2 sigmoid(g1 x_g)
        w = exp(-exp(-1/2) sigmoid(w2 tanh(w1 x_w) + w0)),   c = unit(k' * k_k),   k = k' * (1 + (a - 1) * k_a)
        S_t = diag(w) S_{t-1} - (a * c) (S_{t-1}^T c)^T + k v^T
        y = W_o(g * (LN(S_t^T r) + (sum of r * k * r_k) v)),   the norm, unit and the sum per head

    The transition diag(w) - (a * c) c^T tracks states that diagonal ones cannot. First weights are those of one layer
    in the released code, but for W_o, which is zero there. A linear map W_in of the input exists only if
    input_size != H. State: x [B, H], the last input, and S [B, heads, n, n], keys by values. A loop over slots, with S
    held for each where a gradient is recorded.

    hidden_size: H, width of the output
    num_heads: heads; divides H
    rank: width of the inner layers w1, a1 and g1
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 64,
        num_heads: PositiveInt = 4,
        rank: PositiveInt = 16,
    ):
        super().__init__(input_size, hidden_size)
        self.num_heads, H, n = num_heads, hidden_size, head_width(hidden_size, num_heads)
        self.state_shape = {"x": (H,), "S": (num_heads, n, n)}
        self.W_in = Linear(input_size, H) if input_size != H else nn.Identity()
        place = torch.arange(H) / H
        for name, power in MIXING.items():
            self.register_parameter(f"mu_{name}", nn.Parameter(1 - place**power))
        self.W_r, self.W_k, self.W_v, self.W_o = (Linear(H, H, bias=False) for _ in range(4))
        self.w1, self.a1, self.g1 = (Linear(H, rank, bias=False) for _ in range(3))
        self.w2, self.a2, self.g2 = (Linear(rank, H, bias=False) for _ in range(3))
        for gain, weights in ((1.0, (self.W_r, self.W_v)), (0.1, (self.W_k, self.w2, self.a2, self.g2))):
            for weight in weights:
                nn.init.orthogonal_(weight.weight, gain)
        for weight in (self.w1, self.a1, self.g1):
            nn.init.zeros_(weight.weight)
        channel, wave = torch.linspace(0, 1, H), torch.linspace(-1, 1, n)
        wave = (wave * wave.abs()).repeat(num_heads)
        self.w0 = nn.Parameter(-5.5 + 6 * channel + 2.5 * wave)
        self.a0 = nn.Parameter(-0.19 + 0.3 * wave + 0.4 * (channel - 0.5))
        self.k_k, self.k_a = nn.Parameter(0.71 - 0.1 * (channel - 0.5)), nn.Parameter(torch.full((H,), 1.02))
        self.r_k = nn.Parameter(torch.full((num_heads, n), -0.04))
        self.gn_scale, self.gn_bias = nn.Parameter(torch.ones(H)), nn.Parameter(torch.zeros(H))

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        x = self.W_in(x)
        inputs, rest = self._inputs(x, state["x"])
        o, S = _step(inputs, state["S"])
        return self._output(o, *rest), {"x": x, "S": S}

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        sizes, x = packed.batch_sizes.tolist(), self.W_in(packed.data)
        inputs, rest = self._inputs(x, previous_states(state["x"], x, sizes))
        steps = zip(*(part.split(sizes) for part in inputs), strict=True)
        o, S = over_steps(_step, steps, sizes, state["S"])
        return self._output(o, *rest), {"x": x[last], "S": S}

    def _inputs(self, x: Tensor, before: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
        """What a step reads, r, w, a * c, c, k and v [n, heads, width], and what the output needs besides."""
        mixed = {name: torch.lerp(x, before, getattr(self, f"mu_{name}")) for name in MIXING}
        r, k, v = self.W_r(mixed["r"]), self.W_k(mixed["k"]), self.W_v(mixed["v"])
        w = (-SLOWEST * torch.sigmoid(self.w2(torch.tanh(self.w1(mixed["w"]))) + self.w0)).exp()
        a = torch.sigmoid(self.a2(self.a1(mixed["a"])) + self.a0)
        g = self.g2(torch.sigmoid(self.g1(mixed["g"])))
        c, k = k * self.k_k, k * (1 + (a - 1) * self.k_a)
        r, w, a, c, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in (r, w, a, c, k, v))
        c = F.normalize(c, dim=-1, eps=1e-12)
        own = ((r * k * self.r_k).sum(-1, keepdim=True) * v).flatten(-2)
        return (r, w, a * c, c, k, v), (own, g)

    def _output(self, o: Tensor, own: Tensor, g: Tensor) -> Tensor:
        width = o.shape[-1]
        normed = F.layer_norm(o, (width,), eps=1e-5 * width).flatten(-2) * self.gn_scale + self.gn_bias
        return self.W_o((normed + own) * g)


def _step(inputs: Any, S: Tensor) -> tuple[Tensor, Tensor]:
    """What r reads of the next S, [n, heads, width], and that S."""
    r, w, removed, c, k, v = inputs
    held = c[..., None, :] @ S
    S = w[..., None] * S - removed[..., None] * held + k[..., None] * v[..., None, :]
    return (r[..., None, :] @ S).squeeze(-2), S
