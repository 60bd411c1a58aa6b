"""PPO over memories: the replay invariant, and that one update does what it says."""

from itertools import product

import pytest
import torch
from gymnasium import spaces
from helpers import fast_only, options
from learnt import make_ppo
from torch.utils._pytree import tree_map

from rlmem.agents.encoder import Features
from rlmem.batching import Segment, Tape
from rlmem.losses.on_policy import discounted_return

SCHEMES = {"tape": Tape(), "segment": Segment(None), "segment-5": Segment(5), "segment-1": Segment(1)}
ENVS = {"discrete": "RepeatPrevious", "multidiscrete": "Battleship", "continuous": "PositionOnlyPendulum"}


def collect(algo, collector, batching):
    return collector.collect(algo.rollout_slots, 10**9, algo.complete_episodes, batching.state_slots(replay=False))[0]


FAST = [
    *(("ffm", "tape", "discrete"), ("gru", "segment", "multidiscrete"), ("gpt", "segment-5", "continuous")),
    *(("lstm", "segment-1", "discrete"), ("lru", "tape", "continuous"), ("shm", "segment-5", "multidiscrete")),
]
"""Every scheme, every kind of action, and states of several kinds."""


@pytest.mark.parametrize(("memory_name", "scheme", "env"), fast_only(FAST, product(options("memory"), SCHEMES, ENVS)))
def test_recomputed_log_probs_equal_those_of_acting(memory_name, scheme, env):
    """The replay invariant, over updates that change the policy and rollouts that begin in mid-episode."""
    algo, collector = make_ppo(memory_name, ENVS[env])
    batching = SCHEMES[scheme]
    for _ in range(2):
        metrics = algo.update(collect(algo, collector, batching), batching, 0.0)
        assert metrics["ppo/ratio_max_dev"] <= 1e-5, f"{memory_name} x {scheme}"


@pytest.mark.parametrize("scheme", ["tape", "segment", "segment-5"])
def test_the_replay_invariant_notices_a_wrong_state_and_a_shifted_input(scheme):
    batching = SCHEMES[scheme]
    for spoil in ("state", "prev_action", "start"):
        algo, collector = make_ppo("gru")
        algo.update(collect(algo, collector, batching), batching, 0.0)
        rollout = collect(algo, collector, batching)
        if spoil == "state":
            rollout.streams.state0 = tree_map(lambda s: s + 0.1, rollout.streams.state0)
        elif spoil == "prev_action":
            rollout.streams.prev_action = rollout.streams.prev_action.roll(1, 1)
        else:
            rollout.streams.start[:, 7] = ~rollout.streams.start[:, 7]
        assert algo.update(rollout, batching, 0.0)["ppo/ratio_max_dev"] > 1e-4, spoil


def test_a_loss_that_is_not_finite_stops_training():
    algo, collector = make_ppo("mlp")
    rollout = collect(algo, collector, Tape())
    rollout.streams.reward[0, 3] = torch.nan
    before = [p.clone() for p in algo.agent.parameters()]
    with pytest.raises(FloatingPointError, match="no step was taken"):
        algo.update(rollout, Tape(), 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, algo.agent.parameters(), strict=True))


@pytest.mark.parametrize("memory_gradient", ["both", "critic", "actor", "separate"])
def test_a_loss_trains_the_memory_that_it_may(memory_gradient):
    separate = memory_gradient == "separate"
    form = {"separate": True} if separate else {"memory_gradient": memory_gradient}
    algo, collector = make_ppo("gru", **form)
    rollout = collect(algo, collector, Tape())
    batch = Tape().rows(rollout.streams).batch(rollout)
    trained = {}
    for loss, output in zip(("actor", "critic"), algo.agent.unroll(batch), strict=True):
        algo.agent.zero_grad()
        output.square().sum().backward(retain_graph=True)
        trunks = {"actor": algo.agent.trunks.actor, "critic": algo.agent.trunks.critic}
        trained[loss] = {name for name, trunk in trunks.items() if any(p.grad is not None for p in trunk.parameters())}
    if separate:
        assert trained == {"actor": {"actor"}, "critic": {"critic"}}
    else:
        shared = {"actor", "critic"}
        assert trained == {loss: shared if memory_gradient in ("both", loss) else set() for loss in trained}
    assert algo.update(rollout, Tape(), 0.0)["ppo/ratio_max_dev"] <= 1e-5


def test_features_are_one_hot_per_component():
    features = Features(spaces.MultiDiscrete([2, 3]))
    assert features(torch.tensor([[1, 0], [0, 2]])).long().tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    shifted = Features(spaces.Discrete(3, start=5))
    assert shifted(torch.tensor([5, 7])).long().tolist() == [[1, 0, 0], [0, 0, 1]]
    action = Features(spaces.Box(-2, 2, (1,)), unit=True)
    assert action(torch.tensor([[3.0]])).tolist() == [[1.0]]


def test_rewards_of_any_size_train_the_same_way_if_their_scale_is_chosen():
    """Large rewards, and a thousand times as large ones; a scale that was chosen belongs to the checkpoint."""
    results = []
    for factor in (2**10, 2**20):
        algo, collector = make_ppo("mlp", reward_scale=None)
        for _ in range(2):
            rollout = collect(algo, collector, Tape())
            rollout.streams.reward *= factor
            metrics = algo.update(rollout, Tape(), 0.0)
        results.append((metrics["ppo/value_loss"], algo.scale * factor))
        other = make_ppo("mlp", reward_scale=None)[0]
        other.load_state_dict(algo.state_dict())
        assert other.scale == algo.scale
    assert results[0] == pytest.approx(results[1], rel=1e-4)
    returns = discounted_return(rollout.streams.reward, rollout.streams.terminated, rollout.streams.mask, algo.gamma)
    assert algo.scale == pytest.approx(1 / returns[rollout.streams.mask].square().mean().sqrt().item(), rel=0.5)


def test_the_clip_is_annealed_if_asked():
    fractions = {}
    for anneal in (False, True):
        algo, collector = make_ppo("mlp", lr=0.01, anneal_lr=False, anneal_clip=anneal, epochs=4)
        fractions[anneal] = algo.update(collect(algo, collector, Tape()), Tape(), 0.999)["ppo/clip_fraction"]
    assert fractions[True] > max(fractions[False], 0.9)
