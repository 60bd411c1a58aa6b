"""The data that moves through rlmem: batches of B rows and T slots, memory states, and annotated scalars; and the
processes that it moves between."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn
from torch.utils._pytree import register_pytree_node, tree_map, tree_map_only

from rlmem.core.errors import communicating

Obs = Any
"""Observations: a tensor; or a dictionary of tensors, the leaves by their paths, where they have several parts."""

State = Any
"""A pytree of tensors with leading dimension B; a memory without state uses the empty tuple."""


@dataclass
class Batch:
    """Rows of slots, [B, T, ...]. A row is a contiguous stream that may hold many starts.

    The slot rule. Slot t holds obs[t] and, if the agent acted there, action[t], reward[t] and terminated[t] *of that
    action*. An episode of n actions takes n+1 slots: the last holds only the final observation. start[t] is true on
    an episode's first slot; the memory is reset before it reads slot t. There is no next observation: the successor
    of an acted slot is slot t+1. Three flags, three jobs: `start` for the memory, `terminated` for the discount,
    `mask` (the agent acted, and the slot counts) for the loss.
    """

    obs: Obs
    """[B, T, ...] as the environment gave it; of several parts, its leaves by their paths, [B, T, ...] each."""
    prev_action: Tensor
    """[B, T, ...] action of slot t-1; ignored where start."""
    prev_reward: Tensor
    """[B, T] reward of slot t-1; zero where start."""
    start: Tensor
    """[B, T] bool."""
    action: Tensor
    """[B, T, ...], meaningless where not mask."""
    reward: Tensor
    """[B, T] float."""
    terminated: Tensor
    """[B, T] bool; a truncation is not a termination."""
    mask: Tensor
    """[B, T] bool; false on final observations, bootstrap slots and padding."""
    state0: State | None
    """Memory state before slot 0 (before the prefix, if there is one), leading dimension B. None: every row begins with
    the initial state of the memory that reads it."""
    behaviour: dict[str, Tensor] = field(default_factory=dict)
    """[B, T, ...] what acting recorded (log_prob), what is computed from the whole rollout, and the replay's importance
    weights (weight)."""
    prefix: Inputs | None = None
    """[B, P, ...] the slots before slot 0, which a network reads without gradient to bring `state0` up to slot 0.
    Right-aligned. A shorter prefix is padded on the left, which has no effect, since its first slot is a start."""
    detach_every: int | None = None
    """Slots between cuts of the gradient through the state; see `rlmem.batching`."""

    @property
    def shape(self) -> tuple[int, int]:
        """(B, T)"""
        return self.start.shape[0], self.start.shape[1]

    @property
    def inputs(self) -> Inputs:
        """What the agent reads of the rows."""
        return Inputs(self.obs, self.prev_action, self.prev_reward, self.start)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Apply `function` to every tensor."""
        mapped: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in mapped.items():  # few are trees, and tree_map_only is slow
            if isinstance(value, Tensor) or name in ("obs", "behaviour"):
                mapped[name] = each_leaf(function, value)
            elif value is not None:
                mapped[name] = tree_map_only(Tensor, function, value)
        return Batch(**mapped)

    def acted(self) -> Batch:
        """The acted slots in one row [1, n], for networks whose memory has no state."""
        acted = flagged(self.mask)
        slots = replace(self, state0=None, prefix=None).map(lambda tensor: tensor.flatten(0, 1)[acted][None])
        known(slots.start, on_host(self.start)[on_host(self.mask)][None])
        known(slots.mask, np.ones((1, len(acted)), bool))
        return slots

    def rows(self, index: Tensor) -> Batch:
        """The rows `index` [b], int64 from 0 on, in that order; an index on the CPU saves waiting for the device."""
        here, there = on_host(index), index.to(self.mask.device, non_blocking=True)
        batch = self.map(lambda tensor: tensor.index_select(0, there))
        known(batch.start, on_host(self.start)[here])
        known(batch.mask, on_host(self.mask)[here])
        return batch


register_pytree_node(
    Batch, lambda batch: ([getattr(batch, f.name) for f in fields(batch)], None), lambda values, _: Batch(*values)
)


class Inputs(NamedTuple):
    """What an agent reads of one slot [N, ...] or of rows of slots [B, T, ...]; the fields are those of `Batch`."""

    obs: Obs
    prev_action: Tensor
    prev_reward: Tensor
    start: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        """Apply `function` to every tensor."""
        obs = each_leaf(function, self.obs)
        return Inputs(obs, function(self.prev_action), function(self.prev_reward), function(self.start))


def each_leaf(function: Callable[[Any], Any], obs: Any) -> Any:
    """`function` of an observation, or of each of its leaves."""
    return {name: function(leaf) for name, leaf in obs.items()} if isinstance(obs, dict) else function(obs)


def action_mask(obs: Obs) -> Tensor | None:
    """Which actions are allowed [..., A], the leaf `action_mask`; None: all, or the observation does not say.

    The mask belongs to the slot that it is seen in, as all of an observation does. It may be empty where nothing acts.
    """
    return obs.get("action_mask") if isinstance(obs, dict) else None


def where_start(start: Tensor, initial: State, state: State) -> State:
    """`initial` in the rows whose `start` [B] is true, `state` elsewhere. The one reset of rlmem.

    A selection, not a product: an inf or NaN in `state` does not survive it, and no gradient passes it.
    """
    return tree_map(lambda fresh, old: torch.where(broadcastable(start, old), fresh, old), initial, state)


def broadcastable(flag: Tensor, x: Tensor) -> Tensor:
    """A view of `flag` with trailing dimensions of size 1, so that it broadcasts against `x`."""
    return flag.view(*flag.shape, *[1] * (x.dim() - flag.dim()))


STAGED = 2**16
"""Bytes up to which CUDA copies from ordinary memory without waiting."""
PINNED = 2**28
"""Above so many bytes, pinning costs too much memory; such a copy waits."""


watchers: list[Any] = []
"""What follows a method while recorded (`rlmem.agents.graphs`): its `bring(values, move)` stands for `move()`, and
`ask(is_known)` is called before flags are read, which are `known` or waited for. At most one in a process, not in every
thread: autograd computes gradients in threads of its own. So nothing else may read flags on the host or bring arrays to
the device meanwhile."""


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """A tensor on a device, without waiting for it. On the CPU it shares its memory with `values`."""

    def move() -> Tensor:
        tensor = torch.from_numpy(values)
        if device.type == "cuda" and STAGED < values.nbytes <= PINNED:
            tensor = tensor.pin_memory()
        return tensor.to(device, non_blocking=True)

    return watchers[0].bring(values, move) if watchers else move()


def with_host(values: np.ndarray, device: torch.device) -> Tensor:
    """A tensor on a device, whose values `on_host` knows without waiting for it."""
    return known(to_device(values, device), values)


def known(flags: Tensor, values: np.ndarray) -> Tensor:
    """`flags` themselves, which are known to have these values as long as they are not changed in place."""
    flags.host = flags._version, values  # type: ignore[attr-defined]
    return flags


def on_host(flags: Tensor) -> np.ndarray:
    """The values of flags, to compute indices from: without waiting for the device if they are `known`."""
    values = known_values(flags)
    if watchers:
        watchers[0].ask(values is not None)
    return flags.cpu().numpy() if values is None else values


def known_values(flags: Tensor) -> np.ndarray | None:
    """The values of flags that are `known`; None if they are not."""
    version, values = getattr(flags, "host", (None, None))
    return values if version == flags._version else None


def flagged(flags: Tensor) -> Tensor:
    """The slots b * T + t whose flags [B, T] are true, [n], ascending; on the flags' device."""
    return to_device(np.flatnonzero(on_host(flags)), flags.device)


class Spans(NamedTuple):
    """Rows [B, T] cut at every start into E spans, each within one episode. Slots are numbered b * T + t."""

    first: np.ndarray
    """[E], the first slot of each span, ascending."""
    length: np.ndarray
    """[E], slots of each span."""
    number: np.ndarray
    """[B * T], the number of the span that each slot is in."""
    age: np.ndarray
    """[B * T], slots between each slot and the first of its span."""

    @classmethod
    def of(cls, start: Tensor) -> Spans:
        """The spans of rows with start flags [B, T]."""
        begins = on_host(start).copy()
        begins[:, 0] = True
        first = np.flatnonzero(begins)
        number = np.cumsum(begins) - 1
        return cls(first, np.diff(first, append=begins.size), number, np.arange(begins.size) - first[number])

    def longest_first(self) -> tuple[np.ndarray, np.ndarray]:
        """The spans from longest to shortest [E], and the place of each span in that order [E]."""
        by_length = np.argsort(-self.length, kind="stable")
        return by_length, np.argsort(by_length)


T = TypeVar("T")


class Processes:
    """The processes that train one run together, connected as in `joined`; one alone sends nothing.

    Every method communicates, so all processes must call it, in the same order.

    rank: the number of this process among the `size` of its run
    witness: says how another process died, if one did
    """

    def __init__(self, rank: int = 0, size: int = 1, witness: Callable[[], str | None] | None = None):
        self.rank, self.size, self.witness = rank, size, witness

    def summed(self, x: Tensor) -> Tensor:
        """The sum of x over all processes. Its gradient is that of this process's x alone: see `sum_gradients`."""
        return x if self.size == 1 else _Sum.apply(x, self)

    def largest(self, x: Tensor) -> Tensor:
        """The largest x of all processes, element by element, without gradient."""
        return x if self.size == 1 else self.reduce(x.detach().clone(), dist.ReduceOp.MAX)

    def least(self, number: int) -> int:
        """The least number of all processes."""
        return number if self.size == 1 else int(self.reduce(torch.tensor(number), dist.ReduceOp.MIN))

    def totals(self, *numbers: float) -> tuple[float, ...]:
        """The sum over all processes of each number."""
        if self.size == 1:
            return numbers
        return tuple(self.reduce(torch.tensor(numbers).double(), dist.ReduceOp.SUM).tolist())

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes, which hold the same sum afterwards, bit for bit.

        The sum is the gradient of the loss, which is a mean over the rows of all processes
        (`rlmem.algos.on_policy.mean`): each process has the terms of its own rows.
        """
        if self.size == 1:
            return
        gradients = []
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradients.append(torch.view_as_real(gradient) if gradient.is_complex() else gradient)
        total = self.reduce(torch.cat([gradient.flatten() for gradient in gradients]), dist.ReduceOp.SUM)
        for gradient, part in zip(gradients, total.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def of_first(self, value: T) -> T:
        """The first process's value, on every process; what the others pass is ignored.

        value: tensors (returned on the CPU), numbers, strings, and containers of them
        """
        if self.size == 1:
            return value
        box = [_packed(value) if self.rank == 0 else b""]
        with communicating(self.witness):
            dist.broadcast_object_list(box)
        return _unpacked(box[0])

    def gathered(self, value: T) -> list[T]:
        """The values of all processes by rank, on the first process; [] on the others. Kinds as in `of_first`."""
        if self.size == 1:
            return [value]
        box = [b""] * self.size if self.rank == 0 else None
        with communicating(self.witness):
            dist.gather_object(_packed(value), box)
        return [_unpacked(packed) for packed in box or []]

    def reduce(self, x: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        """x of all processes by one operation, element by element, in the memory of x."""
        with communicating(self.witness):
            dist.all_reduce(x, operation)
        return x


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, several: Processes) -> Tensor:
        return several.reduce(x.clone(), dist.ReduceOp.SUM)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


_processes = [Processes()]


def processes() -> Processes:
    """The processes that train together at present."""
    return _processes[-1]


def _packed(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(packed: bytes) -> Any:
    return torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)


PositiveInt = Annotated[int, Gt(0)]
NonNegativeInt = Annotated[int, Ge(0)]
Layers = Annotated[int, Gt(0), Le(1000)]
DoublingLayers = Annotated[int, Gt(0), Le(16)]  # each reaches twice as far back as the one before
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
UnitFloat = Annotated[float, Ge(0), Le(1)]
ShareBelowOne = Annotated[float, Ge(0), Lt(1)]
PositiveUnitFloat = Annotated[float, Gt(0), Le(1)]
