"""Off-policy algorithms: layout, padding, the routing of gradients, the target network, exploration."""

import math
from itertools import product

import gymnasium as gym
import numpy as np
import pytest
import torch
from replayed import ALGOS, LENGTHS, actions_of, assert_same_gradients, generator, gradients, live, make_algo
from torch.utils._pytree import tree_leaves

from rlmem.agents.actor_critic import Exploration
from rlmem.batching import Pieces, Segment, Tape
from rlmem.core.types import Inputs

NAMES = list(ALGOS)
WITH_MEMORIES = [
    pytest.param(name, memory, marks=[] if i == j else [pytest.mark.slow])
    for i, name in enumerate(NAMES)
    for j, memory in enumerate(["ffm", "gru", "gpt", "lru"])
]
"""Every algorithm with every one of four memories; the fast tests take each once."""


class Given(Tape):
    """Draws the given pieces."""

    def __init__(self, pieces, detach_every=None):
        super().__init__(detach_every=detach_every)
        self.pieces = pieces

    def draw(self, lengths, weight, batch_size, generator):
        return self.pieces


def two_views(replay, detach_every=None, only=lambda length: True):
    """Whole episodes and a cut one as one row, and as one row each; and the pieces."""
    lengths = torch.from_numpy(replay.table.live("length"))
    episode = torch.tensor([e for e, n in enumerate(lengths.tolist()) if only(n)] * 2)
    acted = lengths[episode]
    acted[-1] = (acted[-1] + 1) // 2
    nothing = torch.zeros_like(episode)
    views = []
    for row in (nothing, torch.arange(len(episode))):
        scheme = Given(Pieces(row, episode, nothing, acted, nothing), detach_every)
        views.append(replay.sample(scheme, 0, generator()).batch)
    return views, acted


def drawn_by_slot(monkeypatch, noise):
    """Normal draws are these: what belongs to a slot, whatever row it is in."""
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, *_, **__: self.copy_(noise))


@pytest.mark.parametrize("detach_every", [None, 3])
@pytest.mark.parametrize(("name", "memory"), WITH_MEMORIES)
def test_tape_and_segments_of_the_same_episodes_have_the_same_loss_and_gradients(
    name, detach_every, memory, monkeypatch
):
    algo = make_algo(name, memory, n_step=2)
    replay, _ = live(algo, LENGTHS, Tape(), rounds=30)
    (tape, segments), acted = two_views(replay, detach_every)
    assert len(tape.start) == 1
    assert len(segments.start) == len(acted) > 4
    by_piece = torch.randn(len(acted), segments.shape[1], 2, generator=generator(8))
    in_one_row = torch.cat([noise[: n + 1] for noise, n in zip(by_piece, acted, strict=True)])
    results = []
    for batch, noise in ((tape, in_one_row), (segments, by_piece.flatten(0, 1))):
        drawn_by_slot(monkeypatch, noise)
        results.append(gradients(algo, batch))
    assert_same_gradients(*results, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "memory"), WITH_MEMORIES)
def test_what_the_padding_holds_changes_neither_loss_nor_gradient(name, memory):
    """Any finite content of any field, and what is not even a number where no network reads it."""
    algo = make_algo(name, memory, n_step=2)
    replay, _ = live(algo, LENGTHS, Segment(), rounds=30)
    sample = replay.sample(Segment(), 40, generator(1))
    batch, padding = sample.batch, sample.episode == -1
    assert padding.any()
    batch.behaviour["weight"] = torch.rand(batch.shape, generator=generator(2))
    expected = gradients(algo, batch)
    fills = {"obs": [-3.0, 1e4], "prev_action": [2], "prev_reward": [1e4], "start": [True], "action": [1]}
    fills |= {"terminated": [True], "reward": [1e30, math.inf, math.nan]}
    for field, values in fills.items():
        for value in values:
            spoilt = batch.map(torch.clone)
            getattr(spoilt, field)[padding] = value
            assert_same_gradients(gradients(algo, spoilt), expected, atol=1e-6, rtol=1e-5)
    batch.behaviour["weight"][padding] = 1e4
    assert_same_gradients(gradients(algo, batch), expected, atol=0, rtol=0)


@pytest.mark.parametrize("memory", ["ffm", "gru", "gpt", "lru"])
def test_what_stands_before_a_start_changes_neither_loss_nor_gradient(memory):
    """The padding on the left of a prefix, and the state of a row that begins with a start."""
    batching = Segment(4, burn_in=3)
    algo = make_algo("dqn", memory)
    replay, _ = live(algo, LENGTHS, batching, rounds=30)
    batch = replay.sample(batching, 40, generator(1)).batch
    expected = gradients(algo, batch)
    begun = batch.prefix.start.cumsum(1) > 0
    inside = ~batch.start[:, 0] & ~batch.prefix.start.any(1)
    padding = ~begun & ~inside[:, None]
    assert padding.any()
    for value in (1e4, math.inf, math.nan):
        batch.prefix.obs[padding] = value
        batch.prefix.prev_reward[padding] = value
        for leaf in tree_leaves(batch.state0):
            if leaf.is_floating_point() or leaf.is_complex():
                leaf[~inside] = value
        assert_same_gradients(gradients(algo, batch), expected, atol=1e-6, rtol=1e-5)


def some_batch(algo, batching=Tape(), size=40):  # noqa: B008
    return live(algo, LENGTHS, batching, rounds=30)[0].sample(batching, size, generator(1)).batch


ROUTES = [*product(("critic", "both", "actor"), (True, False))]
"""Whose loss trains a shared memory, and whether the critic is frozen in the actor's loss."""


@pytest.mark.parametrize("name", ["sac", "sacd", "td3"])
def test_a_shared_memory_learns_from_the_losses_that_it_is_told_and_heads_as_ever(name):
    """Its gradient is the sum of those through the critic's loss, the policy and the critic that judges the policy.

    test_one_update.py has the numbers of the first, and of heads.
    """
    found = {}
    for whose, freeze in ROUTES:
        algo = make_algo(name, "ffm", separate=False, memory_gradient=whose, freeze_critic=freeze)
        found[whose, freeze] = gradients(algo, some_batch(algo))[1]
    most = dict.fromkeys(("critic", "policy", "judge"), 0.0)
    for path, whole in found["both", False].items():
        g = {route: gradient.get(path, torch.zeros_like(whole)) for route, gradient in found.items()}
        if not path.startswith("trunks."):
            for route in ROUTES:
                torch.testing.assert_close(g[route], whole, atol=1e-6, rtol=1e-4)
            continue
        parts = {"critic": g["critic", True], "policy": g["actor", True], "judge": whole - g["both", True]}
        torch.testing.assert_close(g["both", True], parts["critic"] + parts["policy"], atol=1e-6, rtol=1e-4)
        for whose in ("critic", "actor"):
            torch.testing.assert_close(g[whose, False], g[whose, True] + parts["judge"], atol=1e-6, rtol=1e-4)
        most = {part: max(most[part], gradient.abs().max().item()) for part, gradient in parts.items()}
    assert min(most.values()) > 1e-4, "every one of them trains something"


def copies(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


def equal(first, second):
    return all(map(torch.equal, first, second))


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_the_target_network_never_learns_and_follows_as_told(name):
    """A soft step after every update, and a copy after every third."""
    soft = make_algo(name, tau=0.25, target_every=1)
    batch = some_batch(soft)
    for _ in range(3):
        before = copies(soft.target)
        soft.update(batch)
        for old, new, online in zip(before, soft.target.parameters(), soft.agent.parameters(), strict=True):
            torch.testing.assert_close(new, 0.75 * old + 0.25 * online, atol=1e-6, rtol=1e-5)
    hard = make_algo(name, tau=1.0, target_every=3)
    disturbed = copies(hard.target)
    for update in range(1, 7):
        hard.update(batch)
        followed = equal(hard.target.parameters(), hard.agent.parameters())
        assert followed == (update % 3 == 0)
        assert update >= 3 or equal(hard.target.parameters(), disturbed)
    for algo in (soft, hard):
        assert all(p.grad is None and not p.requires_grad for p in algo.target.parameters())


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_the_learning_rate_warms_up_linearly(name):
    algo = make_algo(name, lr=0.01, lr_warmup=4)
    batch, rates = some_batch(algo), []
    full = [group["full_lr"] for group in algo.optim.param_groups]
    assert full[0] == 0.01
    for _ in range(6):
        algo.update(batch)
        rates.append([group["lr"] / lr for group, lr in zip(algo.optim.param_groups, full, strict=True)])
    assert np.array(rates) == pytest.approx(np.array([0.25, 0.5, 0.75, 1, 1, 1])[:, None].repeat(len(full), 1))


@pytest.mark.parametrize("value", [math.nan, *(pytest.param(x, marks=pytest.mark.slow) for x in (math.inf, -math.inf))])
@pytest.mark.parametrize("name", [*NAMES, "dqn squared", "dqn huber_of_mean"])
def test_a_loss_that_is_not_finite_stops_before_the_step(name, value):
    name, _, td_loss = name.partition(" ")
    algo = make_algo(name, **({"td_loss": td_loss} if td_loss else {}))
    batch = some_batch(algo)
    batch.reward[0, 0] = value
    before = copies(algo.agent)
    algo.update(batch)
    with pytest.raises(FloatingPointError, match="no step was taken"):
        algo.finite.settle()
    assert equal(before, algo.agent.parameters())


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_scaled_rewards_are_learnt_from_as_if_they_were_so(name):
    """A fixed scale; and one chosen from the first rewards, which later ones do not change."""
    told, chosen, plain = make_algo(name, reward_scale=4.0), make_algo(name), make_algo(name)
    batch = some_batch(told)
    chosen.scale_rewards(torch.tensor([0, 0.25, -0.25, 0]))
    chosen.scale_rewards(torch.ones(5))
    scaled = batch.map(torch.clone)
    scaled.reward *= 4
    expected = gradients(plain, scaled)
    assert_same_gradients(gradients(told, batch), expected)
    assert_same_gradients(gradients(chosen, batch), expected)


def test_epsilon_falls_after_the_random_steps_as_scheduled():
    algo = make_algo("dqn", random_steps=100, epsilon_start=0.8, epsilon_end=0.05, epsilon_fraction=0.5)
    shown = {0: 1.0, 99: 1.0, 100: 0.8, 325: 0.425, 550: 0.05, 1000: 0.05}  # it falls over half of 900 steps
    for steps, epsilon in shown.items():
        exploration = algo.explore(steps, 1000)
        assert exploration.random == (steps < 100)
        assert steps < 100 or exploration.noise == pytest.approx(epsilon), steps
    algo.epsilon_schedule = "exponential"
    assert algo.explore(325, 1000).noise == pytest.approx(0.2), "the geometric mean of 0.8 and 0.05"
    assert algo.explore(1000, 1000).noise == pytest.approx(0.05)


@torch.no_grad()
def actions(algo, exploration, count=4000):
    """What the agent does in that many copies of one slot."""
    action = torch.zeros((count, 2) if isinstance(actions_of(algo.name), gym.spaces.Box) else count)
    inputs = Inputs(torch.ones(count, 3), action, torch.zeros(count), torch.ones(count, dtype=torch.bool))
    return algo.agent.act(inputs, algo.agent.initial_state(count), generator(0), exploration)[0]


@pytest.mark.parametrize("name", NAMES)
def test_random_actions_are_uniform_over_all_that_the_policy_can_do(name):
    algo = make_algo(name)
    drawn = actions(algo, Exploration(random=True))
    if name in ("dqn", "sacd"):
        assert drawn.bincount(minlength=3) / len(drawn) == pytest.approx(1 / 3, abs=0.03)
        return
    assert drawn.shape == (4000, 2)
    quantiles = torch.linspace(0, 1, 11)
    for each in drawn.T:
        torch.testing.assert_close(each.quantile(quantiles), 2 * quantiles - 1, atol=0.06, rtol=0)
    assert torch.corrcoef(drawn.T)[0, 1].abs() < 0.05


def test_noise_is_the_chance_of_a_random_action_or_the_spread_around_it():
    dqn, td3 = make_algo("dqn"), make_algo("td3")
    drawn = actions(dqn, Exploration(noise=0.3)).bincount(minlength=3) / 4000
    assert sorted(drawn) == pytest.approx([0.1, 0.1, 0.8], abs=0.03)
    drawn = actions(td3, Exploration(noise=0.1))
    assert drawn.std(0) == pytest.approx(0.1, rel=0.1)
    assert actions(td3, Exploration(noise=10.0)).abs().max() == 1, "a policy's actions are within [-1, 1]"


@pytest.mark.parametrize("name", NAMES)
def test_the_value_of_a_slot_is_that_of_the_action_taken_by_the_lesser_twin(name):
    algo = make_algo(name)
    batch = some_batch(algo)
    features = algo.agent.trunks.read_critic(batch)
    if name in ("sac", "td3"):
        expected = torch.minimum(*algo.agent.q(features, batch.action))
    else:
        q = algo.agent.q(features).reshape(-1, *batch.shape, 3)
        expected = (q * torch.nn.functional.one_hot(batch.action.long(), 3)).sum(-1).amin(0)
    assert torch.equal(algo.agent.value(batch), expected)
