"""CUDA graphs of what a run computes again and again: acting, and the gradients of a minibatch (`compile=graphs`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from hashlib import blake2b
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from rlmem.errors import one_line
from rlmem.nets.capture import Capture
from rlmem.types import Recording, known, known_values

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")

MOST_GRAPHS = 8
"""Graphs of one method of one module."""
REPEATED = 3
"""How often inputs of a kind must have come before a graph is recorded for them: some never come back."""
MOST_FAILED = 3
"""Kinds of inputs whose recording failed, after which a method gets no more graphs."""
PATIENCE = 100
"""Calls without a graph, one after the other, after which the user is told why there is none."""
MOST_REMEMBERED = 10_000
"""Kinds of inputs of one method of one module that are counted while they have no graph."""


class Graphs:
    """Records CUDA graphs, each for one kind of inputs of a method, and replays them.

    A graph launches all kernels that the method launched when it was recorded. Its inputs are copied into memory of its
    own: tensors, and of numbers those that are floats. All else is a part of their kind: the sizes and types of the
    tensors, integers and flags, and the values of start flags for a method that asks for them on the host, as cells do
    that read packed episodes. Inputs get a graph when their kind has come `REPEATED` times, and a method of a module
    has at most `MOST_GRAPHS` of them: whatever else comes runs as without, and `say` is told.

    An error while a graph is recorded is told, too, and such inputs run as without from then on.

    say: takes a line for the user
    """

    def __init__(self, say: Callable[[str], None]):
        self.say = say
        self.methods: MutableMapping[Any, dict[Callable[..., Any], _Method]] = WeakIdKeyDictionary()
        self.told: set[str] = set()
        self.capture = Capture()

    def __deepcopy__(self, memo: object) -> Graphs:
        return self

    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...]) -> R:
        """`method(module, *args)`. Where gradients are recorded, the replay of another graph may write over it."""
        of = self.methods.setdefault(module, {}).setdefault(method, _Method())
        inputs = [x for x in _inputs(args) if isinstance(x, Tensor)]
        kind = of.kind(args)
        if kind in of.failed or not inputs or (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
            return method(module, *args)
        name, graph = method.__qualname__, of.graphs.get(kind)
        if graph is None and not self._is_due(of, kind, name):
            return method(module, *args)
        of.without = 0
        try:
            if graph is None:
                graph = _Graph(name, args, inputs[0].device)
                made = graph.watch(self.capture, method, module)
                if graph.recording.reads_flags and not of.reads_flags:
                    of.reads_flags = True  # so that these inputs are of another kind, which is yet to come again
                else:
                    of.graphs[kind] = graph
            else:
                graph.copy(args)
                if graph.replay is None:
                    graph.record(self.capture, method, module)
                assert graph.replay is not None
                graph.replay()
                made = graph.made
        except Exception as error:
            if graph is not None and graph.replay is not None:
                raise
            of.failed.add(kind)
            of.graphs.pop(kind, None)
            self._tell(name, f"it cannot be recorded ({one_line(error)})")
            return method(module, *args)
        return made if torch.is_grad_enabled() else tree_map_only(Tensor, Tensor.clone, made)

    def _is_due(self, of: _Method, kind: Any, name: str) -> bool:
        """Whether inputs of a kind without a graph are to get one."""
        of.without += 1
        if of.without == PATIENCE:
            self._tell(name, "its inputs have other sizes, or episodes that lie in another way, in every call")
        if len(of.failed) >= MOST_FAILED:
            return False
        if len(of.seen) > MOST_REMEMBERED:
            of.seen.clear()
        key = blake2b(repr(kind).encode(), digest_size=16).digest()
        of.seen[key] += 1
        if of.seen[key] < REPEATED:
            return False
        if len(of.graphs) < MOST_GRAPHS:
            return True
        self._tell(name, f"it has {MOST_GRAPHS} of them, and its inputs have other sizes, or episodes in another way")
        return False

    def _tell(self, name: str, why: str) -> None:
        line = f"compile=graphs: {name} runs without a graph: {why}"
        if line not in self.told:
            self.told.add(line)
            self.say(line)


def recorded(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """`method`, or its graph in modules that have `Graphs` as their attribute `graphs`. A call with keywords has none.

    The method computes what it returns, and gradients in `.grad`, from its positional arguments, weights and constants.
    It may be run once more than it is called, so that it changes nothing but what is the same after a second time, such
    as a weight that is clamped.
    """

    @wraps(method)
    def call(self: M, *args: P.args, **kwargs: P.kwargs) -> R:
        graphs = self.__dict__.get("graphs")
        if not isinstance(graphs, Graphs) or kwargs or Recording.current is not None:  # in the graph of a caller
            return method(self, *args, **kwargs)
        return graphs.call(method, self, args)

    return call


@dataclass
class _Method:
    """What is known of one method of one module.

    seen: how often inputs came before they had a graph, by a digest of their kind
    graphs: by the kind of inputs
    failed: the kinds of inputs for which no graph can be recorded
    without: calls without a graph since the last with one
    reads_flags: whether the values of start flags are a part of the kind
    """

    seen: Counter[bytes] = field(default_factory=Counter)
    graphs: dict[Any, _Graph] = field(default_factory=dict)
    failed: set[Any] = field(default_factory=set)
    without: int = 0
    reads_flags: bool = False

    def kind(self, args: tuple[Any, ...]) -> Any:
        """What all inputs have in common that one graph may read."""
        return torch.is_grad_enabled(), *_kind(args, self.reads_flags)


class _Graph:
    """A method for one kind of inputs.

    name: of the method
    args: its arguments, in memory of the graph's own
    made: what it returned when it was recorded, which every replay writes anew
    replay: writes it; None: it is not recorded yet
    """

    def __init__(self, name: str, args: tuple[Any, ...], device: torch.device):
        self.name = name
        self.args = _mapped(lambda x: _owned(x, device), args)
        self.inputs: list[Tensor] = list(_inputs(self.args))
        self.tensors = defaultdict[torch.dtype, list[int]](list)  # the places of those of one type, copied at once
        for i, given in enumerate(_inputs(args)):
            if isinstance(given, Tensor):
                self.tensors[given.dtype].append(i)
        self.recording = Recording()
        self.made: Any = None
        self.replay: Callable[[], object] | None = None

    def copy(self, args: tuple[Any, ...]) -> None:
        """Take the arguments of a call."""
        given = list(_inputs(args))
        for places in self.tensors.values():
            torch._foreach_copy_([self.inputs[i] for i in places], [given[i] for i in places])
        for own, value in zip(self.inputs, given, strict=True):
            if isinstance(value, Tensor):
                _known_as(value, own)
            else:
                own.fill_(value)

    def watch(self, capture: Capture, method: Callable[..., R], module: Any) -> R:
        """Call the method as ever, on the graph's memory, so that kernels are compiled and libraries have begun.

        Raises RuntimeError where it waits for the device: in a recording that could not be mended.
        """
        with self.recording.watched(), capture.without_waiting():
            return method(module, *self.args)

    def record(self, capture: Capture, method: Callable[..., Any], module: Any) -> None:
        """Record the method; nothing is computed by that."""

        def run() -> Any:
            with self.recording.captured():
                return method(module, *self.args)

        self.made, self.replay = capture(run)


def _owned(value: Tensor | float, device: torch.device) -> Tensor:
    """A copy of an input, in memory of its own."""
    if isinstance(value, Tensor):
        return _known_as(value, value.detach().clone(memory_format=torch.contiguous_format))
    return torch.tensor(value, device=device)


def _known_as(given: Tensor, own: Tensor) -> Tensor:
    """`own`, a copy of `given`, whose values the host knows if it knows those of `given`."""
    values = known_values(given)
    return own if values is None else known(own, values)


def _parts(value: Any) -> Any:
    """The named parts of an argument; None if it has none."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return {f.name: getattr(value, f.name) for f in fields(value)} if is_dataclass(value) else None


def _inputs(value: Any) -> Iterator[Any]:
    """The tensors and floats in an argument."""
    if isinstance(value, Tensor | float):
        yield value
    elif (parts := _parts(value)) is not None:
        for part in parts.values():
            yield from _inputs(part)


def _mapped(function: Callable[[Any], Tensor], value: Any) -> Any:
    """An argument with `function` of each of its inputs."""
    if isinstance(value, Tensor | float):
        return function(value)
    if (parts := _parts(value)) is None:
        return value
    mapped = {name: _mapped(function, part) for name, part in parts.items()}
    if isinstance(value, dict):
        return mapped
    if is_dataclass(value):
        return replace(value, **mapped)  # type: ignore[type-var]
    return type(value)(*mapped.values()) if hasattr(value, "_fields") else type(value)(mapped.values())


def _kind(value: Any, with_flags: bool) -> Iterator[Any]:
    """What one graph takes for granted of an argument.

    with_flags: the values of flags that the host knows, too
    """
    if isinstance(value, Tensor):
        yield tuple(value.shape), value.dtype
        if with_flags and (values := known_values(value)) is not None:
            yield blake2b(values.tobytes(), digest_size=16).digest()
    elif isinstance(value, float):
        yield float
    elif (parts := _parts(value)) is not None:
        yield type(value), *parts
        for part in parts.values():
            yield from _kind(part, with_flags)
    else:
        yield value
