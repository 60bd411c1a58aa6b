"""`precision=bf16`: products of rounded numbers, and nothing else, in the agents that ask for it and in no others.

Without the hardware, and to know what is computed, the products are emulated: rounded, then multiplied in float32.
"""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from helpers import TINY, assert_same_weights, killed_at, make_memory, small_run, without_time

import rlmem
from rlmem.agents.actor_critic import Network
from rlmem.config.compose import load
from rlmem.errors import UserError
from rlmem.loops.on_policy import RATIO_ALARM
from rlmem.memory.base import Memory
from rlmem.run.assemble import choose_device
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import plan, resume, train
from rlmem.scan import bf16, native, products, tf32
from rlmem.scan.matmul import Linear, constant_weights, linear

DEVIATION = 0.02
"""Of PPO's ratios before the first gradient step. Acting and learning differ by 1e-7 in float32; of numbers that lie as
near to the middle between two bfloat16, one is rounded up here and down there, by 2^-8 of itself."""


@pytest.fixture
def emulated(monkeypatch):
    monkeypatch.setenv("RLMEM_BF16", "emulated")


def draw(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [3, 300])
def test_inputs_are_rounded_and_sums_are_not(emulated, rows):
    x, W, b, g = draw(rows, 20), draw(8, 20), draw(8), draw(rows, 8)
    leaves = [v.clone().requires_grad_() for v in (x, W, b)]
    y = linear(*leaves, "bf16")
    found = [y, *torch.autograd.grad(y, leaves, g)]
    X, V, G = (v.bfloat16().double() for v in (x, W, g))
    for ours, truth in zip(found, (X @ V.t() + b, G @ V, G.t() @ X, g.double().sum(0)), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), truth, rtol=1e-5, atol=1e-5)
    assert not torch.equal(y, linear(x, W, b))
    assert torch.equal(linear(x.double(), W.double(), None, "bf16"), linear(x.double(), W.double()))


def test_constant_weights_are_rounded_once_and_anew_when_they_change(emulated):
    layer, x = Linear(20, 8), draw(3, 20)
    layer.precision = "bf16"
    with torch.no_grad(), constant_weights():
        first = layer(x)
        assert torch.equal(layer(x), first)
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x) - layer.bias, 2 * (first - layer.bias))


def of_precision(memory: Memory, precision: str) -> Memory:
    for module in memory.modules():
        if isinstance(module, Linear | Memory):
            module.precision = precision
    return memory


@pytest.mark.parametrize("name", ["ffm", "gru", "lstm", "lru", "gpt", "fwp"])
def test_a_memory_in_bf16_is_the_same_apart_from_rounding(emulated, name):
    """In steps and at once, values and gradients; and it does round."""
    memory, x, start = make_memory(name, 6), draw(2, 40, 6), torch.zeros(2, 40, dtype=torch.bool)
    start[0, 13] = True
    exact, rounded = deepcopy(memory), of_precision(memory, "bf16")

    def values_and_gradients(memory: Memory) -> list[torch.Tensor]:
        y, _ = memory(x, memory.initial_state(2), start)
        used = [p for p in memory.parameters() if p.requires_grad]
        return [y, *torch.autograd.grad(y.square().mean(), used, allow_unused=True)]

    found, truth = values_and_gradients(rounded), values_and_gradients(exact)
    assert not torch.equal(found[0], truth[0])
    for ours, expected in zip(found, truth, strict=True):
        if expected is not None:
            assert (ours - expected).abs().max() <= 0.1 * expected.abs().max().clamp(min=1e-3)
    state, outputs = rounded.initial_state(2), []
    with torch.no_grad():
        for t in range(40):
            y, state = rounded.step(x[:, t], state, start[:, t])
            outputs.append(y)
    torch.testing.assert_close(torch.stack(outputs, 1), found[0], rtol=0, atol=0.02)


RUN = (*TINY, "memory=ffm", "memory.hidden_size=16", "algo.epochs=2", "total_steps=512", "checkpoint.every=128")


@pytest.mark.parametrize(
    "memory", ["ffm", "gru", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lstm", "lru", "gpt", "mlstm"))]
)
def test_the_replay_invariant_has_a_bound_of_its_own(in_tmp, emulated, memory):
    small_run(f"memory={memory}", "precision=bf16", base=RUN)
    deviations = [row["ppo/ratio_max_dev"] for row in without_time("run") if "ppo/ratio_max_dev" in row]
    assert len(deviations) > 3 and max(deviations) < DEVIATION


def test_a_killed_run_resumes_exactly_and_keeps_its_precision(in_tmp, emulated, monkeypatch):
    small_run("precision=bf16", run_dir="whole", base=RUN)
    with killed_at(3):
        small_run("precision=bf16", run_dir="cut", base=RUN)
    resume(Path("cut"), [])
    assert_same_weights("whole", "cut")
    assert without_time("whole") == without_time("cut")
    small_run(run_dir="float32", base=RUN)
    assert without_time("whole") != without_time("float32")
    path = rlmem.Run("whole").export(episodes=1)  # which compares the file with the agent
    assert path.exists()
    rounds, exact = (rlmem.load(name) for name in ("whole", "float32"))
    precisions = lambda network: {m.precision for m in network.modules() if isinstance(m, Linear | Memory)}  # noqa: E731
    assert precisions(rounds.network) == {"bf16"} and precisions(deepcopy(exact.network)) == {"float32"}
    monkeypatch.delenv("RLMEM_BF16")
    monkeypatch.setattr(bf16, "processor_features", lambda: "flags : avx2")
    with pytest.raises(UserError, match=r"precision=bf16: this processor has no .*avx512_bf16.*precision=float32"):
        rlmem.load("whole")


def test_agents_of_both_precisions_act_side_by_side(emulated):
    layers = [Linear(20, 8), Linear(20, 8)]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[1].precision = "bf16"
    x = draw(300, 20)
    apart = [layer(x) for layer in layers]
    for _ in range(2):
        for layer, y in zip(layers, apart, strict=True):
            assert torch.equal(deepcopy(layer)(x), y)
    assert not torch.equal(*apart)


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.delenv("RLMEM_BF16", raising=False)
    if why := bf16.missing(torch.device("cpu")):
        pytest.skip(why)


SHAPES = [(1, 1, 1), (5, 3, 2), (6, 64, 64), (97, 513, 70), (300, 1030, 129), (13, 0, 7), (0, 4, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_the_kernel_is_the_definition(kernel, shape, turned):
    """Whole and broken blocks of rows, columns and depth; matrices as they are stored and transposed."""
    (n, D, H), kept = shape, lambda M, turn: M.t().contiguous().t() if turn else M
    x, W, b = kept(draw(n, D), turned[0]), kept(draw(H, D), turned[1]), draw(H)
    for bias in (b, None):
        y = products.bf16_product(x, W, bias)
        truth = bf16.rounded(x).double() @ bf16.rounded(W).double().t() + (0 if bias is None else b)
        torch.testing.assert_close(y.double(), truth, rtol=2e-6, atol=1e-6 * D)


def test_the_kernel_computes_a_layer_and_its_gradients(kernel, monkeypatch):
    leaves, g = [v.requires_grad_() for v in (draw(300, 20), draw(8, 20), draw(8))], draw(300, 8)
    found, calls = [], []
    monkeypatch.setattr(
        products, "bf16_product", lambda *a, kernel=products.bf16_product: calls.append(a) or kernel(*a)
    )
    for emulated in (False, True):
        if emulated:
            monkeypatch.setenv("RLMEM_BF16", "emulated")
        y = linear(*leaves, "bf16")
        found.append([y, *torch.autograd.grad(y, leaves, g)])
        assert len(calls) == 3, "forward, and the gradients of x and W"
    torch.testing.assert_close(*found, rtol=0, atol=1e-4)


def test_the_kernel_carries_on_what_is_not_finite(kernel):
    x = draw(70, 20)
    x[3, 4], x[5, 6] = torch.nan, torch.inf
    y = products.bf16_product(x, draw(8, 20).abs(), None)
    assert y[3].isnan().all() and y[5].isposinf().all() and y[[0, 1, 2, 4, *range(6, 70)]].isfinite().all()


def test_threads_share_the_kernels_rows(kernel):
    x, W, before = draw(5000, 40), draw(24, 40), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = products.bf16_product(x, W, None)
        torch.set_num_threads(3)
        assert torch.equal(products.bf16_product(x, W, None), alone)
    finally:
        torch.set_num_threads(before)


def test_shapes_that_do_not_fit_are_said(kernel):
    with pytest.raises(ValueError, match=r"x \[3, 20\], W \[8, 19\] and b None do not fit"):
        products.bf16_product(draw(3, 20), draw(8, 19), None)


def test_a_parameter_of_that_name_is_its_modules_own():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.precision, self.layer = torch.nn.Parameter(torch.ones(3)), Linear(3, 3)

    network = Network()
    network.own = Own()
    network.compute_in("bf16")
    assert network.own.layer.precision == "bf16" and torch.equal(network.own.precision, torch.ones(3))


def test_graphs_in_bf16_are_refused(in_tmp, emulated):
    with pytest.raises(UserError, match=r"compile=graphs: .* precision=bf16; .*e\.g\. compile=off"):
        plan(load([*TINY, "precision=bf16", "compile=graphs"]))


def test_an_older_torch_is_said(monkeypatch):
    monkeypatch.delenv("RLMEM_BF16", raising=False)
    monkeypatch.setattr(torch.ops.aten, "mm", None)
    assert f"torch {torch.__version__} has no such products" in bf16.missing(torch.device("cuda"))


def test_hardware_and_compiler_decide(in_tmp, monkeypatch):
    monkeypatch.delenv("RLMEM_BF16", raising=False)
    monkeypatch.setattr(bf16, "processor_features", lambda: "flags : avx512f avx512_bf16")
    monkeypatch.setattr(native, "exports", lambda name: True)
    assert bf16.missing(torch.device("cpu")) is None
    monkeypatch.setattr(native, "exports", lambda name: False)
    monkeypatch.setattr(native, "missing", lambda: "needs a C++ compiler, and none is installed")
    assert bf16.missing(torch.device("cpu")) == "no kernel: needs a C++ compiler, and none is installed"
    monkeypatch.setattr(bf16, "processor_features", lambda: "flags : avx2")
    with pytest.raises(UserError, match="precision=bf16: this processor has no instructions for it"):
        small_run("precision=bf16")


GAMES = {  # the settings, the best return and a random agent's
    "position_only_cartpole": (("env=position_only_cartpole", "env.level=easy", "total_steps=80000"), 1.0, 0.1),
    "repeat_first": (("env=repeat_first", "env.level=easy", "total_steps=80000"), 1.0, -0.5),
}
LEARNS = (
    "memory=gru", "memory.hidden_size=32", "encoder.hidden_size=32", "algo=ppo", "env.num_envs=16",
    "algo.rollout_slots=64", "algo.lr=0.001", "evaluation.every=null", "evaluation.episodes=2", "device=cpu",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("game", GAMES)
def test_learning_is_equal(in_tmp, monkeypatch, game):
    """Three seeds each; mean returns differ by less than a tenth of what there is to win. By the kernel, if any."""
    monkeypatch.delenv("RLMEM_BF16", raising=False)
    if bf16.missing(torch.device("cpu")):
        monkeypatch.setenv("RLMEM_BF16", "emulated")
    (settings, best, chance), means = GAMES[game], {}
    for precision in ("float32", "bf16"):
        scores = []
        for seed in range(3):
            where = f"{precision}-{seed}"
            train(load([*LEARNS, *settings, f"precision={precision}", f"seed={seed}", f"run_dir={where}"]))
            scores.append(evaluate_run(Path(where), episodes=200)["greedy"]["return_mean"])
        means[precision] = sum(scores) / 3
        print(game, precision, scores)
    assert means["float32"] > chance + 0.7 * (best - chance), means
    assert abs(means["bf16"] - means["float32"]) < 0.1 * (best - chance), means


def test_tf32_rounds_to_ten_bits_of_mantissa():
    """Ties go away from zero; what is not finite stays."""
    ulp = 2.0**-10
    x = torch.tensor([1 + ulp / 2, -1 - ulp / 2, 1 + ulp / 2.001, 1 + ulp, 0.0, torch.inf, -torch.inf])
    assert tf32.rounded(x).tolist() == [1 + ulp, -1 - ulp, 1, 1 + ulp, 0, torch.inf, -torch.inf]
    nan = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    assert tf32.rounded(nan).isnan().all()


def test_products_in_tf32_are_those_of_rounded_numbers_both_ways():
    x, W, b, g = draw(300, 20), draw(8, 20), draw(8), draw(300, 8)
    leaves = [v.clone().requires_grad_() for v in (x, W, b)]
    y = linear(*leaves, "tf32")
    found = [y, *torch.autograd.grad(y, leaves, g)]
    X, V, G = (tf32.rounded(v).double() for v in (x, W, g))
    for ours, truth in zip(found, (X @ V.t() + b, G @ V, G.t() @ X, g.double().sum(0)), strict=True):
        torch.testing.assert_close(ours.double(), truth, rtol=1e-5, atol=1e-5)
    assert not torch.equal(y, linear(x, W, b))
    assert torch.equal(linear(x.double(), W.double(), None, "tf32"), linear(x.double(), W.double()))


@pytest.mark.gpu
def test_products_in_tf32_are_off_by_its_rounding_and_others_are_not():
    """Forward and backward, on a GPU by its own instructions."""
    device = choose_device("auto")
    x, W, g = draw(300, 256).to(device), draw(64, 256).to(device), draw(300, 64).to(device)

    def off(precision: str) -> float:
        leaves = [v.clone().requires_grad_() for v in (x, W)]
        y = linear(*leaves, None, precision)
        found = [y, *torch.autograd.grad(y, leaves, g)]
        truth = [x.double() @ W.double().t(), g.double() @ W.double(), g.double().t() @ x.double()]
        return max(float((v.detach() - w).norm() / w.norm()) for v, w in zip(found, truth, strict=True))

    assert off("float32") < 1e-6
    assert 1e-5 < off("tf32") < 1e-3
    assert off("float32") < 1e-6, "the precision of one product is not left behind"


@pytest.mark.parametrize("memory", ["ffm", "gru"])
def test_the_replay_invariant_has_a_bound_in_tf32(in_tmp, memory, capsys):
    small_run(f"memory={memory}", "precision=tf32", base=RUN)
    deviations = [row["ppo/ratio_max_dev"] for row in without_time("run") if "ppo/ratio_max_dev" in row]
    assert len(deviations) > 3 and max(deviations) < RATIO_ALARM["tf32"]
    assert rlmem.load("run").network.computes_in == "tf32"


def test_graphs_accept_tf32(in_tmp):
    with pytest.raises(UserError, match=r"compile=graphs: CUDA graphs need a GPU"):
        plan(load([*TINY, "precision=tf32", "compile=graphs", "device=cpu"]))
