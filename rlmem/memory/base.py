"""The memory contract, and the base of cells, which writes resets, time loops and packing once for every cell."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.core.types import Spans, State, on_host, to_device, where_start
from rlmem.scan import Engine, chosen_engine
from rlmem.scan.cells import over_steps
from rlmem.scan.native import check_flags


class Memory(nn.Module, ABC):
    """Summarise a stream of features into an output per slot, with a state that a start flag resets.

    input_size: D, features in
    output_size: H, features out
    engine: what the scans of the memory run on, if it has any
    `start[b, t]` resets row b *before* it reads slot t; what came earlier then has no influence on outputs, states or
    gradients. `forward` equals calling `step` for every slot in turn. The constructor keeps the arguments that it is
    given as attributes; a subclass may set these attributes itself instead.
    """

    input_size: int
    output_size: int
    state_shape: Any
    """The state's shape without B, or a pytree of shapes."""
    complex_state = False
    """Whether the state is complex."""
    engine: Engine
    breaks: Mapping[str, str] = {}
    """Properties of `rlmem.conformance` that a published option breaks on purpose, with the reason. `rlmem check`
    requires that they do fail. Default options break nothing."""

    def __init__(self, input_size: int | None = None, output_size: int | None = None, engine: Engine | None = None):
        super().__init__()
        for name, value in (("input_size", input_size), ("output_size", output_size), ("engine", engine)):
            if value is not None:
                setattr(self, name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _literals_checked(cls.__init__)  # type: ignore[method-assign]

    def become(self, variant: type["Memory"]) -> None:
        """Compute as published code does: be an object of `variant`, which derives from the class of this one.

        Raises ValueError for an own class that does not derive from `variant`.
        """
        if isinstance(self, variant):
            return
        if type(self) not in variant.__mro__:
            name = f"{variant.__module__}.{variant.__qualname__}"
            raise ValueError(f"options of published code need a class that derives from {name}")
        self.__class__ = variant

    def __call__(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`forward`, after checking that flags and state fit the rows of x. Raises ValueError if they do not."""
        check_flags(start, *x.shape[:2])
        for leaf in tree_leaves(state):
            if leaf.shape[:1] != x.shape[:1]:
                raise ValueError(f"state: expected {len(x)} rows, as x has, got a tensor {list(leaf.shape)}")
        return super().__call__(x, state, start)

    def initial_state(self, batch_size: int) -> State:
        """The state of `batch_size` rows that have read nothing, on the device and in the type of the parameters.

        By default, these are zeros of `state_shape`.
        """
        like = self._like_parameters()
        dtype = like.dtype.to_complex() if self.complex_state else like.dtype
        return tree_map(
            lambda shape: torch.zeros(batch_size, *shape, dtype=dtype, device=like.device),
            self.state_shape,
            is_leaf=lambda shape: isinstance(shape, tuple) and not any(isinstance(n, tuple | dict) for n in shape),
        )

    @abstractmethod
    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """Read x [B, T, D] with start [B, T] bool from `state`; return y [B, T, H] and the final state."""

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """Read one slot, x [B, D] with start [B] bool; return y [B, H] and the next state."""
        y, state = self.forward(x[:, None], state, start[:, None])
        return y[:, 0], state

    def redraw(self) -> None:
        """Change the seed of the memory's random draws, if it has any; called between rollouts, never within one.

        By default, this redraws the layers. A memory that draws random numbers itself overrides it.
        """
        for child in self.children():
            redraw(child)

    def scanning(self) -> list["Memory"]:
        """This memory and those inside it, as far as they scan: those with an `engine`."""
        return [part for part in self.modules() if isinstance(part, Memory) and hasattr(part, "engine")]

    def runs_on(self, device: torch.device | str) -> Engine:
        """The engine of its scans on a device. Raises UserError if the one that it is to use cannot run there."""
        return chosen_engine(self.engine, device)

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        """The weights by the symbols of the equations: views, so writing into one writes into the parameter.

        of: what to return for each parameter, e.g. `lambda p: p.grad`. By default a module `W_k = nn.Linear` holds the
        symbols W_k [out, in] and b_k, a norm `ln` ln_scale and ln_bias, and a parameter its own name; a model whose
        parameters are laid out otherwise overrides this. A list `layers` holds L0.*, L1.*, ...
        """
        return symbols_of(self, of)

    @torch.no_grad()
    def load_symbols(self, weights: Mapping[str, Any]) -> None:
        """Set every weight from `weights` (tensors or arrays by symbol). Raises ValueError for missing and unknown
        symbols, and for a shape or type that does not fit."""
        own = self.symbols()
        if missing := own.keys() - weights.keys():
            raise ValueError(f"{type(self).__name__}: no weight given for {', '.join(sorted(missing))}")
        if unknown := weights.keys() - own.keys():
            raise ValueError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}; it has {', '.join(own)}")
        values = {symbol: torch.as_tensor(weights[symbol]) for symbol in own}
        for symbol, target in own.items():
            if values[symbol].shape != target.shape or (values[symbol].is_complex() and not target.is_complex()):
                kinds = [f"{t.dtype} {list(t.shape)}" for t in (target, values[symbol])]
                raise ValueError(f"{type(self).__name__}: {symbol} is {kinds[0]}, got {kinds[1]}")
        for symbol, target in own.items():  # only now, so that a mistake leaves the memory as it was
            target.copy_(values[symbol])

    def _like_parameters(self) -> Tensor:
        return next(self.parameters())


def _literals_checked(init: Callable[..., None]) -> Callable[..., None]:
    """`init`, but refusing a value that its `Literal` does not list: a misspelt option would build another model."""

    @wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        hints = get_type_hints(init)
        for name, value in signature(init).bind(self, *args, **kwargs).arguments.items():
            accepted = get_args(hints.get(name)) if get_origin(hints.get(name)) is Literal else None
            if accepted and value not in accepted:
                listed = ", ".join(map(str, accepted))
                raise ValueError(f"{type(self).__name__}: {name}={value!r} is no option; accepted: {listed}")
        init(self, *args, **kwargs)

    return checked


def symbols_of(module: nn.Module, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """The weights of a module by the rule of `Memory.symbols`. A part with a method `symbols` names its own."""
    parts: dict[str, nn.Module] = {}
    for path, part in module.named_modules():
        listed = path.rpartition(".")[0] == "layers" and isinstance(module.get_submodule("layers"), nn.ModuleList)
        if path and (listed or hasattr(part, "symbols")) and not path.startswith(tuple(f"{own}." for own in parts)):
            parts[path] = part
    ours = [name for name, _ in module.named_parameters() if not name.startswith(tuple(f"{path}." for path in parts))]
    weights = {symbol_of(module, name): of(module.get_parameter(name)) for name in ours}
    for path, part in parts.items():
        symbols = part.symbols(of) if hasattr(part, "symbols") else symbols_of(part, of)  # type: ignore[operator]
        prefix = path.replace("layers.", "L") if path.startswith("layers.") else path
        weights |= {f"{prefix}.{symbol}": weight for symbol, weight in symbols.items()}
    return weights


def symbol_of(memory: nn.Module, name: str) -> str:
    """The symbol of the parameter `name` of a module, by the rule of `Memory.symbols`."""
    owner, _, kind = name.rpartition(".")
    if isinstance(memory.get_submodule(owner), nn.LayerNorm):
        return f"{owner}_{'scale' if kind == 'weight' else 'bias'}"
    if kind == "bias":
        return f"b_{owner[2:]}" if owner[:2] in ("W_", "w_") else f"b_{owner}"
    return owner if kind == "weight" else name


class RecurrentCell(Memory):
    """Base of memories that must be stepped: the author writes `cell`, and `sequence` where a fast kernel exists.

    A row with starts is not stepped slot by slot with resets: its episodes are laid side by side as a packed
    sequence (longest first), so a tape of many episodes takes as many steps as its longest episode has slots.
    """

    @abstractmethod
    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step without resets: x [B, D] and state to y [B, H] and the next state."""

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        """Packed episodes from their first states [E, ...]: outputs [S, H], and the state of each after its last slot.

        last [E]: packed position of each episode's last slot. This loop over `cell` is the definition.
        """
        sizes = packed.batch_sizes.tolist()
        return over_steps(self.cell, packed.data.split(sizes), sizes, state)

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self.cell(x, where_start(start, self.initial_state(x.shape[0]), state))

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self.over_episodes(self.sequence, x, state, start)

    def over_episodes(
        self, sequence: Callable[..., tuple[Tensor, State]], x: Tensor, state: State, start: Tensor
    ) -> tuple[Tensor, State]:
        """`forward` by a function that reads packed episodes as `sequence` does.

        x: [B, T, ...]
        """
        packing = Packing(start)
        initial = self.initial_state(len(packing.row))
        state0 = where_start(packing.fresh, initial, tree_map(lambda s: s[packing.row], state))
        packed = PackedSequence(x.flatten(0, 1).index_select(0, packing.order), packing.batch_sizes)
        y, final = sequence(packed, state0, packing.last_slot)
        y = y.index_select(0, packing.inverse).view(*start.shape, -1)
        return y, tree_map(lambda s: s[packing.last], final)


class Packing:
    """How the `Spans` of rows with start flags [B, T] are packed, longest first: indices only, no data.

    order: [B * T], the flat slot of each packed position
    inverse: [B * T], the packed position of each flat slot
    batch_sizes: [longest], how many spans have that many slots, on the CPU, as PackedSequence requires
    row: [E], the row of each span
    fresh: [E], whether the span begins with a start
    last: [B], the span that holds the end of each row
    last_slot: [E], the packed position of each span's last slot
    """

    def __init__(self, start: Tensor):
        T, spans = start.shape[1], Spans.of(start)
        by_length, rank = spans.longest_first()
        order = np.argsort(spans.age * len(rank) + rank[spans.number])
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        first = spans.first[by_length]
        last_slot = inverse[first + spans.length[by_length] - 1]
        places = (order, inverse, first // T, rank[spans.number[T - 1 :: T]], last_slot)
        self.order, self.inverse, self.row, self.last, self.last_slot = (to_device(x, start.device) for x in places)
        self.fresh = to_device(on_host(start).reshape(-1)[first], start.device)
        self.batch_sizes = torch.from_numpy(np.bincount(spans.age))


class Projecting(Memory):
    """A memory that first projects each slot by itself, so that slots with equal inputs can share the projection.

    `rlmem.agents.trunk` does so for classes that define `project_slots` themselves; one that inherits it may read
    otherwise, and is given x.
    """

    @abstractmethod
    def project_slots(self, x: Tensor) -> Tensor:
        """The projection [..., P] of each slot of x [..., D] by itself."""

    @abstractmethod
    def read_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`forward` of rows whose slots have the projections p[which], which [B, T]."""

    @abstractmethod
    def step_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`step` of slots that have the projections p[which], which [B]."""


def redraw(module: nn.Module) -> None:
    """Call `redraw` of every memory in `module`, or of `module`, that is not a layer of another one."""
    if isinstance(module, Memory):
        module.redraw()
    else:
        for child in module.children():
            redraw(child)
