"""Losses, advantages and distributions against slow definitions, recordings and torch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions as reference

from rlmem.losses.ppo import adapt_kl_coef, clipped_surrogate, value_error
from rlmem.losses.reduce import masked_mean, standardise
from rlmem.losses.returns import gae
from rlmem.nets.distributions import Categorical, Gaussian, MultiCategorical

DATA = __file__.replace("test_losses.py", "data/golden")


@pytest.mark.parametrize("name", ["returns_T17", "returns_T64"])
def test_gae_equals_the_recording(name):
    """The recording is per step with a next value; here each cut adds a slot that holds that value."""
    golden = np.load(f"{DATA}/{name}.npz")
    B, T = golden["reward"].shape
    for row in range(B):
        reward, value, terminated, mask, expected = [], [], [], [], []
        for t in range(T):
            reward.append(golden["reward"][row, t])
            value.append(golden["value"][row, t])
            terminated.append(bool(golden["terminated"][row, t]))
            mask.append(True)
            expected.append(golden["gae"][row, t])
            if golden["terminated"][row, t] or golden["truncated"][row, t] or t == T - 1:
                reward.append(0.0)
                value.append(golden["next_value"][row, t])
                terminated.append(False)
                mask.append(False)
                expected.append(0.0)
        tensors = [torch.tensor([x]) for x in (reward, value, terminated, mask)]
        ours = gae(*tensors, float(golden["gamma"]), float(golden["lam"]))
        np.testing.assert_allclose(ours[0], expected, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), gamma=st.floats(0, 1), lam=st.floats(0, 1), T=st.integers(2, 70))
def test_gae_equals_the_sum_that_defines_it(seed, gamma, lam, T):
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=T), rng.normal(size=T)
    terminated, mask = rng.random(T) < 0.1, rng.random(T) < 0.9
    terminated &= mask
    mask[-1] = False
    expected = np.zeros(T)
    for t in range(T):
        weight, k = 1.0, t
        while mask[k]:
            nonterminal = 0.0 if terminated[k] else 1.0
            expected[t] += weight * (reward[k] + gamma * nonterminal * value[k + 1] - value[k])
            weight *= gamma * lam * nonterminal
            k += 1
    ours = gae(*[torch.tensor(x[None]) for x in (reward, value, terminated, mask)], gamma, lam)
    np.testing.assert_allclose(ours[0], expected, atol=1e-9)


def test_a_truncation_bootstraps_and_a_termination_does_not():
    reward = torch.tensor([[1.0, 0.0]])
    value = torch.tensor([[0.5, 10.0]])
    mask = torch.tensor([[True, False]])
    truncated = gae(reward, value, torch.tensor([[False, False]]), mask, 0.9, 0.95)
    terminated = gae(reward, value, torch.tensor([[True, False]]), mask, 0.9, 0.95)
    assert truncated[0, 0].item() == pytest.approx(1 + 0.9 * 10 - 0.5)
    assert terminated[0, 0].item() == pytest.approx(1 - 0.5)


def test_clipped_surrogate_by_hand():
    log_ratio = torch.tensor([[1.5, 1.5, 0.5, 0.5, 1.1]]).log()
    advantage = torch.tensor([[1.0, -1.0, 1.0, -1.0, 2.0]])
    loss = clipped_surrogate(log_ratio, torch.zeros(1, 5), advantage, 0.2)
    torch.testing.assert_close(loss, torch.tensor([[-1.2, 1.5, -0.5, 0.8, -2.2]]))


def test_value_error_clamps_and_then_has_no_gradient():
    value = torch.tensor([[1.0, 5.0]], requires_grad=True)
    error = value_error(value, torch.zeros(1, 2), clamp=10.0)
    assert error.tolist() == [[1.0, 10.0]]
    error.sum().backward()
    assert value.grad.tolist() == [[2.0, 0.0]]


def test_the_kl_coefficient_moves_towards_the_target():
    assert adapt_kl_coef(0.2, kl=0.03, target=0.01) == pytest.approx(0.3)
    assert adapt_kl_coef(0.2, kl=0.001, target=0.01) == pytest.approx(0.1)
    assert adapt_kl_coef(0.2, kl=0.012, target=0.01) == 0.2


def test_what_is_masked_has_no_effect_not_even_nan():
    mask = torch.tensor([[True, False, True]])
    x = torch.tensor([[1.0, torch.nan, 3.0]], requires_grad=True)
    mean = masked_mean(x, mask)
    mean.backward()
    assert mean.item() == 2
    assert x.grad.tolist() == [[0.5, 0.0, 0.5]]
    assert masked_mean(x, torch.zeros_like(mask)).item() == 0
    z = standardise(x.detach(), mask)
    torch.testing.assert_close(z[mask], torch.tensor([-1.0, 1.0]))


def pairs():
    rng = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=rng)  # noqa: E731
    logits, other = draw(5, 7), draw(5, 7)
    yield (
        Categorical(logits),
        Categorical(other),
        reference.Categorical(logits=logits),
        reference.Categorical(logits=other),
    )
    mean, log_std, mean2, log_std2 = draw(5, 3), draw(5, 3), draw(5, 3), draw(5, 3)
    normal = lambda m, s: reference.Independent(reference.Normal(m, s.exp()), 1)  # noqa: E731
    yield Gaussian(mean, log_std), Gaussian(mean2, log_std2), normal(mean, log_std), normal(mean2, log_std2)


@pytest.mark.parametrize("case", list(pairs()), ids=["categorical", "gaussian"])
def test_distributions_equal_torchs(case):
    ours, other, truth, truth_other = case
    action = ours.sample(torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours.log_prob(action), truth.log_prob(action))
    torch.testing.assert_close(ours.entropy(), truth.entropy())
    torch.testing.assert_close(ours.kl(other), reference.kl_divergence(truth, truth_other))


def test_multi_categorical_is_the_product_of_its_parts():
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    both, a, b = MultiCategorical(logits, [2, 3]), Categorical(logits[:, :2]), Categorical(logits[:, 2:])
    action = both.sample(torch.Generator().manual_seed(1))
    assert action.shape == (4, 2)
    torch.testing.assert_close(both.log_prob(action), a.log_prob(action[:, 0]) + b.log_prob(action[:, 1]))
    torch.testing.assert_close(both.entropy(), a.entropy() + b.entropy())
    assert both.mode()[0].tolist() == [a.mode()[0], b.mode()[0]]


def test_samples_follow_the_probabilities():
    logits = torch.tensor([0.1, 0.2, 0.7]).log().expand(20000, 3)
    frequency = torch.bincount(Categorical(logits).sample(torch.Generator().manual_seed(0))) / 20000
    torch.testing.assert_close(frequency, torch.tensor([0.1, 0.2, 0.7]), atol=0.015, rtol=0)
