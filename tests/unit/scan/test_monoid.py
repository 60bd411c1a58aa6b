"""Any monoid can be scanned with resets: associativity, the definition, and memories built on it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rlmem.memory.recurrence import Memoroid
from rlmem.scan import linear_scan, monoid_scan, resettable


def affine(left, right):
    return {"a": right["a"] * left["a"], "b": right["a"] * left["b"] + right["b"]}


def matrices(left, right):
    return left @ right


def log_sum_exp(left, right):
    return torch.logaddexp(left, right)


MONOIDS = {
    "affine": (affine, {"a": torch.ones(3, dtype=torch.float64), "b": torch.zeros(3, dtype=torch.float64)}),
    "matrices": (matrices, torch.eye(3, dtype=torch.float64)),
    "log_sum_exp": (log_sum_exp, torch.full((3,), -torch.inf, dtype=torch.float64)),
}


def draw(name, rng, *leading):
    shape = (3, 3) if name == "matrices" else (3,)
    element = lambda: torch.randn(*leading, *shape, dtype=torch.float64, generator=rng)  # noqa: E731
    return {"a": element(), "b": element()} if name == "affine" else element() / 2


def assert_close(ours, truth):
    torch.testing.assert_close(ours, truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MONOIDS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), flags=st.lists(st.booleans(), min_size=3, max_size=3))
def test_the_resettable_transform_is_associative_and_keeps_the_identity(name, seed, flags):
    combine, identity = MONOIDS[name]
    operate = resettable(combine, identity)
    rng = torch.Generator().manual_seed(seed)
    x, y, z = ((torch.tensor([flag]), draw(name, rng, 1)) for flag in flags)
    assert_close(operate(operate(x, y), z), operate(x, operate(y, z)))
    one = (torch.tensor([False]), torch.utils._pytree.tree_map(lambda e: e[None], identity))
    assert_close(operate(one, x), x)
    assert_close(operate(x, one), x)


@pytest.mark.parametrize("name", MONOIDS)
@pytest.mark.parametrize("T", [1, 2, 3, 8, 13])
def test_the_parallel_form_is_the_definition_in_values_and_gradients(name, T):
    combine, identity = MONOIDS[name]
    rng = torch.Generator().manual_seed(T)
    start = torch.rand(2, T, generator=rng) < 0.3
    elements, first = draw(name, rng, 2, T), draw(name, rng, 2)
    leaves = [leaf.requires_grad_() for leaf in torch.utils._pytree.tree_leaves((elements, first))]
    results = []
    for engine in ("loop", "auto"):
        h = monoid_scan(combine, identity, elements, first, start, engine)
        total = sum(leaf.sin().sum() for leaf in torch.utils._pytree.tree_leaves(h))
        results.append((h, torch.autograd.grad(total, leaves)))
    assert_close(*results)


def test_the_affine_monoid_is_the_linear_scan():
    combine, identity = MONOIDS["affine"]
    rng = torch.Generator().manual_seed(0)
    elements = draw("affine", rng, 2, 20)
    start = torch.rand(2, 20, generator=rng) < 0.2
    h0 = draw("matrices", rng, 2)[:, 0]
    h = monoid_scan(combine, identity, elements, {"a": torch.ones_like(h0), "b": h0}, start)["b"]
    assert_close(h, linear_scan(elements["a"], elements["b"], h0, start))


class SoftMaximum(Memoroid):
    """log sum exp of everything seen, a memory that is no linear recurrence."""

    def __init__(self, input_size: int, hidden_size: int = 4):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.W_in, self.W_out = nn.Linear(input_size, 3), nn.Linear(3, hidden_size)

    def lift(self, x):
        return self.W_in(x)

    def combine(self, earlier, later):
        return torch.logaddexp(earlier, later)

    def identity(self):
        return torch.full((3,), -torch.inf, dtype=self._like_parameters().dtype)

    def read(self, h, x):
        return self.W_out(h)


def test_a_memory_on_a_monoid_needs_only_its_algebra():
    torch.manual_seed(0)
    memory = SoftMaximum(5).double()
    x = torch.randn(2, 9, 5, dtype=torch.float64)
    start = torch.zeros(2, 9, dtype=torch.bool)
    start[0, 4] = start[:, 0] = True
    y, final = memory(x, memory.initial_state(2), start)
    seen = memory.W_in(x)
    assert_close(y[0, 8], memory.W_out(torch.logsumexp(seen[0, 4:], 0)))
    assert_close(final[1], torch.logsumexp(seen[1], 0))
    state, steps = memory.initial_state(2), []
    for t in range(9):
        y_t, state = memory.step(x[:, t], state, start[:, t])
        steps.append(y_t)
    assert_close(torch.stack(steps, 1), y)
