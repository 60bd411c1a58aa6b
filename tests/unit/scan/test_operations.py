"""Operations with compiled kernels equal their definitions, in values and gradients, with any number of threads."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from rlmem.memory import BRC, FFM, GRU, LSTM, S6, SHM, SLSTM, GatedDeltaNet
from rlmem.scan import hadamard_scan, linear_scan, native
from rlmem.scan.outer import delta_scan
from rlmem.scan.selective import selective_scan

pytestmark = pytest.mark.skipif(native.missing() is not None, reason="no C++ compiler")
B, D, F64 = 3, 4, torch.float64
BOUND = {torch.float32: 1e-4, F64: 1e-11}
"""Of an error, relative to the largest entry."""


def draw(*shape, seed=0):
    return torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def starts(T, rate=0.05):
    return torch.rand(B, T, generator=torch.Generator().manual_seed(T)) < rate


def selective(T, E=37, N=3, scale=1.0, hold=True):
    """Decays near one with a small scale, near zero with a large one."""
    inputs = [scale * F.softplus(draw(B, T, E)), draw(B, T, E, seed=1), draw(B, T, N), draw(B, T, N, seed=1)]
    return lambda engine, *x: selective_scan(*x, starts(T), hold, engine), [*inputs, -draw(E, N).exp(), draw(B, E, N)]


def gated_delta(T, k=3, v=17):
    def scan(engine, query, key, value, gate, S0):
        return delta_scan(query, key, value, (-gate).sigmoid(), S0, starts(T), F.logsigmoid(gate), engine)

    return scan, [draw(B, T, k), F.normalize(draw(B, T, k, seed=1), dim=-1), draw(B, T, v), draw(B, T), draw(B, k, v)]


def hadamard(T, size=5, limit=None):
    inputs = [*(draw(B, T, size, seed=seed) for seed in range(5)), draw(B, size, size)]
    return lambda engine, *x: hadamard_scan(*x, starts(T), limit, engine), inputs


def linear(T, N=100):
    inputs = [draw(N).clamp(-1, 1), draw(B, T, N), draw(B, N)]
    return lambda engine, *x: [linear_scan(*x, starts(T), engine)], inputs


SCANS = {
    "selective": partial(selective, 150),
    "selective in one slot": partial(selective, 1, 7, 1),
    "selective in blocks": partial(selective, 90, 64, 40, hold=False),
    "selective near one": partial(selective, 150, scale=0.001),
    "selective near zero": partial(selective, 150, scale=100.0, hold=False),
    "gated delta": partial(gated_delta, 150),
    "gated delta of one column": partial(gated_delta, 150, 1, 1),
    "gated delta in blocks": partial(gated_delta, 150, 64, 64),
    "gated delta of odd columns": partial(gated_delta, 150, 5, 115),
    "hadamard": partial(hadamard, 70),
    "hadamard in one slot": partial(hadamard, 1, 3, limit=1.5),
    "hadamard within a limit": partial(hadamard, 33, 17, limit=1.5),
    "linear": partial(linear, 30),
}
MEMORIES = {
    "gru": lambda: GRU(D, 37),
    "lstm": lambda: LSTM(D, 37),
    "slstm": lambda: SLSTM(D, 37, num_heads=1),
    "brc": lambda: BRC(D, 37),
    "brc of vectors": lambda: BRC(D, 37, recurrent="vector"),
    "ffm": lambda: FFM(D, 8, 4, 2),
    "shm": lambda: SHM(D, 8, 4),
    "s6": lambda: S6(D, 8),
    "gated_deltanet": lambda: GatedDeltaNet(D, 8, 2),
}


def values_and_gradients(function, leaves):
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    outputs = function(*leaves)
    loss = sum((y * torch.arange(y.numel()).cos().view(y.shape)).sum() for y in outputs)
    return [*outputs, *torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)]


def of_memory(memory, T, dtype):
    """Outputs, final state and gradients of a memory."""
    x, weights = draw(B, T, D).to(dtype).requires_grad_(), [p for p in memory.parameters() if p.requires_grad]
    y, state = memory(x, memory.initial_state(B), starts(T))
    gradients = torch.autograd.grad(y.square().sum(), [x, *weights], allow_unused=True, materialize_grads=True)
    return [y, *tree_leaves(state), *gradients]


def assert_near(found, truth, bound):
    for ours, other in zip(found, truth, strict=True):
        assert ours.shape == other.shape
        assert (ours - other).abs().max() <= bound * max(1, other.abs().max())


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", SCANS)
def test_a_scan_with_a_kernel_is_its_loop(name, dtype):
    scan, leaves = SCANS[name]()
    found = values_and_gradients(partial(scan, "native"), [leaf.to(dtype) for leaf in leaves])
    assert_near(found, values_and_gradients(partial(scan, "loop"), leaves), BOUND[dtype])


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("T", [1, 40])
@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_with_kernels_is_the_same_without(name, T, dtype, monkeypatch):
    torch.manual_seed(0)
    memory = MEMORIES[name]().to(dtype)
    assert native.takes(draw(B, T, D).to(dtype))
    found, plain = of_memory(memory, T, dtype), deepcopy(memory).double()
    monkeypatch.setattr(native, "takes", lambda *tensors: False)
    for part in plain.scanning():
        part.engine = "loop"
    assert_near(found, of_memory(plain, T, F64), BOUND[dtype])


@pytest.mark.parametrize("name", [*SCANS, *MEMORIES])
def test_threads_share_an_operation_without_changing_it(name, monkeypatch):
    torch.manual_seed(0)
    memory = MEMORIES[name]().double() if name in MEMORIES else None

    def found(threads):
        monkeypatch.setattr(native, "threads_for", lambda work: threads)
        if memory is not None:
            return of_memory(memory, 40, F64)
        scan, leaves = SCANS[name]()
        return values_and_gradients(partial(scan, "native"), leaves)

    alone = found(1)
    for threads in (2, 3, 7):
        assert_near(found(threads), alone, 1e-10)
