"""Methods of networks that torch compiles where a run asks for it (`compile=inductor`, `compile=graphs`)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")

BACKEND = "cudagraphs"
"""torch's compiler that records CUDA graphs of a method's operators and of their gradient, and fuses nothing."""
MOST_COMPILED = 64
"""Forms of a compiled method, by the kinds of its inputs, above which torch would silently go on without compiling."""
MOST_SIZES = 8
"""Sizes of the inputs of one method of one module, for which graphs are recorded."""
REPEATED = 3
"""How often a size must have come before a graph is recorded for it: the sizes of some batches never come back."""
MOST_REMEMBERED = 10_000
"""Sizes without a graph that are counted."""


class Compiler(ABC):
    """How the methods of an agent that are marked as `compilable` are compiled; in an agent's copies, too."""

    whole_steps: ClassVar[bool]
    """Whether to compile the steps of all memories, not only of those that are `fusible`."""

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

    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        return cast(R, _fused(method)(module, *args, **kwargs))


class Graphs(Compiler):
    """Records CUDA graphs, each for one size of its inputs, and replays them.

    A graph launches all kernels of a method at once. They are those of a run without graphs, so numbers stay the same
    but for the order in which some gradients are summed. A size gets a graph when it has come `REPEATED` times, and a
    method of a module gets at most `MOST_SIZES` of them: whatever else comes runs as without, and `say` is told.

    say: takes a line for the user
    """

    whole_steps = True

    def __init__(self, say: Callable[[str], None]):
        self.say = say
        self.seen = Counter[Any]()
        self.recorded: dict[Any, set[Any]] = {}
        self.told: set[str] = set()

    def prepare(self) -> None:
        super().prepare()
        config = torch._dynamo.config
        config.recompile_limit = config.accumulated_recompile_limit = 1024  # `MOST_SIZES` is the bound
        if hasattr(config, "allow_rnn"):  # weights of torch's own cells are read; their kernels are not called
            config.allow_rnn = True

    def call(self, method: Callable[..., R], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        owner, size = (method, id(module)), (torch.is_grad_enabled(), *_sizes((args, kwargs)))
        recorded = self.recorded.setdefault(owner, set())
        if size not in recorded and not self._is_due(owner, size, method.__qualname__):
            return method(module, *args, **kwargs)
        try:
            with self._skips(method.__qualname__):
                made = _recorded(method)(module, *args, **kwargs)
            recorded.add(size)
        except torch._dynamo.exc.TorchDynamoException as error:  # nothing has been computed yet
            self.recorded[owner] = _Nothing()
            why = " ".join(str(error).strip().partition("\n\n")[0].split())
            self._tell(method.__qualname__, f"torch cannot trace it ({why})")
            return method(module, *args, **kwargs)
        # The next replay writes over what graphs return, which without a gradient may be kept for longer.
        return made if torch.is_grad_enabled() else cast(R, tree_map_only(Tensor, Tensor.clone, made))

    def _is_due(self, owner: Any, size: Any, name: str) -> bool:
        """Whether a size without a graph is to get one."""
        if len(self.seen) > MOST_REMEMBERED:
            self.seen.clear()
        self.seen[owner, size] += 1
        if self.seen[owner, size] < REPEATED or isinstance(self.recorded[owner], _Nothing):
            return False
        if len(self.recorded[owner]) < MOST_SIZES:
            return True
        self._tell(name, f"it has those of {MOST_SIZES} sizes of its inputs, and other sizes come")
        return False

    @contextmanager
    def _skips(self, name: str) -> Iterator[None]:
        """Tell the user why torch records no graph, if it does not."""
        from torch._inductor.cudagraph_utils import cudagraphs_log as log

        found = _Kept()
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


class _Nothing(set[Any]):
    """The sizes with graphs of a method that torch cannot trace."""


class _Kept(logging.Filter):
    """Keeps the reasons that torch logs, each with a stack of calls, and prints nothing of them."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage().strip().splitlines()[0]
        self.reasons.append(line.split("due to ")[-1].split(". Found from")[0].split(" (")[0])
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
    """The sizes of the tensors in an argument, and the numbers and flags that a graph would hold as constants."""
    if isinstance(value, Tensor):
        yield tuple(value.shape)
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
