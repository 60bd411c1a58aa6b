"""`compile=graphs`: the numbers of a run without, within rounding, and a line about what cannot be recorded."""

import gc
import weakref
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import (
    TINY,
    EmulatedCapture,
    fast_only,
    make_memory,
    options,
    small_run,
    weights,
    without_time,
)
from torch.utils._pytree import tree_leaves

from rlmem.agents import graphs
from rlmem.agents.graphs import Graphs, recorded
from rlmem.core.types import on_host, to_device, with_host
from rlmem.run import assemble
from rlmem.run.assemble import choose_device

DEVICE = choose_device("auto")

FFM = ("memory=ffm", "memory.hidden_size=16")  # a step of many operators
COEFFICIENTS = ("algo.kl_coef=0.2", "algo.anneal_clip=true", "algo.ld_weight=0.3", "algo.separate=true", "on_nan=skip")
RUNS = {
    "ppo-ffm": (*FFM, "algo=ppo", *COEFFICIENTS),
    "pqn-ffm": (*FFM, "algo=pqn"),
    "dqn-tcn": ("memory=tcn", "memory.hidden_size=16", "algo=dqn"),
    "sac-mlp": ("memory=mlp", "memory.hidden_size=16", "algo=sac", "env=pendulum_p"),
}
GRAPHS = {"ppo-ffm": {"ActorCritic._step", "PPO.loss_gradients"}, "pqn-ffm": {"Trunks.step", "PQN.loss_gradients"}}
"""What is recorded; off-policy, acting alone."""
ON_POLICY = ("algo.num_minibatches=1", "algo.epochs=2", "algo.rollout_slots=64")
OFF_POLICY = (
    "algo.batch_size=64",
    "algo.learning_starts=256",
    "algo.random_steps=64",
    "algo.update_ratio=0.02",
    "algo.record_every=128",
)


def overrides(name: str, how: str, steps: int) -> list[str]:
    shared = [key for key in TINY if not key.startswith(("algo.", "env=", "total_steps", "device="))]
    algorithm = ON_POLICY if name.startswith(("ppo", "pqn")) else OFF_POLICY
    chosen = ["env=repeat_first", *RUNS[name], *shared, *algorithm, "checkpoint.every=256", "evaluation.max_steps=20"]
    return [*chosen, f"total_steps={steps}", f"compile={how}"]


def assert_same_curves(name: str, how: str) -> None:
    """The records and weights of a run with `compile=off` and of one with `compile=how`, within rounding."""
    rows, compiled_rows = without_time("off"), without_time(how)
    assert len(rows) == len(compiled_rows)
    assert any("loss" in key for row in rows for key in row)
    for row, other in zip(rows, compiled_rows, strict=True):
        assert other == pytest.approx(row, rel=1e-2, abs=1e-4, nan_ok=True)
    compiled_weights = weights(how)
    for key, value in weights("off").items():
        torch.testing.assert_close(compiled_weights[key], value, rtol=1e-2, atol=1e-4, msg=key)


@pytest.fixture
def capture(monkeypatch):
    """Graphs are recorded on a GPU, and emulated where there is none."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(graphs, "Capture", EmulatedCapture)
        monkeypatch.setattr(assemble, "_require_graphs", lambda *args: None)


@pytest.mark.gpu
@pytest.mark.parametrize("name", fast_only(["ppo-ffm"], RUNS))
def test_first_updates_in_graphs_are_those_of_a_run_without(in_tmp, name, capture, monkeypatch):
    replayed, copy = set(), graphs._Graph.copy

    def noted(graph, args):
        replayed.add(graph.name)
        copy(graph, args)

    monkeypatch.setattr(graphs._Graph, "copy", noted)
    for how in ("off", "graphs"):
        small_run(run_dir=how, base=[*overrides(name, how, 1024), f"device={DEVICE.type}"])
    assert_same_curves(name, "graphs")
    assert replayed == GRAPHS.get(name, {"Trunks.step"})
    told = [line for line in Path("graphs/log.txt").read_text().splitlines() if "without a graph" in line]
    assert not any("recorded" in line for line in told), told


class Net(torch.nn.Linear):
    """Has a method of each kind that is recorded."""

    @recorded
    def step(self, x):
        return {"y": self(x)}

    @recorded
    def same(self, x, add=0.0):
        return x + add if add else x

    @recorded
    def gradients(self, x, factor):
        self.zero_grad()
        (factor * self(x["x"]).square().mean()).backward()
        return [p.grad for p in self.parameters()]

    @recorded
    def packed(self, x, start):
        places = to_device(np.flatnonzero(on_host(start)), x.device)
        return self(x[places])

    @recorded
    def scaled(self, x):
        return x * float(x.sum())

    @recorded
    def waits(self, x, start):
        return x[on_host(start > 0).nonzero()]


@pytest.fixture
def nets(capture):
    """The same network without and with graphs, and what the latter told."""
    torch.manual_seed(0)
    plain, said = Net(4, 3).to(DEVICE), list[str]()
    ours = deepcopy(plain)
    ours.graphs = Graphs(said.append)
    ours.graphs.record(ours)
    return plain, ours, said


def kinds(net, method) -> int:
    """The graphs of a method."""
    return len(getattr(net, method).graphs)


@pytest.mark.gpu
def test_a_graph_reads_its_arguments_and_the_weights_anew(nets):
    """Floats, too. A size gets a graph once it has come back, and few of them do."""
    plain, ours, said = nets
    optimisers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets[:2]]
    for turn, rows in enumerate((5, 5, 5, 5, 5, 2, 2, 2, 2)):
        x = torch.randn(rows, 4, device=DEVICE)
        for net, optimiser in zip(nets[:2], optimisers, strict=True):
            gradients = net.gradients({"x": x}, 1.0 + turn)
            for p, gradient in zip(net.parameters(), gradients, strict=True):
                p.grad = gradient
            optimiser.step()
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
            torch.testing.assert_close(p, q)
    assert kinds(ours, "gradients") == 2
    assert not said


@pytest.mark.gpu
def test_what_acting_returns_may_be_kept(nets):
    plain, ours, _ = nets
    xs = torch.randn(8, 5, 4, device=DEVICE)
    with torch.no_grad():
        kept = [ours.step(x)["y"] for x in xs]
        for y, x in zip(kept, xs, strict=True):
            torch.testing.assert_close(y, plain.step(x)["y"])
        kept = [ours.same(x) for x in xs]
        assert all(torch.equal(y, x) for y, x in zip(kept, xs, strict=True))


def rows(*sizes):
    return [(torch.randn(size, 4, device=DEVICE),) for size in sizes]


def flagged():
    """A batch and flags, of which a method reads on the host how many there are."""
    return [(torch.randn(4, 4, device=DEVICE), torch.arange(4, device=DEVICE) > turn % 3) for turn in range(6)]


WITHOUT_A_GRAPH = {
    "few sizes": ("step", lambda: rows(5, 5, 5, 5, 2, 2, 2, 2), {"MOST_GRAPHS": 1}, 1, "it has 1 of them"),
    "other sizes": ("step", lambda: rows(1, 2, 3, 4, 5, 6), {"PATIENCE": 6}, 0, "in every call"),
    "waits": ("waits", flagged, {}, 0, "it cannot be recorded (CannotRecord: "),
    "waits on a GPU": ("scaled", lambda: rows(4, 4, 4, 4, 4, 4), {}, 0, "it cannot be recorded ("),
}
"""What is called, with what, under which limits; how many graphs it gets, and why no more."""


@pytest.mark.gpu
@pytest.mark.parametrize("case", WITHOUT_A_GRAPH)
def test_what_gets_no_graph_is_computed_without_and_told_once(nets, case, monkeypatch):
    method, inputs, limits, number, why = WITHOUT_A_GRAPH[case]
    if case.endswith("GPU") and not torch.cuda.is_available():
        pytest.skip("only a GPU is waited for")
    for name, value in limits.items():
        monkeypatch.setattr(graphs, name, value)
    plain, ours, said = nets
    with torch.no_grad():
        for given in inputs():
            torch.testing.assert_close(getattr(ours, method)(*given), getattr(plain, method)(*given))
            torch.testing.assert_close(ours.same(given[0]), plain.same(given[0]))  # costs no other method its graph
    assert kinds(ours, method) == number
    (line,) = (line for line in said if f"Net.{method}" in line)
    assert line.startswith(f"compile=graphs: Net.{method} runs without a graph: ") and why in line


@pytest.mark.gpu
def test_inputs_with_a_gradient_and_keywords_are_left_to_the_method(nets):
    _, ours, said = nets
    x = torch.randn(2, 4, device=DEVICE, requires_grad=True)
    for _ in range(2 * graphs.REPEATED):
        (grad,) = torch.autograd.grad(ours.same(x, 1.0).sum(), x)
        assert torch.equal(grad, torch.ones_like(x))
        assert torch.equal(ours.same(x.detach(), add=2.0), x + 2.0)
    assert not said


@pytest.mark.gpu
def test_a_method_that_reads_flags_on_the_host_has_a_graph_for_each_of_their_values(nets):
    plain, ours, said = nets
    flags = [np.array(row, bool) for row in ([1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0])]
    with torch.no_grad():
        for turn in (0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 2):
            x = torch.randn(4, 4, device=DEVICE)
            start = with_host(flags[turn], DEVICE)
            torch.testing.assert_close(ours.packed(x, start), plain.packed(x, start))
    assert kinds(ours, "packed") == 2
    assert not said


class Reader(torch.nn.Module):
    """A memory, as an agent steps it and as an algorithm learns from it."""

    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    @recorded
    def step(self, x, state, start):
        return self.memory.step(x, state, start)

    @recorded
    def gradients(self, x, start):
        self.zero_grad()
        y, _ = self.memory(x, self.memory.initial_state(len(x)), start)
        y.square().mean().backward()
        return [y.detach(), *(p.grad for p in self.parameters())]


@pytest.mark.gpu
@pytest.mark.parametrize("name", fast_only(["ffm", "gru"], options("memory")))
def test_every_memory_can_be_recorded(name, capture):
    """Values and gradients of a graph are those of a memory without, also after its weights have changed."""
    plain, said = Reader(make_memory(name, 8).to(DEVICE)), list[str]()
    ours = deepcopy(plain)
    Graphs(said.append).record(ours)
    flags = np.zeros((3, 9), bool)
    flags[:, 0] = flags[1, 4] = True
    close = {"rtol": 1e-4, "atol": 1e-5}
    states = [plain.memory.initial_state(3), ours.memory.initial_state(3)]
    for turn in range(graphs.REPEATED + 3):
        xs, start = torch.randn(3, 9, 8, device=DEVICE), with_host(flags, DEVICE)
        expected, found = (reader.gradients(xs, start) for reader in (plain, ours))
        for value, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            torch.testing.assert_close(value, other, **close)
        with torch.no_grad():
            begins = torch.tensor([turn == 2, False, False], device=DEVICE)
            (y, states[0]), (z, states[1]) = (
                reader.step(xs[:, 0], state, begins) for reader, state in zip((plain, ours), states, strict=True)
            )
            for value, other in zip(tree_leaves((z, states[1])), tree_leaves((y, states[0])), strict=True):
                torch.testing.assert_close(value, other, **close)
            for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
                p.mul_(1.01)
                q.mul_(1.01)
    assert not said


def test_what_is_known_of_a_module_ends_with_it_and_types_are_told_apart():
    ours = Net(4, 3)
    ours.graphs = Graphs(print)
    ours.graphs.record(ours)
    ours.graphs.capture = lambda run: (run(), int)  # as CUDA does, it keeps nothing of the module
    ours.graphs.capture.without_waiting = nullcontext
    with torch.no_grad():
        for x in (torch.randn(2, 4), torch.randn(2, 4, dtype=torch.float64)):
            ours.to(x.dtype)
            for _ in range(graphs.REPEATED + 1):
                ours.step(x)
    assert kinds(ours, "step") == 2
    graph = weakref.ref(next(iter(ours.step.graphs.values())))
    del ours
    gc.collect()
    assert graph() is None
