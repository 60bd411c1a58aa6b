"""Matrix LSTM."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import NonNegativeFloat, PositiveInt, where_start
from rlmem.memory.base import Memory
from rlmem.scan import Engine, Linear, normalised_scan


class MLSTM(Memory):
    """Matrix LSTM, the parallel cell of xLSTM (Beck et al. 2024, arXiv:2405.04517, eq. 19-27), one head.

        C_t = f_t C_{t-1} + i_t k_t v_t^T,   n_t = f_t n_{t-1} + i_t k_t,   i_t = exp(w_i x_t),  f_t = sigmoid(w_f x_t)
        y_t = W_out(o_t * C_t^T q_t / max(|n_t . q_t|, 1)),   o_t = sigmoid(W_o x_t),   no W_out where k = H
        q_t = W_q x_t,   k_t = W_k x_t / sqrt(k),   v_t = W_v x_t

    Kept as C exp(-m) and n exp(-m) with m_t = max(log f_t + m_{t-1}, log i_t, 0), the paper's stabiliser (eq. 15-17)
    with a floor of 0, so that no exponent is above zero; 1 then reads exp(-m_t). m has no gradient: nothing depends
    on it. Biases everywhere. Differs from the paper: only the cell, without the block around it.
    State: {"C" [B, k, k], keys by values, "n" [B, k], "m" [B]}. Cost: O(T (64 + k) k) as products of matrices, C never
    held per slot.

    hidden_size: H, width of the output
    key_size: k, width of keys, queries and values
    forget_bias: b_f at initialisation; 3 as in the authors' code, where heads range from 3 to 6 (0: f is about 1/2)
    recurrent: False treats every slot as an episode of its own, as in the release of Le et al. 2024 (arXiv:2410.10132)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        key_size: PositiveInt = 24,
        forget_bias: NonNegativeFloat = 3.0,
        recurrent: bool = True,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.state_shape = {"C": (key_size, key_size), "n": (key_size,), "m": ()}
        self.key_size, self.recurrent = key_size, recurrent
        self.W_q, self.W_k, self.W_v = (Linear(input_size, key_size) for _ in range(3))
        self.w_i, self.w_f = Linear(input_size, 1), Linear(input_size, 1)
        self.W_o = Linear(input_size, key_size)
        self.W_out = Linear(key_size, hidden_size) if key_size != hidden_size else nn.Identity()
        nn.init.constant_(self.w_f.bias, forget_bias)

    def forward(self, x: Tensor, state: dict[str, Tensor], start: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.recurrent:
            start = torch.ones_like(start)
        log_i, log_f = self.w_i(x).squeeze(-1), F.logsigmoid(self.w_f(x)).squeeze(-1)
        m = stabiliser(log_i, log_f, state["m"], start)
        m_before = torch.cat([state["m"].detach()[:, None], m[:, :-1]], 1)
        log_decay = log_f + torch.where(start, 0, m_before) - m
        k = self.W_k(x) * ((log_i - m).exp() / self.key_size**0.5)[..., None]
        q, v = self.W_q(x), self.W_v(x)
        Cq, nq, C, n = normalised_scan(q, k, v, state["C"], state["n"], start, log_decay, self.engine)
        h = torch.sigmoid(self.W_o(x)) * Cq / torch.maximum(nq.abs(), (-m).exp()[..., None])
        return self.W_out(h), {"C": C, "n": n, "m": m[:, -1]}


@torch.no_grad()
def stabiliser(log_i: Tensor, log_f: Tensor, m0: Tensor, start: Tensor) -> Tensor:
    """m_t = max(log f_t + (0 if start_t else m_{t-1}), log i_t, 0), all [B, T], with log f_t <= 0 and m0 [B].

    Computed by doubling the window of slots that m_t covers; log_f and start become the sum and the union over it.
    """
    m = log_i.clamp(min=0)
    first = torch.maximum(m[:, 0], log_f[:, 0] + where_start(start[:, 0], torch.zeros_like(m0), m0))
    m = torch.cat([first[:, None], m[:, 1:]], 1)
    window = 1
    while window < m.shape[1]:
        reached = torch.maximum(m[:, window:], log_f[:, window:] + m[:, :-window])
        reached = torch.where(start[:, window:], m[:, window:], reached)
        m = torch.cat([m[:, :window], reached], 1)
        log_f = torch.cat([log_f[:, :window], log_f[:, window:] + log_f[:, :-window]], 1)
        start = torch.cat([start[:, :window], start[:, window:] | start[:, :-window]], 1)
        window *= 2
    return m
