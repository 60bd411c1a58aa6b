"""Losses, advantages and distributions against slow definitions, recordings and torch."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions as reference

from rlmem.agents.heads import Categorical, Gaussian, MultiCategorical, TanhGaussian
from rlmem.losses.off_policy import (
    actor_loss_discrete,
    huber,
    huber_of_mean,
    n_step_return,
)
from rlmem.losses.on_policy import (
    adapt_kl_coef,
    discounted_return,
    gae,
    lambda_return,
    masked_mean,
    prefix_return,
    standardise,
    vtrace,
)


class Slots:
    """Random rows [1, T], and every target as the sum over time that defines it, slot by slot."""

    def __init__(self, seed, T, gamma, lam):
        rng = np.random.default_rng(seed)
        self.T, self.gamma, self.lam = T, gamma, lam
        self.reward, self.value, self.log_ratio = rng.normal(size=(3, T))
        self.terminated, self.mask = rng.random(T) < 0.1, rng.random(T) < 0.9
        self.mask[-1] = False
        self.terminated &= self.mask
        self.start = np.concatenate([[False], ~self.mask[:-1]])

    def tensors(self, *names):
        return [torch.tensor(getattr(self, name)[None]) for name in names]

    def steps(self, t):
        """The slots from t on whose actions belong to one episode."""
        while self.mask[t]:
            yield t
            if self.terminated[t]:
                return
            t += 1

    def n_step(self, t, n, bootstrap=True):
        total, weight, k = 0.0, 1.0, t
        for k in itertools.islice(self.steps(t), n):
            total += weight * self.reward[k]
            weight *= self.gamma
        successor = k + 1 if self.mask[t] else t
        over = self.mask[t] and self.terminated[k]
        return total + (weight * self.value[successor] if bootstrap and not over else 0.0)

    def lambda_return(self, t):
        """The weighted mean of all n-step returns (Sutton and Barto 2018, eq. 12.3)."""
        N = max(1, len(list(self.steps(t))))
        weights = [(1 - self.lam) * self.lam ** (n - 1) for n in range(1, N)] + [self.lam ** (N - 1)]
        return sum(w * self.n_step(t, n) for n, w in enumerate(weights, 1))

    def vs(self, t, rho_bar, c_bar):
        """v_t + sum_k gamma^(k-t) (product of c) rho_k delta_k (IMPALA, eq. 1)."""
        total, weight = self.value[t], 1.0
        for k in self.steps(t):
            ratio = np.exp(self.log_ratio[k])
            total += weight * min(rho_bar, ratio) * (self.n_step(k, 1) - self.value[k])
            weight *= self.gamma * self.lam * min(c_bar, ratio)
        return total

    def every(self, function):
        return [[function(t) for t in range(self.T)]]


slots = st.builds(Slots, st.integers(0, 2**31), st.integers(2, 50), st.floats(0, 1), st.floats(0, 1))


def assert_near(ours, truth):
    np.testing.assert_allclose(ours, truth, rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(slots)
def test_returns_and_advantages_equal_the_sums_that_define_them(s):
    r, v, d, m = s.tensors("reward", "value", "terminated", "mask")
    assert_near(discounted_return(r, d, m, s.gamma, v), s.every(lambda t: s.n_step(t, s.T)))
    assert_near(discounted_return(r, d, m, s.gamma), s.every(lambda t: s.n_step(t, s.T, bootstrap=False)))
    assert_near(lambda_return(r, v, d, m, s.gamma, s.lam), s.every(s.lambda_return))
    assert_near(gae(r, v, d, m, s.gamma, s.lam), s.every(lambda t: s.lambda_return(t) - s.value[t]))


@settings(max_examples=20, deadline=None)
@given(slots, st.sampled_from([1, 2, 7, 60]))
def test_an_n_step_return_equals_its_sum(s, n):
    tensors = s.tensors("reward", "value", "terminated", "mask")
    assert_near(n_step_return(*tensors, s.gamma, n), s.every(lambda t: s.n_step(t, n)))


@settings(max_examples=20, deadline=None)
@given(slots, st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.5, 1.0, 3.0]))
def test_v_trace_equals_the_sum_that_defines_it(s, rho_bar, c_bar):
    tensors = s.tensors("log_ratio", "reward", "value", "terminated", "mask")
    vs, advantage = vtrace(*tensors, s.gamma, s.lam, rho_bar, c_bar)
    assert_near(vs, s.every(lambda t: s.vs(t, rho_bar, c_bar)))

    def expected(t):
        if not s.mask[t]:
            return 0.0
        after = 0.0 if s.terminated[t] else s.vs(t + 1, rho_bar, c_bar)
        return min(rho_bar, np.exp(s.log_ratio[t])) * (s.reward[t] + s.gamma * after - s.value[t])

    assert_near(advantage, s.every(expected))


def test_the_prefix_return_looks_back_to_the_start():
    reward = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    start = torch.tensor([[False, False, True, False]])
    assert prefix_return(reward, start, 0.5).tolist() == [[1.0, 2.0, 3.0, 5.0]]


def test_what_slots_without_an_action_hold_has_no_effect_on_advantages_not_even_nan():
    s = Slots(1, 40, 0.9, 0.8)
    clean = gae(*s.tensors("reward", "value", "terminated", "mask"), s.gamma, s.lam)
    s.reward[~s.mask], s.terminated[~s.mask] = np.nan, True
    reward, value, terminated, mask = s.tensors("reward", "value", "terminated", "mask")
    assert torch.equal(gae(reward, value, terminated, mask, s.gamma, s.lam), clean)
    with_gradient = gae(reward, value.requires_grad_(), terminated, mask, s.gamma, s.lam)
    torch.testing.assert_close(with_gradient.detach(), clean, rtol=1e-12, atol=1e-12)
    for target in (
        with_gradient,
        n_step_return(reward, value, terminated, mask, s.gamma, 1),
        n_step_return(reward, value, terminated, mask, s.gamma, 3),
        *vtrace(reward, reward, value, terminated, mask, s.gamma),
    ):
        assert torch.isfinite(target).all()
        (gradient,) = torch.autograd.grad(target.sum(), value, retain_graph=True)
        assert torch.isfinite(gradient).all()


def test_targets_behind_a_truncation_are_not_those_of_the_next_episode():
    """The numbers of pytorch/rl#4209: two episodes of two steps, the first truncated, values 1 and 100, no reward."""
    value = torch.tensor([[1.0, 1, 1, 100, 100, 100]])  # each episode, and the observation behind it
    mask = torch.tensor([[True, True, False, True, True, False]])
    never, zeros = torch.zeros_like(mask), torch.zeros_like(value)
    target, advantage = vtrace(zeros, zeros, value, never, mask, 1.0)
    assert torch.equal(target[mask], value[mask]) and not advantage[mask].any()
    assert not gae(zeros, value, never, mask, 1.0, 0.8)[mask].any()


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


def test_log_probabilities_have_the_gradient_that_is_asked_for():
    logits = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    action, ours = torch.tensor([[0, 1, 2, 3], [4, 0, 1, 2], [3, 4, 0, 1]]), Categorical(logits)
    with torch.no_grad():
        ours.entropy()
    found = ours.log_prob(action)
    truth = logits.log_softmax(-1).gather(-1, action[..., None]).squeeze(-1)
    assert torch.equal(found, truth)
    both = (torch.autograd.grad(x.square().sum(), logits)[0] for x in (found, truth))
    torch.testing.assert_close(*both)
    assert torch.equal(Categorical(logits[0, 0]).log_prob(action[0, 0]), truth[0, 0])
    with pytest.raises(IndexError):
        Categorical(logits).log_prob(action - 100)


def test_means_of_several_are_those_of_each():
    x, mask = torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(0)), torch.rand(4, 7) < 0.5
    x[:, ~mask] = torch.nan
    torch.testing.assert_close(masked_mean(x, mask), torch.stack([masked_mean(row, mask) for row in x]))
    assert masked_mean(x, torch.zeros_like(mask)).tolist() == [0, 0, 0]


def test_samples_follow_the_probabilities():
    logits = torch.tensor([0.1, 0.2, 0.7]).log().expand(20000, 3)
    frequency = torch.bincount(Categorical(logits).sample(torch.Generator().manual_seed(0))) / 20000
    torch.testing.assert_close(frequency, torch.tensor([0.1, 0.2, 0.7]), atol=0.015, rtol=0)


def gradients(loss, *tensors):
    """Of the sum of `loss` in each tensor; None where none flows."""
    return torch.autograd.grad(loss.sum(), tensors, allow_unused=True)


def test_huber_is_quadratic_and_then_linear():
    error = torch.tensor([0.0, 0.5, -1.0, 3.0, -4.0], requires_grad=True)
    loss = huber(error)
    torch.testing.assert_close(loss, torch.tensor([0.0, 0.125, 0.5, 2.5, 3.5]))
    assert gradients(loss, error)[0].tolist() == [0.0, 0.5, -1.0, 1.0, -1.0]
    torch.testing.assert_close(huber(error, 2.0), torch.tensor([0.0, 0.125, 0.5, 4.0, 6.0]))


def test_the_huber_loss_of_the_mean_weighs_every_slot_alike():
    error = torch.tensor([0.25, -1.0], requires_grad=True)
    loss = huber_of_mean(error)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(0.5 * 0.625**2)
    assert gradients(loss, error)[0].tolist() == [0.3125, -0.3125]
    assert huber_of_mean(error * 10).item() == pytest.approx(6.25 - 0.5)
    assert huber(error).mean().item() == pytest.approx((0.03125 + 0.5) / 2)


def test_discrete_losses_are_finite_where_an_action_has_no_probability():
    logits = torch.tensor([[[0.0, -500.0]]], requires_grad=True)
    q = torch.tensor([[[1.0, 2.0]]])
    loss = actor_loss_discrete(q, logits, 0.1)
    assert loss.item() == pytest.approx(-1.0)
    assert torch.isfinite(gradients(loss, logits)[0]).all()


def test_a_weighted_mean_is_over_the_number_of_slots():
    x, mask = torch.tensor([[1.0, 2.0, 5.0]]), torch.tensor([[True, True, False]])
    weight = torch.tensor([[0.5, 1.0, torch.nan]])
    assert masked_mean(x, mask, weight).item() == pytest.approx((0.5 + 2.0) / 2)
    assert masked_mean(x, mask, torch.ones(1, 3)).item() == masked_mean(x, mask).item()


def tanh_gaussian(mean, log_std):
    """torch's own, built from the normal and the map."""
    normal = reference.Normal(mean, log_std.exp())
    return reference.Independent(
        reference.TransformedDistribution(normal, [reference.TanhTransform(cache_size=1)]), 1, validate_args=False
    )


def test_a_tanh_gaussian_equals_torchs():
    rng = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(2, 6, 3, generator=rng, dtype=torch.double).requires_grad_()
    ours, truth = TanhGaussian(mean, log_std), tanh_gaussian(mean, log_std)
    action, log_prob = ours.rsample(torch.randn(6, 3, generator=rng, dtype=torch.double))
    torch.testing.assert_close(log_prob, truth.log_prob(action))
    torch.testing.assert_close(ours.log_prob(action), log_prob, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.mode(), mean.tanh())
    assert ours.sample(rng).shape == (6, 3)


def test_the_gradient_of_a_tanh_gaussians_sample_is_that_of_its_noise():
    """With the noise fixed, a and log pi(a) are functions of mean and log_std: against finite differences."""
    mean, log_std = (torch.tensor([[x, 0.3]], dtype=torch.double, requires_grad=True) for x in (0.4, -0.7))

    def draw(mean, log_std):
        return TanhGaussian(mean, log_std).rsample(torch.full_like(mean, 0.8))

    assert torch.autograd.gradcheck(draw, (mean, log_std))


@pytest.mark.parametrize("log_std", [-20.0, 2.0])
@pytest.mark.parametrize("mean", [0.0, 3.0, -40.0])
def test_a_tanh_gaussian_stays_finite_at_the_bounds(mean, log_std):
    mean, log_std = (torch.full((1000, 2), x, requires_grad=True) for x in (mean, log_std))
    policy = TanhGaussian(mean, log_std)
    action, log_prob = policy.rsample(torch.randn(1000, 2, generator=torch.Generator().manual_seed(0)))
    assert action.abs().max() <= 1
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(policy.log_prob(action)).all()
    assert all(torch.isfinite(g).all() for g in gradients(action.sum() + log_prob.sum(), mean, log_std))


def test_a_small_spread_keeps_its_noise():
    """In float32, 3 + 2e-9 e is 3: the density is that of the e that was drawn, not of e = 0."""
    e = 1.5410
    _, log_prob = TanhGaussian(torch.full((1, 1), 3.0), torch.full((1, 1), -20.0)).rsample(torch.full((1, 1), e))
    expected = -0.5 * e**2 - 0.5 * np.log(2 * np.pi) + 20 - np.log(1 - np.tanh(3.0) ** 2)
    assert log_prob.item() == pytest.approx(expected, abs=1e-4)
