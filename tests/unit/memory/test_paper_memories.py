"""FFM and SHM beyond the recordings: options, fast paths against plain ones, what is drawn, what is stored."""

import sys

import pytest
import torch
from golden_models import ffm_e
from helpers import fast_only
from python_process import run_python
from rlmem.analysis.shm import calibrations
from torch.nn import functional as F

from rlmem.memory import FFM
from rlmem.memory.ffm import periods
from rlmem.memory.shm import SHM

B, T, D = 3, 90, 6


def stream(dtype=torch.float64, seed=0, start_rate=0.1):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, D, dtype=dtype, generator=rng), torch.rand(B, T, generator=rng) < start_rate


def values_and_gradients(memory, x, start, state=None):
    """y, the final state, and the gradients of the weights, of x and of the first state."""
    x = x.clone().requires_grad_()
    state = memory.initial_state(len(x)) if state is None else state
    leaves = [s for s in torch.utils._pytree.tree_leaves(state) if s.requires_grad]
    y, final = memory(x, state, start)
    ends = [s for s in torch.utils._pytree.tree_leaves(final) if s.requires_grad]
    loss = y.sin().sum() + sum((s.abs() * 0.3).sum() for s in ends)
    weights = [p for p in memory.parameters() if p.requires_grad]
    return [y, *ends, *torch.autograd.grad(loss, [x, *leaves, *weights], allow_unused=True)]


def assert_close(ours, truth, tolerance=1e-10):
    for a, b in zip(ours, truth, strict=True):
        if a is None or b is None:
            assert a is b
        else:
            assert (a - b).abs().max() <= tolerance * max(1, b.abs().max())


@pytest.mark.parametrize("version", ["original", "memoroid"])
def test_the_closed_form_is_the_scan(version):
    """The published cumulative sum, in complex128, over several episodes and past its longest chunk."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2, 1500, D, dtype=torch.float64, generator=rng)
    start = torch.rand(2, 1500, generator=rng) < 0.01
    results = []
    for form in ("scan", "closed"):
        torch.manual_seed(0)
        memory = FFM(D, 8, 4, 2, version=version, form=form).double()
        results.append(values_and_gradients(memory, x, start, memory.initial_state(2) + 0.5))
    assert_close(*results, tolerance=1e-8)


def test_first_periods_of_ffm_are_those_of_their_name():
    assert periods("published", 1024, 4).tolist() == pytest.approx([1, 342, 683, 1024])
    assert periods("geometric", 1024, 4).tolist() == pytest.approx([2, 16, 128, 1024])
    memory = FFM(D, 8, 4, 4, init="geometric")
    torch.testing.assert_close(memory.b.detach(), 2 * torch.pi / torch.tensor([2.0, 16.0, 128.0, 1024.0]))


@pytest.mark.recorded("ffm_e", has="pub.s_form")
def test_writing_the_clipped_decay_back_is_the_standalone_package(recording):
    record = recording
    memory = ffm_e(record, clip="parameter").double()
    memory.load_symbols(record.group("w"))
    y, _ = memory(record.array("x"), record.array("state0"), record.arrays["start"])
    (y * record.array("r")).sum().backward()
    torch.testing.assert_close(memory.a.data, record.array("pub.s_form_a_after"))
    torch.testing.assert_close(memory.a.grad, record.array("pub.s_form_g_a"), rtol=1e-8, atol=1e-9)


def test_the_hadamard_ablation_has_as_many_traces_but_no_outer_sum():
    memory, whole = FFM(D, 16, 4, 3, ablation="hp"), FFM(D, 16, 4, 3)
    assert memory.state_shape == (12, 1)
    assert memory.a.shape == memory.b.shape == (12,)
    assert memory.mix.weight.shape == whole.mix.weight.shape


@pytest.mark.parametrize("ablation", ["nc", "fc", "nd", "fd"])
def test_what_an_ablation_fixes_is_not_learned(ablation):
    memory = FFM(D, 16, 4, 3, ablation=ablation)
    fixed = {"nc": memory.b, "fc": memory.b, "nd": memory.a, "fd": memory.a}[ablation]
    assert [p is fixed for p in memory.parameters() if not p.requires_grad] == [True]
    assert (memory.gamma().abs() <= 1 + 1e-6).all()


def shm(**options):
    torch.manual_seed(0)
    memory = SHM(D, 7, 5, 11, **options).double()
    with torch.no_grad():
        for name, parameter in memory.named_parameters():
            if name in ("Theta", "C"):
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return memory


def definition(memory, x, start, C):
    """SHM slot by slot from its equations; C(b, t, theta input u, c) gives the calibration."""
    w = memory.symbols()
    y = []
    for b in range(B):
        M, row = torch.zeros(5, 5, dtype=x.dtype), []
        for t in range(T):
            u = F.layer_norm(x[b, t], (D,), w["ln_scale"], w["ln_bias"])
            key, query = (torch.relu(w[n] @ u) / (1e-5 + torch.relu(w[n] @ u).sum()) for n in ("W_k", "W_q"))
            M = torch.zeros_like(M) if start[b, t] else M
            U = torch.sigmoid(w["w_eta"] @ u) * torch.outer(w["W_v"] @ u, key)
            M = M * C(b, t, u, w["W_c"] @ u) + U
            M = M if memory.limit is None else M.clamp(-memory.limit, memory.limit)
            row.append(w["W_out"] @ (M @ query + w["W_s"] @ u + w["b_s"]) + w["b_out"])
        y.append(torch.stack(row))
    return torch.stack(y)


def slot_age(start, b, t):
    begun = [s for s in range(t + 1) if start[b, s]]
    return t - (begun[-1] if begun else 0)


@pytest.mark.parametrize("calibration", ["random_theta", "none", "fixed_c", "fixed_theta", "neural_theta", "random_c"])
@pytest.mark.parametrize("limit", [None, 0.05])
def test_every_calibration_is_its_equation(calibration, limit):
    memory = shm(calibration=calibration, limit=limit)
    x, start = stream()
    w = memory.symbols()
    one = torch.ones((), dtype=torch.float64)

    def C(b, t, u, c):
        age = slot_age(start, b, t) * one
        if calibration == "none":
            return one
        if calibration == "fixed_c":
            return w["C"]
        if calibration == "random_c":
            return memory.random(memory.seed * one, age)
        theta = {
            "random_theta": lambda: w["Theta"][memory.rows(memory.seed * one, age)],
            "fixed_theta": lambda: w["Theta"][0],
            "neural_theta": lambda: w["W_theta"] @ u,
        }[calibration]()
        return 1 + torch.tanh(torch.outer(theta, c))

    y, _ = memory(x, memory.initial_state(B), start)
    assert_close([y], [definition(memory, x, start, C)])


def test_the_rows_of_theta_are_drawn_by_seed_and_age_alone():
    memory = shm()
    age = torch.arange(2000.0)
    rows = memory.rows(torch.zeros(2000), age)
    assert torch.equal(rows, memory.rows(torch.zeros(2000), age))
    counts = torch.bincount(rows, minlength=11)
    assert counts.min() > 120  # 182 expected of each
    assert counts.max() < 250
    assert (memory.rows(torch.ones(2000), age) != rows).float().mean() > 0.8


@pytest.mark.parametrize(
    "calibration",
    fast_only([], ["random_theta", "random_c", "fixed_c", "fixed_theta", "neural_theta"]),
)
def test_all_calibrations_begin_with_the_same_spread(calibration):
    found = []
    for seed in range(20):
        torch.manual_seed(seed)
        memory = SHM(64, 32, calibration=calibration)
        x = torch.randn(4, 10, 64)
        found += [C - 1 for C, _ in calibrations(memory, x, seed)]
    assert float(torch.cat(found).std()) == pytest.approx((6 / (128 + 32)) ** 0.5 / 3, rel=0.03)


def test_redrawing_changes_episodes_that_start_later_and_no_others():
    memory = shm()
    x, start = stream(start_rate=0)
    start[1, 40] = True
    _, state = memory(x[:, :20], memory.initial_state(B), start[:, :20])
    before, _ = memory(x[:, 20:], state, start[:, 20:])
    memory.redraw()
    after, _ = memory(x[:, 20:], state, start[:, 20:])
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[1, :20], before[1, :20])
    assert not torch.allclose(after[1, 25:], before[1, 25:])


def test_the_published_draws():
    x, start = stream()
    row0, fixed = shm(draw="row0"), shm(calibration="fixed_theta")
    fixed.load_symbols({name: w[:1] if name == "Theta" else w for name, w in row0.symbols().items()})
    assert_close([row0(x, row0.initial_state(B), start)[0]], [fixed(x, fixed.initial_state(B), start)[0]])
    fresh = shm(draw="fresh")
    a, b = (fresh(x, fresh.initial_state(B), start)[0] for _ in range(2))
    assert not torch.allclose(a, b)
    assert "fresh" in next(iter(fresh.breaks.values()))


@pytest.mark.slow
def test_a_wide_memory_trains_in_little_space():
    """H = 128, B = 4, T = 128 and 1024: a stored [B, T, H, H] would be 32 and 256 MiB in each of a dozen tensors."""
    code = """
import resource, torch
from rlmem.memory.shm import SHM
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for engine, slots in (("chunked", 128), ("auto", 1024)):
    memory = SHM(64, 64, 128, engine=engine)
    start = torch.zeros(4, slots, dtype=torch.bool)
    memory(torch.randn(4, slots, 64), memory.initial_state(4), start)[0].sum().backward()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    done = run_python([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    chunked, auto = map(float, done.stdout.split())
    assert chunked < 192
    assert auto < 512
