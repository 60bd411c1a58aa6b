"""Methods of networks that torch compiles where a run asks for it (`compile=inductor`, `compile=graphs`)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")

BACKEND = "cudagraphs"
"""torch's compiler that records CUDA graphs of a method's operators and of their gradient, and fuses nothing."""
MOST_COMPILED = 64
"""Forms of a compiled method, by the kinds of its inputs, above which torch would silently go on without compiling."""
MOST_TRACED = 1024
"""Forms of a method that torch traces for graphs: so many that what bounds them is `MOST_SIZES` of each module."""
MOST_SIZES = 8
"""Sizes of the inputs of one method of one module, for which graphs are recorded."""
REPEATED = 3
"""How often a size must have come before a graph is recorded for it: the sizes of some batches never come back."""
WARM_UP = 2
"""Calls of a size until it has a graph: torch runs the first, records the second, and replays the third."""
MOST_REMEMBERED = 10_000
"""Sizes of the inputs of one method of one module that are counted while they have no graph."""


class Compiler(ABC):
    """How the methods of an agent that are marked as `compilable` are compiled; in an agent's copies, too."""

    whole_steps: ClassVar[bool]
    """Whether to compile the steps of all memories, not only of those that are `fusible`."""
    losses: ClassVar[bool]
    """Whether to compile losses, too."""

    @abstractmethod
    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """`method(module, *args, **kwargs)`, compiled."""

    def prepare(self) -> None:
        """Set what torch is to know before the first call."""
        torch._dynamo.config.recompile_limit = MOST_COMPILED

    def __deepcopy__(self, memo: object) -> Compiler:
        return self


class Inductor(Compiler):
    """Fuses operators.

    Sizes are symbols from the first call on: code for the sizes that were seen so far would be other code, which rounds
    otherwise, in a run that was resumed. Weights are inputs of the code, so that a target network shares it.
    """

    whole_steps = False
    losses = False

    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        return cast(R, _fused(method)(module, *args, **kwargs))


class Graphs(Compiler):
    """Records CUDA graphs, each for one size of its inputs, and replays them.

    A graph launches all kernels of a method at once: those of the operators that torch traces, which are not always
    those of a run without. Engines of scans that torch cannot trace, such as `triton`, give way to `chunked`, FFM's
    fused step gives way to plain operators, and what is `derived` from weights is computed in every replay. Numbers
    stay the same within rounding. A size gets a graph when it has come `REPEATED` times, and a method of a module gets
    at most `MOST_SIZES` of them: whatever else comes runs as without, and `say` is told.

    An error in the first calls of a size is told, too, and the method is run as without. Torch may have run a part of
    it before, up to where it divides the code, and that is run again: nothing has been changed by it, as a forward
    only reads, but random numbers are drawn anew. Errors of later calls are raised, and so are those of a backward,
    which is recorded when the gradient is taken.

    say: takes a line for the user
    """

    whole_steps = True
    losses = True

    def __init__(self, say: Callable[[str], None]):
        self.say = say
        self.known: MutableMapping[Any, dict[Callable[..., Any], _Known]] = WeakIdKeyDictionary()
        self.told: set[str] = set()

    def prepare(self) -> None:
        super().prepare()
        config = torch._dynamo.config
        config.recompile_limit = config.accumulated_recompile_limit = MOST_TRACED
        if hasattr(config, "allow_rnn"):  # weights of torch's own cells are read; their kernels are not called
            config.allow_rnn = True

    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        name, known = method.__qualname__, self.known.setdefault(module, {}).setdefault(method, _Known())
        size = torch.is_grad_enabled(), *_sizes((args, kwargs))
        if size not in known.calls and not self._is_due(known, size, name):
            return method(module, *args, **kwargs)
        try:
            with self._tells_skips(name):
                made = _recorded(method)(module, *args, **kwargs)
        except Exception as error:
            if known.calls[size] >= WARM_UP:
                raise
            del known.calls[size]
            known.failed = True
            why = " ".join(str(error).strip().partition("\n\n")[0].split())
            self._tell(name, f"torch cannot record it ({why or type(error).__name__})")
            return method(module, *args, **kwargs)
        known.calls[size] += 1
        # The next replay writes over what graphs return, which without a gradient may be kept for longer.
        return made if torch.is_grad_enabled() else cast(R, tree_map_only(Tensor, Tensor.clone, made))

    def _is_due(self, known: _Known, size: Any, name: str) -> bool:
        """Whether a size without a graph is to get one."""
        if len(known.seen) > MOST_REMEMBERED:
            known.seen.clear()
        known.seen[size] += 1
        if known.seen[size] < REPEATED or known.failed:
            return False
        if len(known.calls) < MOST_SIZES:
            return True
        self._tell(name, f"it has those of {MOST_SIZES} sizes of its inputs, and other sizes come")
        return False

    @contextmanager
    def _tells_skips(self, name: str) -> Iterator[None]:
        """Tell the user why torch records no graph, if it does not."""
        from torch._inductor.cudagraph_utils import cudagraphs_log as log

        found = _Reasons()
        log.addFilter(found)
        try:
            yield
        finally:
            log.removeFilter(found)
            for why in found.reasons:
                self._tell(name, f"torch records none because of {why}")

    def _tell(self, name: str, why: str) -> None:
        line = f"compile=graphs: {name} runs without a graph: {why}"
        if line not in self.told:
            self.told.add(line)
            self.say(line)


@dataclass
class _Known:
    """What is known of one method of one module.

    seen: how often sizes of its inputs came before they had a graph
    calls: how often it was called in compiled form, by the sizes that have a graph
    failed: whether torch could not record a size, so that no other size gets a graph
    """

    seen: Counter[Any] = field(default_factory=Counter)
    calls: Counter[Any] = field(default_factory=Counter)
    failed: bool = False


class _Reasons(logging.Filter):
    """Keeps the reasons why torch records no graph, which it logs with a stack of calls, and prints nothing of them."""

    BEGINNING = "skipping cudagraphs due to "

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage().strip().partition("\n")[0]
        if not line.startswith(self.BEGINNING):
            return True
        self.reasons.append(line.rpartition(self.BEGINNING)[2].partition(". Found from")[0].partition(" (")[0])
        return False


def compilable(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """`method`, or its compiled form in modules whose attribute `compiler` is set, as it then is in their copies."""

    @wraps(method)
    def call(self: M, *args: P.args, **kwargs: P.kwargs) -> R:
        inside = torch.compiler.is_compiling()  # of another such method, whose code then includes this one
        compiler: Compiler | None = None if inside else self.__dict__.get("compiler")
        return method(self, *args, **kwargs) if compiler is None else compiler.call(method, self, args, kwargs)

    return call


# Only when it is needed: torch takes seconds to import its compiler.
@cache
def _fused(method: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(method, dynamic=True)


@cache
def _recorded(method: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(method, backend=BACKEND, dynamic=False)


def _sizes(value: Any) -> Iterator[Any]:
    """The sizes of the tensors in an argument, with their types and whether they have gradients, and the numbers and
    flags that a graph would hold as constants."""
    if isinstance(value, Tensor):
        yield tuple(value.shape), value.dtype, value.requires_grad
    elif isinstance(value, dict):
        for part in value.values():
            yield from _sizes(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _sizes(part)
    elif hasattr(value, "__dataclass_fields__"):
        yield from _sizes(vars(value))
    else:
        yield value
