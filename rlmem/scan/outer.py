"""Scans whose state is a matrix of outer products, read by y_t = S_t^T q_t, with resets. S is never held per slot.

`loop` is the definition. The chunkwise form (every other engine) writes a chunk of up to 64 slots as matrix products:
slots of one chunk see each other through scores Q K^T, masked to the same episode and decayed, and earlier chunks
through the state carried in, which only slots before the chunk's first start read. No exponent is above zero. The
triton engine has a kernel that goes from slot to slot instead.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from rlmem.core.types import where_start
from rlmem.scan.linear import linear_scan
from rlmem.scan.native import Engine, check_flags, chosen_engine
from rlmem.scan.triton_matrix import TYPES, matrix_scan
from rlmem.scan.walk import Walk

CHUNK = 64
"""The most slots of a chunk. Scores take T * CHUNK numbers per row, and carried states T / CHUNK matrices."""
WALKED = 1 << 16
"""Numbers of S that the slots of a piece may hold while they are walked again: they fit the second-level cache."""


def outer_scan(
    q: Tensor, k: Tensor, v: Tensor, S0: Tensor, start: Tensor, log_decay: Tensor | None = None, engine: Engine = "auto"
) -> tuple[Tensor, Tensor]:
    """y_t = S_t^T q_t [B, T, v] and the final S [B, k, v] of S_t = f_t (0 if start_t else S_{t-1}) + k_t v_t^T.

    q, k: [B, T, k]
    v: [B, T, v]
    S0: [B, k, v]
    start: [B, T] bool
    log_decay: log f_t <= 0, [B, T]; by default f_t = 1

    A start selects zero, so an inf or NaN before it does not reach outputs after it.
    Gradients flow to all but start; none crosses a start.
    """
    return _scan(q, k, v, S0, start, engine, log_decay, beta=None)


def normalised_scan(
    q: Tensor, k: Tensor, v: Tensor, S0: Tensor, z0: Tensor, start: Tensor, log_decay: Tensor | None, engine: Engine
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """S_t^T q_t [B, T, v], z_t . q_t [B, T, 1] and the final S, z of `outer_scan` with z_t = f_t z_{t-1} + k_t [B, k].

    z is carried as one more column of S.
    """
    v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    y, S = outer_scan(q, k, v, torch.cat([S0, z0[..., None]], -1), start, log_decay, engine)
    return y[..., :-1], y[..., -1:], S[..., :-1], S[..., -1]


def delta_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    S0: Tensor,
    start: Tensor,
    log_decay: Tensor | None = None,
    engine: Engine = "auto",
) -> tuple[Tensor, Tensor]:
    """y_t = S_t^T q_t and the final S of the delta rule S_t = S' + beta_t k_t (v_t - S'^T k_t)^T, S' = f_t S_{t-1}.

    beta: [B, T]; the rest as in `outer_scan`. The rule is stable for beta |k|^2 from 0 to 2. Where slots may multiply
        S by far more, chunks give NaN up to the next start if S may overflow, by a bound that ignores directions;
        acting, slot by slot, and learning then differ.
    """
    return _scan(q, k, v, S0, start, engine, log_decay, beta)


def _scan(
    q: Tensor, k: Tensor, v: Tensor, S: Tensor, start: Tensor, engine: Engine, decay: Tensor | None, beta: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`outer_scan`, or `delta_scan` if there is a beta: by the loop, which defines both, in chunks, or on Triton; with
    a decay, the delta rule has a native kernel as well."""
    (B, T, V), K = v.shape, k.shape[-1]
    check_flags(start, B, T)
    supported = q.dtype in TYPES and {x.dtype for x in (k, v, S)} == {q.dtype} and v.numel() > 0
    chosen = chosen_engine(engine, q.device) if T > 1 and supported else "loop"
    if chosen == "native" and beta is not None and decay is not None:
        q, k, S = q.expand(B, T, K), k.expand(B, T, K), S.expand(B, K, V)
        beta, f = (x.to(q.dtype).expand(B, T) for x in (beta, decay.exp()))
        every = max(4, min(64, WALKED // (K * min(V, 64))))
        return Walk.apply("delta", (K, V), every, (), 2, None, f, beta, v, k, q, S, start)
    if chosen == "triton":
        q, k, S = q.expand(B, T, K), k.expand(B, T, K), S.expand(B, K, V)
        f = q.new_ones(B, T) if decay is None else decay.exp().to(q.dtype).expand(B, T)
        if beta is None:
            y, S = matrix_scan("outer", f, None, v, k, q, S.mT, start)
        else:
            y, S = matrix_scan("delta", beta.to(q.dtype).expand(B, T), f, v, k, q, S.mT, start)
        return y, S.mT
    S = where_start(start[:, 0], torch.zeros_like(S), S)
    if engine == "loop" or start.shape[1] == 1:
        return _loop(q, k, v, S, start, decay, beta)
    return _in_chunks(q, k, v, S, start, decay, beta, engine)


def _loop(
    q: Tensor, k: Tensor, v: Tensor, S: Tensor, start: Tensor, decay: Tensor | None, beta: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The definition of `outer_scan`, and of `delta_scan` if there is a beta."""
    zero, reads = torch.zeros_like(S), []
    f = q.new_ones(start.shape) if decay is None else decay.exp()
    for q_t, k_t, v_t, start_t, f_t, beta_t in _slots(q, k, v, start, f, f if beta is None else beta):
        S = f_t[:, None, None] * where_start(start_t, zero, S)
        if beta is not None:
            v_t = beta_t[:, None] * (v_t - _read(S, k_t))
        S = S + k_t[:, :, None] * v_t[:, None]
        reads.append(_read(S, q_t))
    return torch.stack(reads, 1), S


def _in_chunks(
    q: Tensor, k: Tensor, v: Tensor, S: Tensor, start: Tensor, decay: Tensor | None, beta: Tensor | None, engine: Engine
) -> tuple[Tensor, Tensor]:
    """`_loop` by products of matrices, which zeros mask only where all numbers are finite.

    What is not finite is therefore left out, and NaN is put where it would have reached: into the rest of its episode.
    Flags on the device decide, for which nothing waits. Also left out is what may overflow within a chunk, by a bound
    that ignores directions and the size of v and S: values near the largest number may still overflow into NaN.
    """
    spoilt = ~(_finite(k) & _finite(v))
    if decay is not None:
        spoilt = spoilt | ~(decay < torch.inf)
        decay = decay.masked_fill(spoilt, 0)
    if beta is not None:
        spoilt = spoilt | ~torch.isfinite(beta)
        beta = beta.masked_fill(spoilt, 0)
        spoilt = spoilt | _diverging(k, beta, start, spoilt)
    read, whole = _finite(q), _finite(S.flatten(1))
    spoilt = torch.cat([spoilt[:, :1] | ~whole[:, None], spoilt[:, 1:]], 1)
    q, S = q.masked_fill(~read[..., None], 0), S.masked_fill(~whole[:, None, None], 0)
    k, v = (x.masked_fill(spoilt[..., None], 0) for x in (k, v))
    if beta is None:
        y, S = _outer_chunks(q, k, v, S, start, decay, engine)
    else:
        y, S = _delta_chunks(q, k, v, beta, S, start, decay)
    lost = _last(spoilt) >= _last(start).clamp(min=0)
    return y.masked_fill((lost | ~read)[..., None], torch.nan), S.masked_fill(lost[:, -1, None, None], torch.nan)


def _finite(x: Tensor) -> Tensor:
    """Whether all numbers of the last dimension are finite: zero times anything else is no zero."""
    return (x.detach() * 0).sum(-1) == 0


def _last(flags: Tensor) -> Tensor:
    """The last slot up to each slot [B, T] whose flag is true, -1 if there is none."""
    slots = torch.arange(flags.shape[1], device=flags.device)
    return torch.where(flags, slots, -1).cummax(1).values


@torch.no_grad()
def _diverging(k: Tensor, beta: Tensor, start: Tensor, spoilt: Tensor) -> Tensor:
    """The slots [B, T] of the delta rule by which S may have grown, within a chunk and an episode, beyond all bounds.

    A slot multiplies the norm of S by at most |1 - beta |k|^2|, or 1: never more than 1 for keys of unit length.
    """
    bound = 0.8 * math.log(torch.finfo(k.dtype).max)
    growth = (1 - beta * k.square().sum(-1)).abs().log().clamp(0, 2 * bound)
    growth = _chunks(growth.masked_fill(spoilt, 0))
    total = growth.cumsum(2)
    before = torch.where(_chunks(start), total - growth, 0).cummax(2).values
    return (total - before > bound).flatten(1)[:, : start.shape[1]]


def _outer_chunks(
    q: Tensor, k: Tensor, v: Tensor, S0: Tensor, start: Tensor, log_decay: Tensor | None, engine: Engine
) -> tuple[Tensor, Tensor]:
    """y and the final S, from what is finite."""
    T = start.shape[1]
    q, k, v, start = (_chunks(x) for x in (q, k, v, start))
    same, alive, carried = _episodes(start)
    decays = _Decays(log_decay)
    scores = decays.between((q @ k.mT).masked_fill(~same.tril(), 0))  # [B, C, K, K]
    written = decays.until_end(k).masked_fill(~carried, 0).mT @ v
    S = linear_scan(decays.total(S0), written, S0, start.any(2), engine)
    y = scores @ v + _carried(decays.since_beginning(q), torch.cat([S0[:, None], S[:, :-1]], 1), alive)
    return y.flatten(1, 2)[:, :T], S[:, -1]


def _delta_chunks(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor, start: Tensor, log_decay: Tensor | None
) -> tuple[Tensor, Tensor]:
    """y and the final S, from what is finite.

    A chunk writes K^T U with rows u_t = beta_t (v_t - f_t S_{t-1}^T k_t), hence (I + A) U = beta (V - F K S_in) with
    A_ij = beta_i F_ij k_i . k_j for j < i, where F_ij is the decay from slot j to slot i, and F that from the chunk's
    beginning (Yang et al. 2024, arXiv:2412.06464, section 3.3). Solved once for beta V and beta F K, in all chunks
    together.
    """
    T, n = start.shape[1], v.shape[-1]
    q, k, v, beta, start = (_chunks(x) for x in (q, k, v, beta[..., None], start))
    same, alive, carried = _episodes(start)
    decays = _Decays(log_decay)
    A = decays.between((beta * (k @ k.mT)).masked_fill(~same.tril(-1), 0))
    targets = beta * torch.cat([v, decays.since_beginning(k).masked_fill(~alive, 0)], -1)
    U, W = torch.linalg.solve_triangular(A, targets, upper=False, unitriangular=True).split([n, k.shape[-1]], -1)
    states, writes, k_out = [], [], decays.until_end(k).masked_fill(~carried, 0).mT
    for u, w, out, cut, f in _slots(U, W, k_out, start.any(2), decays.total(S).expand(*start.shape[:2], 1, 1)):
        states.append(S)
        u = u - w @ S.masked_fill(~_finite(S.flatten(1))[:, None, None], 0)
        S = f * where_start(cut, torch.zeros_like(S), S) + out @ u
        writes.append(u)
    scores = decays.between((q @ k.mT).masked_fill(~same.tril(), 0))
    y = scores @ torch.stack(writes, 1) + _carried(decays.since_beginning(q), torch.stack(states, 1), alive)
    return y.flatten(1, 2)[:, :T], S


class _Decays:
    """Multiplies by the decays within chunks of K slots, given their logarithms [B, T]; None: nothing decays."""

    def __init__(self, log_decay: Tensor | None):
        self.log_f = None if log_decay is None else _chunks(log_decay)
        if self.log_f is not None:
            self.since = self.log_f.cumsum(2)
            # [.., i, j]: the sum over j < l <= i itself, since a difference of two sums from the beginning cancels
            pairs = self.log_f[..., None].expand(*self.log_f.shape, self.log_f.shape[-1])
            self.pairs = pairs.tril(-1).cumsum(2).exp()

    def between(self, scores: Tensor) -> Tensor:
        """Scores [B, C, K, K] of slots i (rows) and j times the decay from j to i."""
        return scores if self.log_f is None else scores * self.pairs

    def since_beginning(self, x: Tensor) -> Tensor:
        """x [B, C, K, ...] times the decay from the chunk's beginning to each slot."""
        return x if self.log_f is None else x * self.since.exp()[..., None]

    def until_end(self, x: Tensor) -> Tensor:
        """x [B, C, K, ...] times the decay from each slot to the chunk's end."""
        return x if self.log_f is None else x * self.pairs[:, :, -1, :, None]

    def total(self, like: Tensor) -> Tensor:
        """The decay of whole chunks [B, C, 1, 1], or one that broadcasts."""
        return like.new_ones(1, 1) if self.log_f is None else self.since[..., -1].exp()[..., None, None]


def _carried(q: Tensor, before: Tensor, alive: Tensor) -> Tensor:
    """What slots [B, C, K, v] read of the state [B, C, k, v] that is carried into their chunk: NaN if it overflowed."""
    overflowed = ~_finite(before.flatten(2))[..., None, None]
    y = (q @ before.masked_fill(overflowed, 0)).masked_fill(~alive, 0)
    return y.masked_fill(alive & overflowed, torch.nan)


def _chunks(x: Tensor) -> Tensor:
    """[B, T, ...] as [B, C, K, ...] with K <= CHUNK, padded with zeros on the right."""
    B, T = x.shape[:2]
    C = -(-T // CHUNK)
    K = -(-T // C)
    if C * K > T:
        x = torch.cat([x, x.new_zeros(B, C * K - T, *x.shape[2:])], 1)
    return x.unflatten(1, (C, K))


def _episodes(start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Masks: pairs of slots in one episode [B, C, K, K]; slots [B, C, K, 1] that read the state carried into the chunk;
    slots [B, C, K, 1] that write to the one carried out. start: [B, C, K]."""
    episode = start.cumsum(2)[..., None]
    return episode == episode.mT, episode == 0, episode == episode[:, :, -1:]


def _slots(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(x.unbind(1) for x in tensors), strict=True)


def _read(S: Tensor, q: Tensor) -> Tensor:
    return (q[:, None] @ S)[:, 0]
