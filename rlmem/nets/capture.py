"""The recording of CUDA graphs by torch; what is recorded, and when, `rlmem.nets.graphs` decides."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch

R = TypeVar("R")


class Capture:
    """Records CUDA graphs, which share memory: none is replayed beside another, and what one returns lives with it."""

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
        """What `run` returned when it was recorded, and what computes it anew."""
        if self.pool is None:
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
            self.first, _ = self._record(lambda: torch.zeros(1, device="cuda"))  # the memory ends with its last graph
        graph, made = self._record(run)
        return made, graph.replay

    def _record(self, run: Callable[[], R]) -> tuple[torch.cuda.CUDAGraph, R]:
        gc.collect()  # while a graph is recorded, no other may be freed
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                made = run()
            except BaseException:
                self._give_up(graph)
                raise
            graph.capture_end()
        return graph, made

    def _give_up(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a recording that failed. CUDA may have ended it by then, of which torch's allocator learns nothing."""
        pool, self.pool = self.pool, None  # the next graph has other memory
        try:
            graph.capture_end()
        except RuntimeError:
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
