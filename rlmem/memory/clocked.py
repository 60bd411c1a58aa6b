"""A clock for any memory."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.core.types import PositiveFloat, PositiveInt, State
from rlmem.memory.base import Memory
from rlmem.memory.positions import ages, counting, sinusoid
from rlmem.memory.stack import build_layer

Mix = Literal["sigmoid", "clamped"]


class Clocked(Memory):
    """Any memory with a clock: the age of each slot is encoded and mixed into the memory's input.

        y_t = layer((1 - s) x_t + s p_age),   s = sigmoid(w)     s = w within [0, 1], mix=clamped

    p is the sine encoding of the slots since the episode's start, as wide as x; s is 1/2 at first. POPGym's
    baselines PosMLP, Stack, TCN, FART and FWP (Morad et al. 2023, arXiv:2303.01859) have this clock, and so has SHM in
    the POPGym code of Le et al. 2024 (arXiv:2410.10132); the memories that they are compared with have none. There, a
    layer of the encoder follows the mixing. The weights of `layer` have the symbols layer.*. State: {"age": [B],
    slots read since the episode's start, "layer": that of the layer}.

    layer: builds the memory from its input width, as in `Stack`
    hidden_size: H, passed to the layer unless set there
    base: sets the longest wavelength, 2 pi base slots (published: 1024, the longest episode)
    mix: "clamped" is published: a step of Adam moves s four times as fast; s can reach 0, which switches the clock
        off, and w has no gradient outside [0, 1]
    """

    def __init__(
        self,
        input_size: int,
        layer: Callable[..., Memory],
        hidden_size: PositiveInt = 256,
        base: PositiveFloat = 1024.0,
        mix: Mix = "sigmoid",
    ):
        super().__init__()
        self.layer = build_layer(layer, input_size, hidden_size)
        self.input_size, self.output_size = input_size, self.layer.output_size
        self.breaks = self.layer.breaks
        self.base, self.mix = base, mix
        self.w = nn.Parameter(torch.tensor(0.5 if mix == "clamped" else 0.0))

    def initial_state(self, batch_size: int) -> State:
        age = self.w.new_zeros(batch_size, dtype=counting(self.w.dtype))
        return {"age": age, "layer": self.layer.initial_state(batch_size)}

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        age = ages(state["age"], start)
        y, after = self.layer(self._timed(x, age), state["layer"], start)
        return y, {"age": age[:, -1] + 1, "layer": after}

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        age = torch.where(start, 0, state["age"])
        y, after = self.layer.step(self._timed(x, age), state["layer"], start)
        return y, {"age": age + 1, "layer": after}

    def _timed(self, x: Tensor, age: Tensor) -> Tensor:
        s = self.w.clamp(0, 1) if self.mix == "clamped" else torch.sigmoid(self.w)
        return torch.lerp(x, sinusoid(age, self.input_size, self.base).to(x.dtype), s)
