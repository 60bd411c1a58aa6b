"""The memory under test, its inputs, and losses of its outputs."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rlmem.core.types import State
from rlmem.memory.base import Memory

ROWS = 3


class Probe:
    """The memory under test, and inputs for it. Every property works on copies of its own."""

    def __init__(self, memory: Memory, slots: int, long: Sequence[int], seed: int):
        self.pristine = memory
        self.T, self.long, self.seed = slots, long, seed
        self.device = parameter_of(memory).device

    def memory(self, dtype: torch.dtype = torch.float64) -> Memory:
        """A fresh copy of the memory, in the given type."""
        cast = lambda t: t.to(dtype.to_complex()) if t.is_complex() else t.to(dtype) if t.is_floating_point() else t  # noqa: E731
        return copy.deepcopy(self.pristine)._apply(cast)

    def case(self, dtype: torch.dtype = torch.float64) -> tuple[Memory, Tensor, State, Tensor]:
        """A fresh copy of the memory, inputs [B, T, D], a used state, and start flags [B, T]."""
        memory = self.memory(dtype)
        return memory, self.inputs(dtype=dtype), self.used_state(memory), self.starts()

    def changed(self, memory: Memory) -> Memory:
        """`memory` itself, after every parameter has moved."""
        with torch.no_grad():
            for k, parameter in enumerate(memory.parameters()):
                parameter.add_(self.normal(*parameter.shape, dtype=parameter.dtype, stream=100 + k), alpha=0.05)
        return memory

    def normal(self, *shape: int, dtype: torch.dtype = torch.float64, stream: int = 0) -> Tensor:
        """Standard normal numbers, the same for the same shape and stream."""
        rng = torch.Generator().manual_seed(self.seed * 1000 + stream)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, dtype=wide, generator=rng).to(self.device, dtype)

    def inputs(self, rows: int = ROWS, slots: int | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
        return self.normal(rows, slots or self.T, self.pristine.input_size, dtype=dtype)

    def starts(self, rows: int = ROWS, slots: int | None = None, about: int = 6) -> Tensor:
        """Random start flags, about `about` per row; row 0 begins with one, row 1 does not."""
        T = slots or self.T
        start = torch.rand(rows, T, generator=torch.Generator().manual_seed(self.seed)) < about / T
        start[0, 0], start[0, T // 2] = True, True
        if rows > 1:
            start[1, 0], start[1, T // 3] = False, True
        return start.to(self.device)

    def flags(self, rows: int, slots: int, at: Sequence[int] = ()) -> Tensor:
        """Start flags in all rows at the slots `at`."""
        start = torch.zeros(rows, slots, dtype=torch.bool, device=self.device)
        start[:, list(at)] = True
        return start

    def used_state(self, memory: Memory, rows: int = ROWS) -> State:
        """A state that has read a few slots."""
        x = self.normal(rows, 7, memory.input_size, dtype=parameter_of(memory).dtype, stream=1)
        with torch.no_grad():
            return forward(memory, x, memory.initial_state(rows), self.flags(rows, 7))[1]


def forward(memory: Memory, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
    """`memory(...)`, whose output must be [B, T, H].

    Seeds torch's global generator, so that a memory that draws from it fails `no_global_randomness` alone.
    """
    torch.manual_seed(0)
    y, final = memory(x, state, start)
    _expect(y, (*start.shape, memory.output_size), "forward")
    return y, final


def stepped(memory: Memory, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
    """The same as `forward`, slot by slot and without gradients, as acting does it."""
    outputs = []
    torch.manual_seed(0)
    with torch.no_grad():
        for x_t, start_t in zip(x.unbind(1), start.unbind(1), strict=True):
            y, state = memory.step(x_t, state, start_t)
            _expect(y, (len(x), memory.output_size), "step")
            outputs.append(y)
    return torch.stack(outputs, 1), state


def _expect(y: Tensor, shape: tuple[int, ...], method: str) -> None:
    if y.shape != shape:
        raise ValueError(f"{method} gave an output {list(y.shape)}, expected {list(shape)}")


def parameter_of(memory: Memory) -> Tensor:
    """A tensor of the type and on the device of the parameters."""
    return next(memory.parameters(), torch.zeros(())).real


def gradients(loss: Tensor, of: Sequence[Tensor], keep: bool = False) -> list[Tensor]:
    """d loss / d each; zeros where there is none. keep: keep the graph for another loss."""
    learned = [x for x in of if x.requires_grad] if loss.requires_grad else []
    grads = torch.autograd.grad(loss, learned, retain_graph=keep, allow_unused=True) if learned else ()
    by_input = {id(x): g for x, g in zip(learned, grads, strict=True) if g is not None}
    return [by_input.get(id(x), torch.zeros_like(x)) for x in of]


def weighted(y: Tensor, probe: Probe, final: State = ()) -> Tensor:
    """A loss in which every output has a weight of its own, and every number of the final state counts."""
    loss = (y * probe.normal(*y.shape, dtype=y.dtype, stream=2)).sum()
    for leaf in tree_leaves(final):
        if leaf.requires_grad:
            loss = loss + (leaf * leaf.conj()).real.sum()
    return loss
