"""M_t = M_{t-1} * C_t + v_t key_t^T, read as M_t q_t: the scan of Stable Hadamard Memory, without storing [T, H, H].

The native and triton engines keep M every few slots and recompute the rest on the way back; elsewhere chunks of slots
are scanned one after the other under checkpointing. On the way back, triton holds the matrices of 16 slots, and sums
the gradients of c, key and query from parts, one for every 1024 numbers of M, each [T, H].
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlmem.scan.linear import linear_scan
from rlmem.scan.native import Engine, check_flags, chosen_engine
from rlmem.scan.triton_matrix import matrix_scan
from rlmem.scan.walk import Walk

CELLS = 1 << 19
"""Numbers [B, K, H, H] that a chunk of K slots may hold at a time."""


def tanh_calibration(theta: Tensor, c: Tensor) -> Tensor:
    """C_t = 1 + tanh(theta_t c_t^T) [..., H, H] from theta and c [..., H]."""
    return 1 + torch.tanh(theta[..., :, None] * c[..., None, :])


def hadamard_scan(
    theta: Tensor,
    c: Tensor,
    v: Tensor,
    key: Tensor,
    query: Tensor,
    M0: Tensor,
    start: Tensor,
    limit: float | None = None,
    engine: Engine = "auto",
    calibration: Callable[[Tensor, Tensor], Tensor] = tanh_calibration,
) -> tuple[Tensor, Tensor]:
    """The reads y_t = M_t query_t [B, T, H] and the final M [B, H, H] (value row, key column) of
    M_t = M_{t-1} * C_t + v_t key_t^T.

    theta, c, v, key, query: [B, T, H]
    M0: [B, H, H]
    start: [B, T] bool, M is zero before such a slot is read
    limit: M is clamped to [-limit, limit] after every slot; no gradient passes a cell that is clamped
    calibration: gives C [B, K, H, H] of K slots from their theta and c; only the default needs these two to have H
        columns
    """
    B, T, H = v.shape
    check_flags(start, B, T)
    chosen = chosen_engine(engine, v.device)
    supported = v.dtype in (torch.float32, torch.float64) and v.numel() > 0
    if chosen in ("native", "triton") and calibration is tanh_calibration and supported:
        theta, c, key, query = (x.to(v.dtype).expand(B, T, H) for x in (theta, c, key, query))
        M0, bound = M0.to(v.dtype).expand(B, H, H), float(limit or 0)
        if chosen == "triton":
            return matrix_scan("hadamard", theta, c, v, key, query, M0, start, bound)
        every = max(4, min(64, (1 << 15) // (H * H)))  # the recomputed slots fit the second-level cache
        return Walk.apply("shm", (H,), every, (bound,), 2, None, theta, c, v, key, query, M0, start)
    K = 1 if chosen == "loop" else max(1, CELLS // max(B * H * H, 1))
    scanned = [x.split(K, 1) for x in (theta, c, v, key, query, start)]
    M, outputs = M0, []
    for chunk in zip(*scanned, strict=True):
        y, M = checkpoint(_chunk, *chunk, M, limit, chosen, calibration, use_reentrant=False, preserve_rng_state=False)
        outputs.append(y)
    return torch.cat(outputs, 1), M


def _chunk(theta, c, v, key, query, start, M, limit, engine, calibration) -> tuple[Tensor, Tensor]:
    C = calibration(theta, c)
    U = v[..., :, None] * key[..., None, :]
    if limit is None:
        Ms = linear_scan(C, U, M, start, engine)
    else:  # a limited recurrence is not linear
        states = []
        for C_t, U_t, start_t in zip(C.unbind(1), U.unbind(1), start.unbind(1), strict=True):
            M = (torch.where(start_t[:, None, None], 0, M) * C_t + U_t).clamp(-limit, limit)
            states.append(M)
        Ms = torch.stack(states, 1)
    return (Ms @ query[..., None])[..., 0], Ms[:, -1].clone()  # not a view, which would keep Ms
