"""The scan: every engine equals the definition, in values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.scan import linear_scan


def problem(seed, B, T, dtype, constant, start_rate=0.1):
    """Random a, b, h0, start and a cotangent; |a| about 1."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=dtype, generator=rng)  # noqa: E731
    a = draw(3, 2) if constant else draw(B, T, 3, 2)
    a = a / a.abs().clamp(min=1)
    start = torch.rand(B, T, generator=rng) < start_rate
    return a, draw(B, T, 3, 2), draw(B, 3, 2), start, draw(B, T, 3, 2)


def values_and_grads(a, b, h0, start, cotangent, engine):
    inputs = [x.clone().requires_grad_() for x in (a, b, h0)]
    h = linear_scan(*inputs, start, engine)
    loss = (h * cotangent.conj()).sum()
    return [h, *torch.autograd.grad(loss.real if loss.is_complex() else loss, inputs)]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    B=st.sampled_from([1, 7]),
    T=st.sampled_from([1, 2, 3, 63, 64, 65, 300]),
    dtype=st.sampled_from([torch.float64, torch.complex128]),
    constant=st.booleans(),
    start_rate=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_chunked_equals_the_loop_in_values_and_gradients(seed, B, T, dtype, constant, start_rate):
    case = problem(seed, B, T, dtype, constant, start_rate)
    for ours, truth in zip(values_and_grads(*case, "chunked"), values_and_grads(*case, "loop"), strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", ["loop", "chunked"])
@pytest.mark.parametrize("T", [1, 40])
def test_what_is_not_finite_does_not_survive_a_start(engine, T):
    a, b, h0, start, cotangent = problem(0, 2, T, torch.float64, constant=False)
    h0[0] = torch.inf
    h0[1] = torch.nan
    start[:, 0] = True
    h, grad_a, grad_b, grad_h0 = values_and_grads(a, b, h0, start, cotangent, engine)
    assert torch.isfinite(h).all()
    assert torch.isfinite(grad_a).all()
    assert torch.isfinite(grad_b).all()
    assert (grad_h0 == 0).all()


def test_the_scan_is_its_definition_by_hand():
    a = torch.tensor([[0.5, 0.5, 0.5]])
    b = torch.tensor([[1.0, 2.0, 3.0]])
    start = torch.tensor([[False, False, True]])
    for engine in ("loop", "chunked"):
        h = linear_scan(a, b, torch.tensor([4.0]), start, engine)
        assert h.tolist() == [[3.0, 3.5, 3.0]]
