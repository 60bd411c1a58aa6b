"""Returns and advantages: the scan of `rlmem.scan`, run backwards in time."""

import torch
from torch import Tensor

from rlmem.scan import linear_scan


def gae(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 11-16) on slots.

        delta_t = r_t + gamma (1 - terminated_t) v_{t+1} - v_t
        A_t = delta_t + gamma lambda (1 - terminated_t) A_{t+1},   A = 0 on slots without an action

    reward, value [B, T] float; terminated, mask [B, T] bool. Slot t+1 of an acted slot is its successor (the slot
    rule), so a truncated episode and a row's end bootstrap from the value found there. The last slot must not be
    acted in. Returns A [B, T].
    """
    discount = gamma * (~terminated).to(reward.dtype)
    v_t = torch.cat([value[:, 1:], value[:, :1]], 1)
    delta = torch.where(mask, reward + discount * v_t - value, 0)
    decay = torch.where(mask, gae_lambda * discount, 0)
    start = torch.zeros_like(mask)
    return linear_scan(decay.flip(1), delta.flip(1), torch.zeros_like(delta[:, 0]), start).flip(1)
