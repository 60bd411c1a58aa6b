"""Differentiable Neural Computer."""

from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import PositiveInt
from rlmem.memory.base import RecurrentCell
from rlmem.scan import Linear
from rlmem.scan.cells import over_steps

State = dict[str, Tensor]

EPSILON = 1e-6
"""Added to the squared norms of keys and cells, since a cell may be all zero."""
TIE = 1e-5
"""Added to the usage per index when cells are put in the order of allocation: untouched cells are equally used, and
rounding must not decide which of them comes first."""


class DNC(RecurrentCell):
    """Differentiable Neural Computer (Graves et al. 2016, Nature 538:471-476, Methods), one LSTM layer as controller.

        h, s = LSTM([x; r_1 .. r_R], h, s),  xi = W_xi h                       z = [h; r_1 .. r_R]
        u   <- (u + w_w - u * w_w) * prod_r (1 - free_r w_r)                   usage
        w_w <- g_w (g_a allocation(u) + (1 - g_a) content(M, k_w, beta_w))     write weights
        M   <- M * (1 - w_w erase^T) + w_w write^T
        L_ij <- (1 - w_w_i - w_w_j) L_ij + w_w_i p_j,  L_ii = 0                links: i was written after j
        p   <- (1 - sum w_w) p + w_w                                           precedence
        w_r <- backward L^T w_r + by_content content(M, k_r, beta_r) + forward L w_r
        r    = w_r M,  y = W_y z + b_y

    xi holds keys, strengths (1 + softplus), gates and erase (sigmoid), write, and modes (softmax). content is the
    softmax of beta times the cosine similarity, with 1e-6 added to squared norms: the memory starts empty. allocation
    fills the least used cells first, and those equally used (to 1e-5) by their index; no gradient passes this order.
    State: {z [B, H + R W], s [B, H], M [B, N, W], L [B, N, N], p, u, w_w [B, N], w_r [B, R, N]}. O(N^2) per slot.
    The published agent built its weights at the first forward, after its optimiser, so they were never trained.

    hidden_size: H, width of the controller and of the output
    num_cells: N
    cell_size: W
    read_heads: R
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_cells: PositiveInt = 16,
        cell_size: PositiveInt = 16,
        read_heads: PositiveInt = 4,
    ):
        super().__init__(input_size, hidden_size)
        self.N, self.W, self.R = num_cells, cell_size, read_heads
        z_size = hidden_size + read_heads * cell_size
        N, W, R = num_cells, cell_size, read_heads
        self.state_shape = {"z": (z_size,), "s": (hidden_size,), "M": (N, W), "L": (N, N)}
        self.state_shape |= {"p": (N,), "u": (N,), "w_w": (N,), "w_r": (R, N)}
        self.W_x = Linear(input_size, 4 * hidden_size)  # of the controller's gates i, f, g, o
        self.U = Linear(z_size, 4 * hidden_size, bias=False)
        self.W_xi = Linear(hidden_size, sum(interface_sizes(read_heads, cell_size)))
        self.W_y = Linear(z_size, hidden_size)

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.read(self.W_x(x), [len(x)], state)

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        return self.read(self.W_x(packed.data), packed.batch_sizes.tolist(), state)

    def read(self, drive: Tensor, sizes: list[int], state: State) -> tuple[Tensor, State]:
        """Outputs [S, H] and final states of steps of `sizes`, from the input's part [S, 4 H] of the controller."""

        def slot(drive: Tensor, before: Any) -> tuple[Tensor, Any]:
            state, M_unit = before
            h, s = controller(drive + self.U(state["z"]), state["s"])
            after = access(interface(self.W_xi(h), self.R, self.W), h, s, state, M_unit)
            return after[0]["z"], after

        z, (final, _) = over_steps(slot, drive.split(sizes), sizes, (state, unit(state["M"])))
        return self.W_y(z), final


class Interface(NamedTuple):
    """What the controller asks of the memory; keys have norm one and are multiplied by their strengths."""

    k_w: Tensor  # [n, 1, W]
    k_r: Tensor  # [n, R, W]
    free: Tensor  # [n, R, 1]
    g_a: Tensor  # [n, 1]
    g_w: Tensor  # [n, 1]
    erase: Tensor  # [n, 1, W]
    write: Tensor  # [n, 1, W]
    backward: Tensor  # [n, R, 1]
    by_content: Tensor  # [n, R, 1]
    forward: Tensor  # [n, R, 1]


def interface_sizes(R: int, W: int) -> list[int]:
    """Widths of the parts of xi: keys, strengths, gates and erase vector (in (0, 1)), the write vector, modes."""
    return [(1 + R) * W, 1 + R, R + 2 + W, W, 3 * R]


def interface(xi: Tensor, R: int, W: int) -> Interface:
    k, beta, squashed, write, modes = xi.split_with_sizes(interface_sizes(R, W), 1)
    free, g_a, g_w, erase = torch.sigmoid(squashed).split_with_sizes([R, 1, 1, W], 1)
    k = unit(k.view(-1, 1 + R, W)) * (F.softplus(beta) + 1).unsqueeze(2)
    modes = modes.view(-1, 3, R, 1).softmax(1)
    k_w, k_r = k.split_with_sizes([1, R], 1)
    return Interface(k_w, k_r, free.unsqueeze(2), g_a, g_w, erase.unsqueeze(1), write.unsqueeze(1), *modes.unbind(1))


def controller(pre: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """h and s of an LSTM from the pre-activations [n, 4H] of i, f, g, o."""
    i, f, _, o = torch.sigmoid(pre).chunk(4, 1)
    s = torch.addcmul(f * s, i, torch.tanh(pre.chunk(4, 1)[2]))
    return o * torch.tanh(s), s


def access(ask: Interface, h: Tensor, s: Tensor, before: State, M_unit: Tensor) -> tuple[State, Tensor]:
    """One slot: the state after it and unit(M), given those before it and the controller's h and s."""
    M, L, p, u, w_w, w_r = (before[name] for name in ("M", "L", "p", "u", "w_w", "w_r"))
    retention = reduce(torch.mul, torch.rsub(ask.free * w_r, 1).unbind(1))
    u = torch.addcmul(u + w_w, u, w_w, value=-1) * retention
    w_w = ask.g_w * torch.lerp(content(ask.k_w, M_unit).squeeze(1), allocation(u), ask.g_a)
    w, w_row = w_w.unsqueeze(2), w_w.unsqueeze(1)
    M = torch.addcmul(M, w, torch.addcmul(ask.write, M, ask.erase, value=-1))
    L = torch.addcmul(w * p.unsqueeze(1), L, torch.rsub(w, 1) - w_row)
    L = L * (1 - torch.eye(L.shape[1], dtype=L.dtype, device=L.device))
    p = torch.addcmul(w_w, torch.rsub(w_w.sum(1, keepdim=True), 1), p)
    M_unit = unit(M)
    by_order = torch.baddbmm(torch.bmm(ask.backward * w_r, L), ask.forward * w_r, L.mT)
    w_r = torch.addcmul(by_order, ask.by_content, content(ask.k_r, M_unit))
    r = torch.bmm(w_r, M)
    z = torch.cat([h, r.flatten(1)], 1)
    return {"z": z, "s": s, "M": M, "L": L, "p": p, "u": u, "w_w": w_w, "w_r": w_r}, M_unit


def unit(v: Tensor) -> Tensor:
    """v with its last dimension divided by its norm."""
    return v * torch.rsqrt(v.square().sum(-1, keepdim=True) + EPSILON)


def content(k: Tensor, M_unit: Tensor) -> Tensor:
    """Weights [n, number of keys, N] by cosine similarity, from unit(M)."""
    return torch.bmm(k, M_unit.mT).softmax(2)


def allocation(u: Tensor) -> Tensor:
    """a_i = (1 - u_i) prod_j u_j over the cells j that are used less than i."""
    order = torch.add(u, torch.arange(u.shape[1], device=u.device), alpha=TIE).argsort(1)
    product = F.pad(u.gather(1, order).cumprod(1), (1, 0), value=1.0)
    return torch.zeros_like(u).scatter(1, order, product[:, :-1] - product[:, 1:])
