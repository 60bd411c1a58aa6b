"""The scan: every engine that runs here equals the definition, in values and gradients."""

import pytest
import torch
from helpers import forget_kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from triton_cases import TOLERANCE

from rlmem.core.errors import UserError
from rlmem.memory.ffm import FFM
from rlmem.memory.gru import GRU
from rlmem.run.nodes import scan_engines
from rlmem.scan import chosen_engine, linear_scan, native, triton_scan

pytestmark = pytest.mark.gpu
ENGINES = ["chunked", *(["native"] if native.missing() is None else [])]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
if "cuda" in DEVICES:
    ENGINES.append("triton")


def problem(seed, B, T, dtype, constant=False, start_rate=0.1, features=(3, 2), shared=False):
    """Random a, b, h0, start and a cotangent; |a| at most 1."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda dtype, *shape: torch.randn(shape, dtype=dtype, generator=rng)  # noqa: E731
    a = draw(dtype, *features) if constant else draw(dtype, B, T, *features)
    a = a / a.abs().clamp(min=1)
    b = draw(dtype.to_real(), B, T, *features[:-1], 1) if shared else draw(dtype, B, T, *features)
    start = torch.rand(B, T, generator=rng) < start_rate
    return a, b, draw(dtype, B, *features), start, draw(dtype, B, T, *features)


def values_and_grads(a, b, h0, start, cotangent, engine, reverse=False):
    device = "cuda" if engine == "triton" else "cpu"
    inputs = [x.to(device, copy=True).requires_grad_() for x in (a, b, h0)]
    h = linear_scan(*inputs, start.to(device), engine, reverse)
    loss = (h * cotangent.to(device).conj()).sum()
    return [x.cpu() for x in (h, *torch.autograd.grad(loss.real if loss.is_complex() else loss, inputs))]


def assert_engines_equal_the_loop(case, reverse=False):
    truth = values_and_grads(*case, "loop", reverse)
    for engine in ENGINES:
        for name, x, y in zip(["h", "a", "b", "h0"], values_and_grads(*case, engine, reverse), truth, strict=True):
            assert x.shape == y.shape
            error = (x - y).abs().max().item() / max(1, y.abs().max().item())
            assert error <= TOLERANCE[case[0].dtype], f"{engine}: {name} is off by {error:.1e}"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    B=st.sampled_from([1, 7]),
    T=st.sampled_from([1, 2, 3, 15, 16, 17, 63, 64, 65, 130]),
    dtype=st.sampled_from([torch.float64, torch.complex128, torch.float32, torch.complex64]),
    constant=st.booleans(),
    start_rate=st.sampled_from([0.0, 0.1, 1.0]),
    features=st.sampled_from([(3, 2), (1,), (), (9, 60)]),
    reverse=st.booleans(),
)
def test_engines_equal_the_loop(seed, B, T, dtype, constant, start_rate, features, reverse):
    assert_engines_equal_the_loop(problem(seed, B, T, dtype, constant, start_rate, features), reverse)


LONG = [
    pytest.param(
        B, T, dtype, constant, marks=[] if T == 1000 and dtype in (torch.float32, torch.complex64) else pytest.mark.slow
    )
    for B, T in ((7, 1000), (1, 16384))
    for dtype in (torch.float64, torch.complex128, torch.float32, torch.complex64)
    for constant in (False, True)
]
"""Fast: 1,000 slots in single precision, where errors add up."""


@pytest.mark.parametrize(("B", "T", "dtype", "constant"), LONG)
def test_engines_equal_the_loop_on_long_rows(B, T, dtype, constant):
    assert_engines_equal_the_loop(problem(T, B, T, dtype, constant, 0.01))


@pytest.mark.parametrize("each", [2, 4, 5, 200, 300])
def test_a_real_input_drives_many_complex_states(each):
    assert_engines_equal_the_loop(problem(each, 3, 70, torch.complex128, True, features=(5, each), shared=True))


@pytest.fixture
def fresh_native(monkeypatch):
    """Whether and how `native` can run is asked again, as in a new process."""
    forget_kernels()
    yield
    monkeypatch.undo()
    forget_kernels()


@pytest.mark.parametrize("engine", ["loop", *ENGINES])
@pytest.mark.parametrize("T", [1, 40])
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_what_is_not_finite_does_not_survive_a_start(engine, T, bad):
    a, b, h0, start, cotangent = problem(0, 2, T, torch.float64)
    h0[0] = bad
    b[1, : T // 2] = bad
    start[:, T // 2] = True
    h, grad_a, grad_b, grad_h0 = values_and_grads(a, b, h0, start, cotangent, engine)
    for x in (h, grad_a[:, T // 2 :], grad_b):
        assert torch.isfinite(x[:, T // 2 :]).all()
    if T == 1:
        assert (grad_h0 == 0).all()


@pytest.mark.parametrize("engine", ["loop", *ENGINES])
def test_no_gradient_crosses_a_start(engine):
    a, b, h0, start, cotangent = problem(0, 2, 50, torch.float64, start_rate=0)
    start[:, 30] = True
    cotangent[:, :30] = 0
    _, grad_a, grad_b, grad_h0 = values_and_grads(a, b, h0, start, cotangent, engine)
    assert (grad_a[:, :31] == 0).all()
    assert (grad_b[:, :30] == 0).all()
    assert (grad_h0 == 0).all()
    assert (grad_b[:, 30:] != 0).any()


@pytest.mark.parametrize("engine", ["loop", *ENGINES])
def test_the_scan_is_its_definition_by_hand(engine):
    device = "cuda" if engine == "triton" else "cpu"
    a, b = (torch.tensor([x], device=device) for x in ([0.5, 0.5, 0.5], [1.0, 2.0, 3.0]))
    start, h0 = torch.tensor([[False, False, True]], device=device), torch.tensor([4.0], device=device)
    assert linear_scan(a, b, h0, start, engine).tolist() == [[3.0, 3.5, 3.0]]
    assert linear_scan(a, b, h0, start, engine, reverse=True).tolist() == [[2.75, 3.5, 3.0]]


@pytest.mark.parametrize("broken", [float("inf"), float("nan")])
@pytest.mark.parametrize("engine", ["loop", *ENGINES])
def test_a_start_keeps_what_is_not_finite_out_of_gradients(engine, broken):
    a, b, h0, start, cotangent = problem(0, 2, 12, torch.float64, start_rate=0)
    a[:, 0], start[:, 5], cotangent[:, :5] = broken, True, 0
    _, grad_a, grad_b, _ = values_and_grads(a, b, h0, start, cotangent, engine)
    assert grad_b[:, 5:].isfinite().all() and grad_a[:, 5:].isfinite().all()


def test_a_forced_engine_that_cannot_run_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"engine=native: does not run on a CUDA device; accepted on every"):
        chosen_engine("native", "cuda")
    if triton_scan.missing() or not torch.cuda.is_available():
        with pytest.raises(UserError, match="engine=triton: "):
            chosen_engine("triton", "cpu")


def test_without_a_compiler_scans_run_on_chunked_and_native_says_why(monkeypatch, fresh_native):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert "needs a C++ compiler" in native.missing(), native.missing()
    assert chosen_engine("auto") == "chunked"
    for memory, way in ((FFM(4), "chunked scan"), (GRU(4), "an operator at a time")):
        (line,) = scan_engines(memory, torch.device("cpu"))
        assert line.startswith(f"{way} (the native engine needs a C++ compiler")


def test_a_compiler_that_fails_is_quoted(monkeypatch, fresh_native, tmp_path):
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path))
    assert "false" in native.missing()
    assert not list(tmp_path.glob("*.so"))
