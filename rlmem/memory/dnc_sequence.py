"""One slot of the Differentiable Neural Computer, equation by equation, and its gradient over a whole sequence.

n rows, or all slots of a sequence at once. N cells of width W, R read heads, controller width H.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.memory.packed.steps import previous_states

EPSILON = 1e-6
"""Added to the squared norms of keys and cells: a cell may be all zero."""
TIE = 1e-5
"""By how much more a cell must be used than its neighbour to come after it: untouched cells are equally used, and
rounding must not decide which of them is first."""
BLOCK = 256
"""Slots of a sequence that are worked on together."""


class DNCState(NamedTuple):
    """z [n, H + R W] = (h, r);  s [n, H];  M [n, N, W];  L [n, N, N];  p, u, w_w [n, N];  w_r [n, R, N]."""

    z: Tensor
    s: Tensor
    M: Tensor
    L: Tensor
    p: Tensor
    u: Tensor
    w_w: Tensor
    w_r: Tensor


class Interface(NamedTuple):
    """What the controller asks of the memory. Of the keys the first is the write key."""

    k: Tensor  # [n, 1 + R, W] of norm one
    strong_k: Tensor  # times their strengths
    free: Tensor  # [n, R, 1]
    gates: Tensor  # [n, 2] g_a, g_w
    erase: Tensor  # [n, 1, W]
    write: Tensor  # [n, 1, W]
    modes: Tensor  # [n, 3, R, 1] backward, by content, forward


def interface_sizes(R: int, W: int) -> list[int]:
    """Keys, strengths, what is squashed into (0, 1), the write vector, modes."""
    return [(1 + R) * W, 1 + R, R + 2 + W, W, 3 * R]


def interface(xi: Tensor, R: int, W: int) -> Interface:
    k, beta, squashed, write, modes = xi.split_with_sizes(interface_sizes(R, W), 1)
    free, gates, erase = torch.sigmoid(squashed).split_with_sizes([R, 2, W], 1)
    k = unit(k.view(-1, 1 + R, W))
    strong_k = k * (F.softplus(beta) + 1).unsqueeze(2)
    modes = modes.view(-1, 3, R, 1).softmax(1)
    return Interface(k, strong_k, free.unsqueeze(2), gates, erase.unsqueeze(1), write.unsqueeze(1), modes)


def inverse_norm(v: Tensor) -> Tensor:
    return torch.rsqrt(v.square().sum(-1, keepdim=True) + EPSILON)


def unit(v: Tensor) -> Tensor:
    return v * inverse_norm(v)


def content(strong_k: Tensor, M_unit: Tensor) -> Tensor:
    """Weights [n, number of keys, N] by cosine similarity."""
    return torch.bmm(strong_k, M_unit.mT).softmax(2)


def by_usage(u: Tensor) -> tuple[Tensor, Tensor]:
    """u in ascending order, and which cells that is."""
    order = torch.add(u, torch.arange(u.shape[1], device=u.device), alpha=TIE).argsort(1)
    return u.gather(1, order), order


def allocation(u: Tensor) -> Tensor:
    """a_i = (1 - u_i) prod_j u_j over the cells j that are used less than i."""
    ascending, order = by_usage(u)
    product = F.pad(ascending, (1, 0), value=1.0).cumprod(1)
    return torch.zeros_like(u).scatter(1, order, product[:, :-1] - product[:, 1:])


def controller(pre: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """h and s of an LSTM from the pre-activations [n, 4H] of i, f, g, o."""
    i, f, g, o = pre.chunk(4, 1)
    s = torch.sigmoid(f) * s + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(s), s


def access(ask: Interface, h: Tensor, s: Tensor, before: DNCState) -> DNCState:
    """The memory after one slot, and with it all of the state."""
    _, _, M, L, p, u, w_w, w_r = before
    g_a, g_w = ask.gates.unsqueeze(2).unbind(1)
    u = torch.addcmul(u + w_w, u, w_w, value=-1) * torch.rsub(ask.free * w_r, 1).prod(1)
    c = content(ask.strong_k[:, :1], unit(M)).squeeze(1)
    w_w = g_w * torch.lerp(c, allocation(u), g_a)
    w, w_row = w_w.unsqueeze(2), w_w.unsqueeze(1)
    M = torch.addcmul(M, w, torch.addcmul(ask.write, M, ask.erase, value=-1))
    L = without_diagonal(L * (torch.rsub(w, 1) - w_row) + w * p.unsqueeze(1))
    p = torch.addcmul(w_w, torch.rsub(w_w.sum(1, keepdim=True), 1), p)
    c = content(ask.strong_k[:, 1:], unit(M))
    backward, by_content, forward = ask.modes.unbind(1)
    w_r = backward * torch.bmm(w_r, L) + by_content * c + forward * torch.bmm(w_r, L.mT)
    r = torch.bmm(w_r, M)
    return DNCState(torch.cat([h, r.flatten(1)], 1), s, M, L, p, u, w_w, w_r)


def without_diagonal(fresh: Tensor) -> Tensor:
    fresh.diagonal(dim1=1, dim2=2).zero_()
    return fresh


class Sequence(torch.autograd.Function):
    """All z [S, H + R W] of packed steps of `sizes`, and the other states at the slots `last`.

    wx [S, 4H]: the input's share of the controller's pre-activations;  first: the states [E, ...] to begin with
    Forward is the loop over `controller` and `access`. Backward is written by hand, since autograd spends its time on
    bookkeeping for so many small steps: what no later slot changes is computed for a block of slots at once, and the
    gradient of each weight is a single product. Blocks are small enough for what they need to stay in the cache.
    """

    @staticmethod
    def forward(ctx, wx, U, W_xi, b_xi, R, W, sizes, last, *first):
        state = DNCState(*first)
        H, S = W_xi.shape[1], len(wx)
        sizes_of = [x.shape[1:] for x in (wx, b_xi[None], *first)]
        kept = [wx.new_empty(S, *size) for size in sizes_of]  # pre, xi and the states
        with torch.inference_mode():  # less bookkeeping for each small operation
            for steps, slots in _blocks(sizes):
                block = []
                for wx_t in wx[slots].split(sizes[steps]):
                    if len(wx_t) < len(state.s):
                        state = DNCState(*(x[: len(wx_t)] for x in state))
                    pre = torch.addmm(wx_t, state.z, U.t())
                    h, s = controller(pre, state.s)
                    xi = F.linear(h, W_xi, b_xi)
                    state = access(interface(xi, R, W), h, s, state)
                    block.append((pre, xi, *state))
                for out, parts in zip(kept, zip(*block, strict=True), strict=True):
                    torch.cat(parts, out=out[slots])
        ctx.save_for_backward(U, W_xi, *first, *kept)
        ctx.R, ctx.W, ctx.H, ctx.sizes = R, W, H, sizes
        return kept[2], *(x[last] for x in kept[3:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_z, *grad_last):
        U, W_xi, *states = ctx.saved_tensors
        R, W, H, sizes = ctx.R, ctx.W, ctx.H, ctx.sizes
        first, (pre, xi), after = states[:8], states[8:10], states[10:]

        d_wx, d_xi = torch.empty_like(pre), torch.empty_like(xi)
        last = [torch.zeros_like(first[0]), *grad_last, torch.zeros_like(first[2])]
        with torch.inference_mode():
            d = [x[:0] for x in last]
            for steps, slots in reversed(list(_blocks(sizes))):
                now = sizes[steps]
                entering = [x[slots.start - sizes[k - 1] :][: now[0]] for x in after] if (k := steps.start) else first
                ends = [x[slots] for x in after]
                before = DNCState(*(previous_states(x0, x, now) for x0, x in zip(entering, ends, strict=True)))
                ask, slope = interface(xi[slots], R, W), _interface_slope(xi[slots], R, W)
                found = _slots(before, DNCState(*ends), pre[slots], ask, slope) | {"grad_z": grad_z[slots]}
                parts = {name: x.split(now) for name, x in found.items()}
                outputs = zip(d_wx[slots].split(now), d_xi[slots].split(now), strict=True)
                for out, step in reversed(list(zip(outputs, zip(*parts.values(), strict=True), strict=True))):
                    d = _slot_backward(SimpleNamespace(**dict(zip(parts, step, strict=True))), d, last, U, W_xi, out)
        d = [x.clone() for x in d]
        d[2] = torch.addcmul(d[2], inverse_norm(first[2]), _across(unit(first[2]), d.pop())[0])
        z_before = previous_states(first[0], after[0], sizes)
        weights = [d_wx.t() @ z_before, d_xi.t() @ after[0][:, :H], d_xi.sum(0)]
        return d_wx, *weights, None, None, None, None, *d


def _blocks(sizes: list[int]) -> Iterator[tuple[slice, slice]]:
    """Packed steps of `sizes` in runs of about BLOCK slots: which steps, and which slots."""
    step = slot = slots = 0
    for k, size in enumerate(sizes, 1):
        slots += size
        if slots - slot >= BLOCK or k == len(sizes):
            yield slice(step, k), slice(slot, slots)
            step, slot = k, slots


def _slots(before: DNCState, after: DNCState, pre: Tensor, ask: Interface, xi_slope: Tensor) -> dict[str, Tensor]:
    """What `_access_backward` and the controller need of all slots; X0 is X before the slot, `a_by_b` is da/db."""
    i, f, g, o = pre.chunk(4, 1)
    i, f, g, o, tanh_s = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid(), after.s.tanh()
    g_a, g_w = ask.gates.split(1, 1)
    M_unit, M0_unit = unit(after.M), unit(before.M)
    c_w = content(ask.strong_k[:, :1], M0_unit).squeeze(1)
    c_r = content(ask.strong_k[:, 1:], M_unit)
    a, w = allocation(after.u), after.w_w[..., None]
    kept = 1 - ask.free * before.w_r
    R = kept.shape[1]
    kept_by_others = torch.stack([kept[:, [s for s in range(R) if s != r]].prod(1) for r in range(R)], 1)
    u = before.u + before.w_w - before.u * before.w_w
    return {
        "f": f,
        "h_by_s": o * (1 - tanh_s.square()),
        "h_by_o": tanh_s * o * (1 - o),
        "s_by_ifg": torch.stack([g * i * (1 - i), before.s * f * (1 - f), i * (1 - g.square())], 1),
        "xi_slope": xi_slope,
        "k": ask.k,
        "strong_k": ask.strong_k,
        "free": ask.free,
        "erase": ask.erase,
        "modes": ask.modes,
        "M": after.M,
        "M0": before.M,
        "M_unit": M_unit,
        "M0_unit": M0_unit,
        "M_scale": inverse_norm(after.M),
        "M_by_w": ask.write - before.M * ask.erase,
        "L": after.L,
        "L0": before.L,
        "L_by_L0": without_diagonal(1 - w - w.mT),
        "L_by_w": without_diagonal(before.p[:, None] - before.L),
        "L_by_p0": without_diagonal(w.repeat(1, 1, w.shape[1])),
        "p0": before.p,
        "p_by_p0": 1 - w.sum(1),
        "w_w": w,
        "w_w_by_gates": torch.stack([g_w * (a - c_w), torch.lerp(c_w, a, g_a)], 1),
        "w_w_by_c": g_w * (1 - g_a),
        "w_w_by_u": (g_w * g_a)[..., None] * _allocation_jacobian(after.u),
        "c_w": c_w,
        "c_r": c_r,
        "w_r": after.w_r,
        "w_r0": before.w_r,
        "ways": torch.stack([before.w_r @ after.L, c_r, before.w_r @ after.L.mT], 1),
        "u_by_freed": -u[:, None] * kept_by_others,
        "u_by_u0": kept.prod(1) * (1 - before.w_w),
        "u_by_w_w0": kept.prod(1) * (1 - before.u),
    }


def _slot_backward(
    q: SimpleNamespace, d: list[Tensor], last: list[Tensor], U: Tensor, W_xi: Tensor, out: tuple[Tensor, Tensor]
) -> list[Tensor]:
    """Through one slot: `d` is dL/d(state, unit(M)) of the running rows, given after it, returned before it.

    last: the same after the rows' last slots, with which they join;  out: where dL/d(pre, xi) goes
    """
    running, (d_pre, d_xi) = len(q.grad_z), out
    if running > len(d[0]):
        d = [torch.cat([x, x_last[len(x) : running]]) for x, x_last in zip(d, last, strict=True)]
    R, W = q.k.shape[1] - 1, q.k.shape[2]
    d_h, d_r = (d[0] + q.grad_z).split_with_sizes([W_xi.shape[1], R * W], 1)
    d_ask, memory = _access_backward(q, d_r.view(-1, R, W), d[2:])
    torch.mul(d_ask, q.xi_slope, out=d_xi)
    d_h = torch.addmm(d_h, d_xi, W_xi)
    d_s = torch.addcmul(d[1], d_h, q.h_by_s)
    torch.cat([(d_s.unsqueeze(1) * q.s_by_ifg).flatten(1), d_h * q.h_by_o], 1, out=d_pre)
    return [d_pre @ U, d_s * q.f, *memory]


def _access_backward(q: SimpleNamespace, d_r: Tensor, d: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Through one slot: `d` is dL/d(M, L, p, u, w_w, w_r, unit(M)), given after it, returned before it.

    q: the slot's share of `_slots`;  d_r [n, R, W]: of the read vectors.  Also returns dL/d xi over
    `xi_slope`.
    """
    d_M, d_L, d_p, d_u, d_w_w, d_w_r, d_M_unit = d
    # r = w_r M,  w_r = backward w_r0 L + by_content c_r + forward w_r0 L^T
    d_w_r = torch.baddbmm(d_w_r, d_r, q.M.mT)
    d_M = torch.baddbmm(d_M, q.w_r.mT, d_r)
    d_modes = _softmax_backward(q.modes, (q.ways * d_w_r.unsqueeze(1)).sum(3, keepdim=True), 1)
    d_backward, d_c, d_forward = (q.modes * d_w_r.unsqueeze(1)).unbind(1)
    d_w_r0 = torch.baddbmm(torch.bmm(d_backward, q.L.mT), d_forward, q.L)
    d_L = torch.baddbmm(torch.baddbmm(d_L, q.w_r0.mT, d_backward), d_forward.mT, q.w_r0)
    d_score = _softmax_backward(q.c_r, d_c, 2)
    d_k_r = torch.bmm(d_score, q.M_unit)
    d_M_unit = torch.baddbmm(d_M_unit, d_score.mT, q.strong_k[:, 1:])
    d_M = torch.addcmul(d_M, q.M_scale, _across(q.M_unit, d_M_unit)[0])
    # p = (1 - sum w) p0 + w,  L_ij = (1 - w_i - w_j) L0_ij + w_i p0_j,  M = M0 + w (write - M0 erase)
    d_w_w = d_w_w + d_p - (d_p * q.p0).sum(1, keepdim=True)
    d_w_w = d_w_w + (d_L * q.L_by_w).sum(2) - (d_L * q.L0).sum(1) + (d_M * q.M_by_w).sum(2)
    d_p0 = d_p * q.p_by_p0 + (d_L * q.L_by_p0).sum(1)
    written = q.w_w * d_M
    d_write, d_erase = written.sum(1), -(written * q.M0).sum(1)
    d_M0 = torch.addcmul(d_M, written, q.erase, value=-1)
    # w_w = g_w (g_a allocation(u) + (1 - g_a) c_w)
    d_gates = (q.w_w_by_gates * d_w_w.unsqueeze(1)).sum(2)
    d_score = _softmax_backward(q.c_w, q.w_w_by_c * d_w_w, 1)
    d_k_w = torch.bmm(d_score.unsqueeze(1), q.M0_unit)
    d_M0_unit = d_score.unsqueeze(2) * q.strong_k[:, :1]
    # u = (u0 + w_w0 - u0 w_w0) prod_r (1 - free w_r0)
    d_u = torch.baddbmm(d_u.unsqueeze(1), d_w_w.unsqueeze(1), q.w_w_by_u)
    d_freed = d_u * q.u_by_freed
    d_free = (d_freed * q.w_r0).sum(2)
    d_w_r0 = torch.addcmul(d_w_r0, d_freed, q.free)
    d_u = d_u.squeeze(1)
    d_k, d_beta = _across(q.k, torch.cat([d_k_w, d_k_r], 1))
    d_xi = [d_k.flatten(1), d_beta.squeeze(2), d_free, d_gates, d_erase, d_write, d_modes.flatten(1)]
    before = [d_M0, d_L * q.L_by_L0, d_p0, d_u * q.u_by_u0, d_u * q.u_by_w_w0, d_w_r0, d_M0_unit]
    return torch.cat(d_xi, 1), before


def _softmax_backward(y: Tensor, d_y: Tensor, dim: int) -> Tensor:
    product = y * d_y
    return torch.addcmul(product, y, product.sum(dim, keepdim=True), value=-1)


def _across(v_unit: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """`d` without its part along v_unit, and the length of that part: |v| dL/dv for d = dL/d unit(v)."""
    along = (v_unit * d).sum(-1, keepdim=True)
    return torch.addcmul(d, v_unit, along, value=-1), along


def _interface_slope(xi: Tensor, R: int, W: int) -> Tensor:
    """By what dL/d(key, strength, gates, ...) is multiplied to give dL/d xi, modes and directions apart."""
    k, beta, squashed, write, modes = xi.split(interface_sizes(R, W), 1)
    scale = (1 + F.softplus(beta))[..., None] * inverse_norm(k.view(-1, 1 + R, W))
    y = torch.sigmoid(squashed)
    ones = torch.ones_like(torch.cat([write, modes], 1))
    return torch.cat([scale.expand(-1, -1, W).flatten(1), torch.sigmoid(beta), y * (1 - y), ones], 1)


def _allocation_jacobian(u: Tensor) -> Tensor:
    """da_i/du_j [n, i, j], from products alone: quotients of them would fail where u is zero."""
    ascending, order = by_usage(u)
    N = u.shape[1]
    at_i = ascending[:, None].expand(-1, N, -1)  # [n, j, i], cells by rank
    after_j = torch.ones(N, N, dtype=torch.bool, device=u.device).triu(1)
    between = F.pad(torch.where(after_j, at_i, 1)[..., :-1], (1, 0), value=1.0).cumprod(2)  # both ends left out
    before = F.pad(ascending[:, :-1], (1, 0), value=1.0).cumprod(1)
    by_rank = before[..., None] * ((between * (1 - at_i)).triu(1) - torch.eye(N, dtype=u.dtype, device=u.device))
    rank = order.argsort(1)[..., None].expand(-1, -1, N)
    return by_rank.gather(1, rank).gather(2, rank.mT).mT
