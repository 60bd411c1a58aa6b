"""The base of memories over the last slots of an episode: caches, resets and masks, written once."""

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlmem.memory.base import Memory
from rlmem.memory.positions import ages, counting
from rlmem.scan import attention


class Window(Memory):
    """Base of memories that see the last slots of the present episode, by convolution or by attention.

    The author sets `caches` (what each layer keeps from slot to slot) and writes `read` with `past.frames` and
    `past.attend`; caching, resets and masks are done here. Weights of `self.layers`, if there are layers, have the
    symbols L0.*, L1.*, ... State: age [B], slots read since the episode's start, and every cache [B, slots, width],
    oldest first, zeros where the episode had not begun.
    """

    caches: dict[str, tuple[int, int]]
    """Name -> slots, width."""
    layers: nn.ModuleList

    @abstractmethod
    def read(self, x: Tensor, past: "Past") -> Tensor:
        """y [B, T, H] from x [B, T, D] and from the slots that each slot may see."""

    def initial_state(self, batch_size: int) -> dict[str, Tensor]:
        like = self._like_parameters()
        caches = {name: like.new_zeros(batch_size, *shape) for name, shape in self.caches.items()}
        return {"age": like.new_zeros(batch_size, dtype=counting(like.dtype))} | caches

    def forward(self, x: Tensor, state: dict[str, Tensor], start: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        past = Past(state, start)
        return self.read(x, past), past.state


class Past:
    """What every slot of one call may see: slots of its own episode, cached or present.

    age [B, T]: slots since the episode's start; what lies `lag` slots back is visible if lag <= age
    state: the state after the last slot, complete once every cache has been used
    """

    def __init__(self, state: Mapping[str, Tensor], start: Tensor):
        fresh = start[:, :1, None]
        self.before = {name: torch.where(fresh, 0, cache) for name, cache in state.items() if name != "age"}
        self.age = ages(state["age"], start)
        self.state = {**state, "age": self.age[:, -1] + 1}

    def frames(self, name: str, x: Tensor, taps: int, dilation: int = 1) -> Tensor:
        """The slots that lie (taps - 1) * dilation, ..., dilation and 0 back: [B, T, taps, D], zero where invisible."""
        T = x.shape[1]
        stream = self.stream(name, x)
        lags = [(taps - 1 - j) * dilation for j in range(taps)]
        before = [stream[:, lags[0] - lag : lags[0] - lag + T] for lag in lags]
        visible = [(self.age >= lag)[..., None] for lag in lags]
        return torch.stack([torch.where(seen, z, 0) for seen, z in zip(visible, before, strict=True)], 2)

    def attend(self, name: str, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        """Softmax attention of each slot to itself and to the visible slots of the cache's length before it.

        q, k, v and the result are [B, T, H]; keys and values are cached as `name`.k and `name`.v.
        """
        k, v = self.stream(f"{name}.k", k), self.stream(f"{name}.v", v)
        return attention.attend(q, k, v, self.age, heads)

    def stream(self, name: str, x: Tensor) -> Tensor:
        """The cached slots and the present ones, [B, S + T, D]; the last S of them are kept."""
        T, S = x.shape[1], self.before[name].shape[1]
        stream = torch.cat([self.before[name], x], 1)
        cache = stream[:, T:]
        if T > 1:
            lag = torch.arange(S, 0, -1, device=x.device)  # seen from the next slot
            cache = torch.where((lag <= self.state["age"][:, None])[..., None], cache, 0)
        self.state[name] = cache
        return stream
