"""`compile=inductor` and `compile=graphs`: the numbers of a run without, within rounding; exact resume in a process of
its own; and what cannot be compiled is said."""

import functools
import gc
import logging
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from functorch.compile import make_boxed_func
from helpers import TINY, assert_same_weights, killed_at, make_memory, options, small_run, weights, without_time
from torch._dynamo.backends.common import aot_autograd

from rlmem.errors import UserError
from rlmem.nets import compiled
from rlmem.nets.compiled import Graphs
from rlmem.nets.heads import QHead
from rlmem.nets.layers import HeadLayers
from rlmem.run import assemble

RUNS = {
    "ppo-gru": ("memory=gru", "memory.hidden_size=16", "algo=ppo"),  # a recurrence with kernels, left as it is
    "dqn-tcn": ("memory=tcn", "memory.hidden_size=16", "algo=dqn"),  # a memory that is fused
    "sac-mlp": ("memory=mlp", "memory.hidden_size=16", "algo=sac", "env=pendulum_p"),
}
RUNS_IN_GRAPHS = RUNS | {"ppo-ffm": ("memory=ffm", "memory.hidden_size=16", "algo=ppo")}  # a step of many operators
ON_POLICY = ("algo.num_minibatches=1", "algo.epochs=2", "algo.rollout_slots=64")
OFF_POLICY = (
    "algo.batch_size=64",
    "algo.learning_starts=256",
    "algo.random_steps=64",
    "algo.update_ratio=0.02",
    "algo.record_every=128",
)


def overrides(name: str, how: str, steps: int) -> list[str]:
    shared = [key for key in TINY if not key.startswith(("algo.", "env=", "total_steps"))]
    algorithm = ON_POLICY if name.startswith("ppo") else OFF_POLICY
    chosen = ["env=repeat_first", *RUNS_IN_GRAPHS[name], *shared, *algorithm, "checkpoint.every=256"]
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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUNS)
def test_first_updates_are_those_of_a_run_without(in_tmp, name):
    for how in ("off", "inductor"):
        small_run(run_dir=how, base=overrides(name, how, 512))
    assert_same_curves(name, "inductor")


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUNS_IN_GRAPHS)
def test_first_updates_in_graphs_are_those_of_a_run_without(in_tmp, name, monkeypatch):
    """On a CPU, torch traces the same graphs for the same backend, and runs them operator by operator."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(assemble, "_require_compiler", lambda *args: None)
    for how in ("off", "graphs"):
        small_run(run_dir=how, base=overrides(name, how, 1024))
    assert_same_curves(name, "graphs")
    told = [line for line in Path("graphs/log.txt").read_text().splitlines() if "without a graph" in line]
    if torch.cuda.is_available():
        assert not any("torch" in line for line in told), told
    else:
        assert len(told) > 1 and all("because of cpu device" in line for line in told)


def test_graphs_have_the_values_and_gradients_of_a_network_without(monkeypatch):
    """Also after a step of the optimiser; a size gets a graph once it has come back, and few of them do."""
    monkeypatch.setattr(compiled, "MOST_SIZES", 1)
    torch.manual_seed(0)
    plain, said = QHead(4, 3, HeadLayers((8,)), dueling=True), list[str]()
    graphs = Graphs(said.append)
    ours, optimisers = deepcopy(plain), []
    for head in (plain, ours):
        optimisers.append(torch.optim.Adam(head.parameters(), lr=0.1))
    for module in ours.modules():
        module.compiler = graphs
    for rows in (5, 5, 5, 5, 2, 2, 2):
        x = torch.randn(rows, 4)
        losses = [head(x).square().mean() for head in (plain, ours)]
        for loss, optimiser in zip(losses, optimisers, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        torch.testing.assert_close(*losses)
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    ((known,),) = [methods.values() for methods in graphs.known.values()]
    assert len(known.calls) == 1
    assert [line.removeprefix("compile=graphs: QHead.forward runs without a graph: ") for line in said] == [
        "torch records none because of cpu device",
        "it has those of 1 sizes of its inputs, and other sizes come",
    ]


def test_what_torch_cannot_trace_runs_without_a_graph(monkeypatch):
    def fails(graph: torch.fx.GraphModule, inputs: object):
        raise NotImplementedError("it cannot be recorded")

    monkeypatch.setattr(compiled, "BACKEND", fails)
    monkeypatch.setattr(compiled, "_recorded", compiled._recorded.__wrapped__)
    plain, said = QHead(4, 3, HeadLayers((8,))), list[str]()
    ours, x = deepcopy(plain), torch.randn(2, 4)
    ours.compiler = Graphs(said.append)
    for _ in range(5):
        assert torch.equal(ours(x), plain(x))
    (line,) = said
    assert line.startswith("compile=graphs: QHead.forward runs without a graph: torch cannot record it (")
    assert "it cannot be recorded" in line


def test_an_error_in_the_first_calls_of_a_size_is_told_and_a_later_one_raised(monkeypatch):
    plain, said, calls = QHead(4, 3, HeadLayers((8,))), list[str](), list[int]()

    def recorded(method):
        def call(*args):
            calls.append(len(args[1]))
            if calls.count(5) == 2 or calls.count(2) == 4:  # rows: what fails when it is recorded, and later
                raise RuntimeError("no memory\n\nand more")
            return method(*args)

        return call

    monkeypatch.setattr(compiled, "_recorded", recorded)
    ours = deepcopy(plain)
    ours.compiler = Graphs(said.append)
    for rows in (*[2] * 5, *[5] * 6):
        x = torch.randn(rows, 4)
        assert torch.equal(ours(x), plain(x))
    assert calls == [2, 2, 2, 5, 5], "no graph after an error"
    assert said == ["compile=graphs: QHead.forward runs without a graph: torch cannot record it (no memory)"]
    with pytest.raises(RuntimeError, match="no memory"):
        ours(torch.randn(2, 4))


def test_what_is_known_of_a_module_ends_with_it_and_types_are_told_apart(monkeypatch):
    monkeypatch.setattr(compiled, "_recorded", lambda method: method)
    head, graphs = QHead(4, 3, HeadLayers((8,))), Graphs(print)
    head.compiler = graphs
    x = torch.randn(2, 4)
    for given in (x, x.clone().requires_grad_()):
        for _ in range(compiled.REPEATED):
            head(given)
    ((known,),) = [methods.values() for methods in graphs.known.values()]
    assert len(known.calls) == 2
    assert len({*compiled._sizes(x), *compiled._sizes(x.double())}) == 2
    del head, known
    gc.collect()
    assert not len(graphs.known)


def test_only_reasons_are_kept_from_the_log():
    reasons = compiled._Reasons()
    lines = [
        "",
        "CUDAGraph supports dynamic shapes by recording",
        "skipping cudagraphs due to skipping cudagraphs due to mutated inputs (1 of them)",
    ]
    records = [logging.LogRecord("torch", logging.WARNING, "", 0, line, (), None) for line in lines]
    assert [reasons.filter(record) for record in records] == [True, True, False]
    assert reasons.reasons == ["mutated inputs"]


@pytest.mark.parametrize(
    "name", [*(p if p == "ffm" else pytest.param(p, marks=pytest.mark.slow) for p in options("memory"))]
)
def test_a_step_of_every_memory_can_be_recorded(name):
    """On a device that is not the CPU, it is one graph, in which nothing lies on the CPU; and so is a read of those
    that are fusible."""
    torch.compiler.reset()  # `Memory.step` is the code of many
    memory, devices = make_memory(name, 8).to("meta"), set[str]()

    def look(graph: torch.fx.GraphModule, inputs: object):
        found = (node.meta.get("val") for node in graph.graph.nodes)
        devices.update(value.device.type for value in found if isinstance(value, torch.Tensor))
        return make_boxed_func(graph.forward)

    x, start = torch.randn(3, 5, 8, device="meta"), torch.zeros(3, 5, dtype=torch.bool, device="meta")
    one = functools.partial(torch.compile, backend=aot_autograd(fw_compiler=look), fullgraph=True, dynamic=False)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        y, _ = one(type(memory).step)(memory, x[:, 0], memory.initial_state(3), start[:, 0])
        assert y.shape == (3, memory.output_size)
        if memory.fusible:
            y, _ = one(type(memory).forward)(memory, x, memory.initial_state(3), start)
            assert y.shape == (3, 5, memory.output_size)
    assert devices == {"meta"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["ppo-gru", "dqn-tcn"])
def test_a_killed_run_resumes_exactly(in_tmp, name):
    small_run(run_dir="whole", base=overrides(name, "inductor", 1024))
    with killed_at(5):
        small_run(run_dir="cut", base=overrides(name, "inductor", 1024))
    resumed = [sys.executable, "-m", "rlmem", "resume", "cut"]  # compiles anew, in another order of sizes
    subprocess.run(resumed, check=True, timeout=600, capture_output=True)
    assert_same_weights("whole", "cut")


def test_a_machine_that_cannot_compile_says_so(in_tmp, monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(UserError, match=r"compile=inductor: .*no compiler.*compile=off"):
        small_run("compile=inductor")
    assert not Path("run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_graphs_without_a_gpu_are_refused(in_tmp):
    with pytest.raises(UserError, match=r"compile=graphs: CUDA graphs need a GPU.*cpu; accepted: off, inductor"):
        small_run("compile=graphs")
    assert not Path("run").exists()
