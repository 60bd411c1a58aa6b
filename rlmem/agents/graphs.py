"""CUDA graphs of what a run computes again and again: acting, and the gradients of a minibatch (`compile=graphs`)."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from rlmem.core.errors import one_line
from rlmem.core.types import known, known_values, watchers

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

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


def recorded(method: F) -> F:
    """Mark a method whose calls `Graphs` may replay, in the objects that are given to `Graphs.record`.

    The method computes what it returns, and gradients in `.grad`, from its positional arguments, weights and constants.
    It may be run once more than it is called, so that it changes nothing but what is the same after a second time, such
    as a weight that is clamped.
    """
    method.is_recorded = True  # type: ignore[attr-defined]
    return method


class Graphs:
    """Records CUDA graphs, each for one kind of inputs of a method, and replays them.

    A graph launches all kernels that the method launched when it was recorded. Its inputs are copied into memory of its
    own: tensors, and of numbers those that are floats. All else is a part of their kind: the sizes and types of the
    tensors, integers and flags, and the values of start flags for a method that asks for them on the host, as cells do
    that read packed episodes. Inputs get a graph when their kind has come `REPEATED` times, and a method of an object
    has at most `MOST_GRAPHS` of them: whatever else comes runs as without, and `say` is told.

    An error while a graph is recorded is told, too, and such inputs run as without from then on.

    say: takes a line for the user
    """

    def __init__(self, say: Callable[[str], None]):
        self.say = say
        self.told: set[str] = set()
        self.capture = Capture()

    def __deepcopy__(self, memo: object) -> Graphs:
        return self

    def record(self, module: Any) -> None:
        """Replay graphs of the `recorded` methods of an object from now on, and of its later copies."""
        for name in dir(type(module)):
            method = getattr(type(module), name)
            if getattr(method, "is_recorded", False):
                setattr(module, name, _Method(self, method, module))

    def tell(self, name: str, why: str) -> None:
        """Tell the user once why a method runs without a graph."""
        line = f"compile=graphs: {name} runs without a graph: {why}"
        if line not in self.told:
            self.told.add(line)
            self.say(line)


class _Method:
    """A `recorded` method of an object, in the place of which it is called.

    seen: how often inputs came before they had a graph, by a digest of their kind
    graphs: by the kind of inputs
    failed: the kinds of inputs for which no graph can be recorded
    without: calls without a graph since the last with one
    reads_flags: whether the values of start flags are a part of the kind
    """

    def __init__(self, owner: Graphs, method: Callable[..., Any], module: Any):
        self.owner, self.method, self.module = owner, method, module
        self.name = method.__qualname__
        self.seen = Counter[bytes]()
        self.graphs: dict[Any, _Graph] = {}
        self.failed: set[Any] = set()
        self.without, self.reads_flags = 0, False

    def __deepcopy__(self, memo: dict[int, Any]) -> _Method:
        return _Method(self.owner, self.method, deepcopy(self.module, memo))

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """What the method returns. Where gradients are recorded, the replay of another graph may write over it.

        A call with keywords has no graph, nor has one within a method that is being recorded.
        """
        if keywords or watchers:
            return self.method(self.module, *args, **keywords)
        leaves, structure = tree_flatten(args)
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        kind = torch.is_grad_enabled(), structure, *(_kind(leaf, self.reads_flags) for leaf in leaves)
        if kind in self.failed or not inputs or (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
            return self.method(self.module, *args)
        graph, capture = self.graphs.get(kind), self.owner.capture
        if graph is None and not self._is_due(kind):
            return self.method(self.module, *args)
        self.without = 0
        run = partial(self.method, self.module)
        try:
            if graph is None:
                graph = _Graph(self.name, leaves, structure, inputs[0].device)
                result = graph.watch(capture, run)
                if graph.recording.reads_flags and not self.reads_flags:
                    self.reads_flags = True  # so that these inputs are of another kind, which is yet to come again
                else:
                    self.graphs[kind] = graph
            else:
                graph.copy(leaves)
                if graph.replay is None:
                    graph.record(capture, run)
                assert graph.replay is not None
                graph.replay()
                result = graph.result
        except Exception as error:
            if graph is not None and graph.replay is not None:
                raise
            self.failed.add(kind)
            self.graphs.pop(kind, None)
            self.owner.tell(self.name, f"it cannot be recorded ({one_line(error)})")
            return run(*args)
        return result if torch.is_grad_enabled() else tree_map_only(Tensor, Tensor.clone, result)

    def _is_due(self, kind: Any) -> bool:
        """Whether inputs of a kind without a graph are to get one."""
        self.without += 1
        if self.without == PATIENCE:
            why = "its inputs have other sizes, or episodes that lie in another way, in every call"
            self.owner.tell(self.name, why)
        if len(self.failed) >= MOST_FAILED:
            return False
        if len(self.seen) > MOST_REMEMBERED:
            self.seen.clear()
        key = blake2b(repr(kind).encode(), digest_size=16).digest()
        self.seen[key] += 1
        if self.seen[key] < REPEATED:
            return False
        if len(self.graphs) < MOST_GRAPHS:
            return True
        why = f"it has {MOST_GRAPHS} of them, and its inputs have other sizes, or episodes in another way"
        self.owner.tell(self.name, why)
        return False


class _Graph:
    """A method for one kind of inputs.

    name: of the method
    leaves: its arguments, of which tensors and floats are in memory of the graph's own
    result: what it returned when it was recorded, which every replay writes anew
    replay: writes it; None: it is not recorded yet
    """

    def __init__(self, name: str, leaves: list[Any], structure: Any, device: torch.device):
        self.name = name
        self.leaves = [_owned(leaf, device) for leaf in leaves]
        self.args = tree_unflatten(self.leaves, structure)
        self.tensors = defaultdict[torch.dtype, list[int]](list)  # the places of those of one type, copied at once
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                self.tensors[leaf.dtype].append(i)
        self.recording = Standby()
        self.result: Any = None
        self.replay: Callable[[], object] | None = None

    def copy(self, leaves: list[Any]) -> None:
        """Take the arguments of a call."""
        for places in self.tensors.values():
            torch._foreach_copy_([self.leaves[i] for i in places], [leaves[i] for i in places])
        for owned, leaf in zip(self.leaves, leaves, strict=True):
            if isinstance(leaf, Tensor):
                _known_as(leaf, owned)
            elif isinstance(leaf, float):
                owned.fill_(leaf)

    def watch(self, capture: Capture, run: Callable[..., R]) -> R:
        """Call the method as ever, on the graph's memory, so that kernels are compiled and libraries have begun.

        Raises RuntimeError where it waits for the device: in a recording that could not be mended.
        """
        with self.recording.standing_by(captures=False), capture.without_waiting():
            return run(*self.args)

    def record(self, capture: Capture, run: Callable[..., Any]) -> None:
        """Record the method; nothing is computed by that."""

        def captured() -> Any:
            with self.recording.standing_by(captures=True):
                return run(*self.args)

        self.result, self.replay = capture(captured)


def _owned(leaf: Any, device: torch.device) -> Any:
    """A copy of an input, in memory of its own; all else as it is."""
    if isinstance(leaf, Tensor):
        return _known_as(leaf, leaf.detach().clone(memory_format=torch.contiguous_format))
    return torch.tensor(leaf, device=device) if isinstance(leaf, float) else leaf


def _known_as(tensor: Tensor, owned: Tensor) -> Tensor:
    """`owned`, a copy of `tensor`, whose values the host knows if it knows those of `tensor`."""
    values = known_values(tensor)
    return owned if values is None else known(owned, values)


def _kind(leaf: Any, with_flags: bool) -> Any:
    """What one graph takes for granted of a leaf of its arguments.

    with_flags: the values of flags that the host knows, too
    """
    if isinstance(leaf, Tensor):
        values = known_values(leaf) if with_flags else None
        digest = None if values is None else blake2b(values.tobytes(), digest_size=16).digest()
        return tuple(leaf.shape), leaf.dtype, digest
    return float if isinstance(leaf, float) else leaf


class CannotRecord(RuntimeError):
    """A graph of what was called would replay numbers that belong to another call."""


class Standby:
    """Stands by while a method is recorded, as `rlmem.core.types.watchers` say.

    A graph replays the work of the device alone. What the host computes, such as the order in which episodes are
    packed, is computed once, from flags whose values the host knows. So the method runs twice before it is replayed:
    once as ever, when the arrays are kept that it brings to the device, and once to be captured, when it is given the
    same ones. A graph then holds for all inputs with the same flags.

    reads_flags: whether the values of flags were asked for on the host
    """

    def __init__(self) -> None:
        self.arrays: list[tuple[np.ndarray, Tensor]] = []
        self.reads_flags = False
        self._before: Iterator[tuple[np.ndarray, Tensor]] | None = None

    @contextmanager
    def standing_by(self, captures: bool) -> Iterator[None]:
        """Within, the method runs: as ever, or to be captured."""
        self._before = iter(self.arrays) if captures else None
        watchers.append(self)
        try:
            yield
        finally:
            watchers.remove(self)

    def bring(self, values: np.ndarray, move: Callable[[], Tensor]) -> Tensor:
        """`move()`, the values on the device; of a method that is captured, what it brought before."""
        if self._before is None:
            self.arrays.append((values.copy(), move()))
            return self.arrays[-1][1]
        before, tensor = next(self._before, (None, None))
        if before is None or tensor is None or not np.array_equal(before, values):
            raise CannotRecord("it brings other arrays to the device in every call")
        return tensor

    def ask(self, is_known: bool) -> None:
        """The values of flags are asked for on the host, where they are known or must be waited for."""
        self.reads_flags = True
        if not is_known:
            raise CannotRecord("it waits for the device")


class Capture:
    """Captures CUDA graphs, which share memory: none is replayed beside another, and what one returns lives with it."""

    def __init__(self) -> None:
        self.pool: Any = None
        self.first: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Within, what waits for the device raises RuntimeError."""
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def __call__(self, run: Callable[[], R]) -> tuple[R, Callable[[], object]]:
        """What `run` returned when it was captured, and what computes it anew."""
        if self.pool is None:
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
            self.first, _ = self._capture(lambda: torch.zeros(1, device="cuda"))  # the memory ends with its last graph
        graph, result = self._capture(run)
        return result, graph.replay

    def _capture(self, run: Callable[[], R]) -> tuple[torch.cuda.CUDAGraph, R]:
        gc.collect()  # while a graph is captured, no other may be freed
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                result = run()
            except BaseException:
                self._give_up(graph)
                raise
            graph.capture_end()
        return graph, result

    def _give_up(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a capture that failed. CUDA may have ended it by then, of which torch's allocator learns nothing."""
        pool, self.pool = self.pool, None  # the next graph has other memory
        try:
            graph.capture_end()
        except RuntimeError:
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
