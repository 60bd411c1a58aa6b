"""The memory contract, and the bases that write resets, time loops and packing once for every model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.memory.packed import Packing, over_steps, permuted
from rlmem.scan import Engine, chosen_engine, linear_scan, monoid_scan
from rlmem.scan.native import check_flags
from rlmem.types import State, where_start


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

    def __call__(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`forward`, after checking that flags and state fit the rows of x. Raises ValueError if they do not."""
        check_flags(start, *x.shape[:2])
        for leaf in tree_leaves(state):
            if leaf.shape[:1] != x.shape[:1]:
                raise ValueError(f"state: expected {len(x)} rows, as x has, got a tensor {list(leaf.shape)}")
        return super().__call__(x, state, start)

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """The state of `batch_size` rows that have read nothing, on the device and in the type of the parameters."""

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
        parameters are laid out otherwise overrides this.
        """
        return {symbol_of(self, name): of(parameter) for name, parameter in self.named_parameters()}

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


def symbol_of(memory: nn.Module, name: str) -> str:
    """The symbol of the parameter `name` of a module, by the rule of `Memory.symbols`."""
    owner, _, kind = name.rpartition(".")
    if isinstance(memory.get_submodule(owner), nn.LayerNorm):
        return f"{owner}_{'scale' if kind == 'weight' else 'bias'}"
    if kind == "bias":
        return f"b_{owner[2:]}" if owner[:2] in ("W_", "w_") else f"b_{owner}"
    return owner if kind == "weight" else name


class Memoroid(Memory):
    """Base of memories whose state is an element of a monoid (Morad et al. 2024, arXiv:2402.09900, definition 3).

    The author writes `lift`, `combine`, `identity` and `read`; resets and time are done here, in O(log T) steps.
    """

    engine: Engine = "auto"

    @abstractmethod
    def lift(self, x: Tensor) -> State:
        """The monoid's element for each input: x [..., D] to a pytree of [..., *shape]."""

    @abstractmethod
    def combine(self, earlier: State, later: State) -> State:
        """The associative operation, elementwise over all leading dimensions."""

    @abstractmethod
    def identity(self) -> State:
        """The element that changes nothing, as a pytree of [*shape]."""

    @abstractmethod
    def read(self, h: State, x: Tensor) -> Tensor:
        """y [..., H] from the states and the inputs x [..., D]."""

    def initial_state(self, batch_size: int) -> State:
        like = self._like_parameters()

        def rows(e: Tensor) -> Tensor:
            dtype = torch.promote_types(like.dtype, e.dtype) if e.is_complex() else like.dtype
            e = e.to(like.device, dtype if e.is_floating_point() or e.is_complex() else e.dtype)
            return e.expand(batch_size, *e.shape)

        return tree_map(rows, self.identity())

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        h = monoid_scan(self.combine, self.identity(), self.lift(x), state, start, self.engine)
        return self.read(h, x), tree_map(lambda leaf: leaf[:, -1], h)

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        h = self.combine(where_start(start, self.initial_state(len(x)), state), self.lift(x))
        return self.read(h, x), h


class ZeroState(Memory):
    """Base of memories whose state begins as zeros.

    state_shape: the state's shape without B, or a pytree of shapes
    complex_state: whether the state is complex
    """

    state_shape: Any
    complex_state = False

    def initial_state(self, batch_size: int) -> State:
        like = self._like_parameters()
        dtype = like.dtype.to_complex() if self.complex_state else like.dtype
        return tree_map(
            lambda shape: torch.zeros(batch_size, *shape, dtype=dtype, device=like.device),
            self.state_shape,
            is_leaf=lambda shape: isinstance(shape, tuple) and not any(isinstance(n, tuple | dict) for n in shape),
        )


class LinearRecurrence(ZeroState):
    """Base of memories whose state follows h_t = a_t * h_{t-1} + b_t elementwise: parallel over time.

    The author sets `state_shape` and writes `project`, `gates` and `read`; resets and time are done here.
    """

    state_shape: tuple[int, ...]
    engine: Engine = "auto"

    def project(self, x: Tensor) -> Any:
        """What `gates` and `read` share, computed once from x [B, T, D]. Default: x itself.

        `step` calls all three for one slot, without the dimension T.
        """
        return x

    @abstractmethod
    def gates(self, p: Any) -> tuple[Tensor, Tensor]:
        """a ([*state_shape], constant in time, or [B, T, *state_shape]) and b [B, T, *state_shape] from `project`."""

    @abstractmethod
    def read(self, h: Tensor, p: Any) -> Tensor:
        """y [B, T, H] from the states h [B, T, *state_shape] and `project`."""

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        p = self.project(x)
        a, b = self.gates(p)
        h = linear_scan(a, b, state, start, self.engine)
        return self.read(h, p), h[:, -1].clone()  # not a view, which would keep h

    def step(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        p = self.project(x)
        a, b = self.gates(p)
        h = a * where_start(start, torch.zeros_like(state), state) + b
        return self.read(h, p), h


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
        B, T = start.shape
        packing = Packing(start)
        initial = self.initial_state(len(packing.row))
        state0 = where_start(packing.fresh, initial, tree_map(lambda s: s[packing.row], state))
        places = packing.order, packing.inverse
        packed = PackedSequence(permuted(x.flatten(0, 1), *places), packing.batch_sizes)
        y, final = sequence(packed, state0, packing.last_slot)
        return permuted(y, *reversed(places)).view(B, T, -1), tree_map(lambda s: s[packing.last], final)


def redraw(module: nn.Module) -> None:
    """Call `redraw` of every memory in `module`, or of `module`, that is not a layer of another one."""
    if isinstance(module, Memory):
        module.redraw()
    else:
        for child in module.children():
            redraw(child)
