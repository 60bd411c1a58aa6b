"""CUDA graphs of what a run computes again and again: acting, and the gradients of a minibatch (`compile=graphs`)."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from hashlib import blake2b
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from rlmem.errors import one_line
from rlmem.system.recording import Recording
from rlmem.types import known, known_values

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")

MOST_SIZES = 8
"""Kinds of inputs of one method of one module, for which graphs are recorded."""
REPEATED = 3
"""How often a kind must have come before a graph is recorded for it: the sizes of some batches never come back."""
MOST_REMEMBERED = 10_000
"""Kinds of inputs of one method of one module that are counted while they have no graph."""


class Graphs:
    """Records CUDA graphs, each for one kind of inputs of a method, and replays them.

    A graph launches all kernels that the method launched when it was recorded, and so computes the same numbers. Its
    inputs are copied into memory of its own: tensors, and of numbers those that are floats. All else is a part of its
    kind: the sizes and types of the tensors, integers and flags, and the values of start flags for a method that asks
    for them on the host, as cells do that read packed episodes. A kind gets a graph when it has come `REPEATED` times,
    and a method of a module at most `MOST_SIZES` of them: whatever else comes runs as without, and `say` is told.

    An error while a graph is recorded is told, too, and the method runs as without from then on.

    say: takes a line for the user
    """

    def __init__(self, say: Callable[[str], None]):
        self.say = say
        self.known: MutableMapping[Any, dict[Callable[..., Any], _Known]] = WeakIdKeyDictionary()
        self.told: set[str] = set()
        self.capture = Capture()

    def __deepcopy__(self, memo: object) -> Graphs:
        return self

    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...]) -> R:
        """`method(module, *args)`. Where no gradient is recorded, it may be kept; else the next call writes over it."""
        name, known = method.__qualname__, self.known.setdefault(module, {}).setdefault(method, _Known())
        if known.failed:
            return method(module, *args)
        kind = torch.is_grad_enabled(), *_kind(args, known.reads_flags)
        graph = known.graphs.get(kind)
        if graph is None:
            if not self._is_due(known, kind, name):
                return method(module, *args)
            graph = known.graphs[kind] = _Graph(args)
            made = graph.watch(method, module)
            if graph.recording.reads_flags and not known.reads_flags:  # so that the kind is another one
                known.reads_flags = True
                known.graphs.clear()
            return made
        graph.copy(args)
        if graph.replay is None:
            try:
                graph.record(self.capture, method, module)
            except Exception as error:
                known.failed = True
                known.graphs.clear()
                self._tell(name, f"it cannot be recorded ({one_line(error)})")
                return method(module, *args)
        assert graph.replay is not None
        graph.replay()
        made = graph.made
        return made if torch.is_grad_enabled() else tree_map_only(Tensor, Tensor.clone, made)

    def _is_due(self, known: _Known, kind: Any, name: str) -> bool:
        """Whether a kind without a graph is to get one."""
        if len(known.seen) > MOST_REMEMBERED:
            known.seen.clear()
        known.seen[kind] += 1
        if known.seen[kind] < REPEATED:
            return False
        if len(known.graphs) < MOST_SIZES:
            return True
        self._tell(name, f"it has those of {MOST_SIZES} sizes of its inputs, and other sizes come")
        return False

    def _tell(self, name: str, why: str) -> None:
        line = f"compile=graphs: {name} runs without a graph: {why}"
        if line not in self.told:
            self.told.add(line)
            self.say(line)


def recorded(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """`method`, or its graph in modules whose attribute `compiler` is of `Graphs`.

    The method computes what it returns, and gradients in `.grad`, from its positional arguments, weights and constants;
    it changes nothing else that a later call reads.
    """

    @wraps(method)
    def call(self: M, *args: P.args, **kwargs: P.kwargs) -> R:
        graphs = self.__dict__.get("compiler")
        if not isinstance(graphs, Graphs) or Recording.current is not None:  # another graph includes this method
            return method(self, *args, **kwargs)
        return graphs.call(method, self, args)

    return call


@dataclass
class _Known:
    """What is known of one method of one module.

    seen: how often kinds of its inputs came before they had a graph
    graphs: by kind
    reads_flags: whether the values of start flags are a part of the kind
    failed: whether it cannot be recorded
    """

    seen: Counter[Any] = field(default_factory=Counter)
    graphs: dict[Any, _Graph] = field(default_factory=dict)
    reads_flags: bool = False
    failed: bool = False


class _Graph:
    """A method for one kind of inputs.

    args: its arguments, in memory of the graph's own
    made: what it returned when it was recorded, which every replay writes anew
    replay: writes it; None: it is not recorded yet
    """

    def __init__(self, args: tuple[Any, ...]):
        device = next(tensor.device for tensor in _inputs(args) if isinstance(tensor, Tensor))
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

    def watch(self, method: Callable[..., R], module: Any) -> R:
        """Call the method as ever, on the graph's memory, so that kernels are compiled and libraries have begun."""
        with self.recording.watched():
            return method(module, *self.args)

    def record(self, capture: Capture, method: Callable[..., Any], module: Any) -> None:
        """Record the method; nothing is computed by that."""

        def run() -> Any:
            with self.recording.captured():
                return method(module, *self.args)

        self.made, self.replay = capture(run)


class Capture:
    """Records CUDA graphs, which share memory: none is replayed beside another, and what one returns lives with it."""

    def __init__(self) -> None:
        self.pool: Any = None
        self.stream: torch.cuda.Stream | None = None

    def __call__(self, run: Callable[[], R]) -> tuple[R, Callable[[], object]]:
        """What `run` returned when it was recorded, and what computes it anew."""
        if self.stream is None:
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        gc.collect()  # nothing on the device may end while a graph is recorded
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                made = run()
            except BaseException:
                with suppress(RuntimeError):  # says again that it failed
                    graph.capture_end()
                raise
            graph.capture_end()
        return made, graph.replay


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
    """What all arguments have in common that one graph may read.

    with_flags: the values of flags, too
    """
    if isinstance(value, Tensor):
        yield tuple(value.shape), value.dtype, value.requires_grad
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
