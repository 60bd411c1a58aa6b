"""`encoder.normalise_obs`: the statistics are those of what was collected, and change only between rollouts."""

from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers import fast_only, make_memory, make_trunks, small_run, without_time
from rlmem_envs.vector import vectorise

from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import ActorCritic
from rlmem.agents.encoder import Embeddings, Encoder, Features, Plain
from rlmem.agents.layers import HeadLayers, RunningNorm
from rlmem.agents.trunk import Trunk
from rlmem.algos.off_policy import OffPolicy
from rlmem.core.types import Batch, Inputs
from rlmem.loops.parts import observe
from rlmem.record.checkpoint import Checkpoints

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def statistics(x: np.ndarray) -> tuple[torch.Tensor, ...]:
    """Count, mean and variance of observations [n, D], as numpy computes them."""
    moments = len(x), x.mean(0), x.var(0)
    return tuple(torch.as_tensor(value, dtype=torch.float64) for value in moments)


def test_merged_statistics_are_those_of_all_observations():
    rng, norm = np.random.default_rng(0), RunningNorm(3)
    x = rng.normal([0, 1e4, -1e-3], [1, 0.5, 1e-4], (1000, 3))
    for part in np.split(x, [1, 2, 40, 40, 700]):
        if len(part):
            norm.add(*statistics(part))
        else:
            norm.add(*(torch.zeros(size, dtype=torch.float64) for size in ((), 3, 3)))
    assert norm.count == len(x)
    np.testing.assert_allclose(norm.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(norm.variance, x.var(0), rtol=1e-9)


def test_nothing_is_changed_at_first_and_outliers_are_clipped():
    norm, x = RunningNorm(3), torch.tensor([[-10.0, 0.3, 9.0], [1e3, -1e30, 2.0]])
    assert torch.equal(norm(x).float(), x.clamp(-10, 10))
    norm.add(*statistics(np.array([[0.0, 7.0, 1e3], [2.0, 7.0, 3e3]])))
    expected = [[-1, 0, -1], [0.5, 10, 10]]
    assert norm(torch.tensor([[0, 7, 1e3], [1.5, 8, 1e6]])).tolist() == expected, "7 is constant"


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.MultiDiscrete([2, 3]),
        spaces.Box(0, 255, (4,), np.uint8),
        spaces.Box(0, 9, (4,), np.int64),
        spaces.Box(0, 1, (4, 4), np.float32),
    ],
    ids=str,
)
def test_only_rows_of_continuous_numbers_are_normalised(space):
    assert not Features(space, normalise=True).state_dict()
    assert not Features(BOX).state_dict(), "nor those where the option is not asked for"
    assert Features(BOX, normalise=True).state_dict().keys() == {"norm.count", "norm.mean", "norm.variance"}


def ready(encoder_class, scale: float, double: bool, normalise: bool, seen: bool = True):
    """20 slots of 8 environments, with observations times `scale`, and an agent that has observed them if `seen`."""
    torch.manual_seed(0)

    def make_trunk() -> Trunk:
        encoder = encoder_class(BOX, spaces.Discrete(5), normalise_obs=normalise)
        return Trunk(encoder, make_memory("gru", encoder.output_size))

    agent = ActorCritic(make_trunks(make_trunk, separate=True), spaces.Discrete(5), HeadLayers((16,)))
    agent = agent.double() if double else agent
    for head in (agent.policy, agent.critic):  # which begin near zero
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter)
    rng, shape = np.random.default_rng(1), (8, 20)
    obs = torch.from_numpy((rng.normal([1, 0, -3], [1, 2, 0.5], (*shape, 3)) * scale).astype(np.float32))
    start, mask = torch.zeros(shape, dtype=torch.bool), torch.ones(shape, dtype=torch.bool)
    start[:, 0], mask[:, -1] = True, False
    nothing, action = torch.zeros(shape), torch.zeros(shape, dtype=torch.long)
    streams = Batch(obs, action, nothing, start, action, nothing, start & ~start, mask, agent.initial_state(8))
    if seen:
        observe(streams, agent)
    return agent, streams


@pytest.mark.parametrize(
    ("encoder_class", "double"), [(Encoder, False), (Encoder, True), (Embeddings, False), (Plain, False)]
)
def test_the_scale_of_observations_makes_no_difference(encoder_class, double):
    def played(scale: float, normalise: bool = True):
        agent, streams = ready(encoder_class, scale, double, normalise)
        state, actions = agent.initial_state(8), []
        for t in range(20):
            action, _, state = agent.act(Inputs(*(field[:, t] for field in streams.inputs)), state, None)
            actions.append(action)
        return torch.stack(actions), agent.value(streams)

    (large, large_value), (small, small_value) = played(1e3), played(1e-3)
    assert torch.equal(large, small)
    assert len(large.unique()) > 1
    torch.testing.assert_close(large_value, small_value, rtol=1e-3, atol=1e-3)
    assert not torch.equal(played(1e3, normalise=False)[0], played(1e-3, normalise=False)[0])


class Noted(gym.Env):
    """Episodes of 7 steps and some of 5. Every environment that was made keeps what it showed, by episode."""

    made: ClassVar[list] = []

    def __init__(self, action_space):
        self.observation_space, self.action_space, self.shown = BOX, action_space, []
        self.number = len(Noted.made)
        self.rng = np.random.default_rng(self.number)
        Noted.made.append(self)

    def reset(self, *, seed=None, options=None):
        self.shown.append([])
        return self._show(), {}

    def step(self, action):
        last = len(self.shown[-1]) == (5 if (len(self.shown) + self.number) % 3 == 0 else 7)
        return self._show(), 1.0, last, False, {}

    def _show(self):
        self.shown[-1].append(self.rng.normal([100, 0, 1], [3, 0.1, 20]).astype(np.float32))
        return self.shown[-1][-1]


def make_noted(
    continuous: bool, num_envs: int = 4, max_episode_steps: int | None = None, **others: object
) -> gym.vector.VectorEnv:
    space = spaces.Box(-1, 1, (1,), np.float32) if continuous else spaces.Discrete(2)
    return vectorise(lambda: Noted(space), num_envs, max_episode_steps)


COMMON = ["memory=gru", "memory.hidden_size=8", "env.num_envs=4", "evaluation.episodes=2"]
COMMON += ["evaluation.max_steps=8", "threads=1"]
ON_POLICY = [*COMMON, "algo.rollout_slots=9", "algo.num_minibatches=2", "algo.epochs=2"]
OFF_POLICY = [
    *COMMON, "batching=segment", "batching.length=4", "algo.batch_size=8", "algo.learning_starts=20",
    "algo.random_steps=20", "algo.update_ratio=0.2", "algo.record_every=24",
]  # fmt: skip
RUNS = {
    "ppo": [*ON_POLICY, "algo=ppo"],
    "ppo, separate": [*ON_POLICY, "algo=ppo", "algo.separate=true", "batching=segment", "encoder=plain"],
    "impala": [*[line for line in ON_POLICY if "minibatches" not in line], "algo=impala", "encoder=embeddings"],
    "dqn": [*OFF_POLICY, "algo=dqn"],
    "sac": [*OFF_POLICY, "algo=sac", "encoder=embeddings", "encoder.shortcut_size=4"],
}


def noted_run(name: str, *overrides: str) -> Path:
    continuous = f"env.continuous={str(name == 'sac').lower()}"
    env = [f"env._target_={__name__}.make_noted", continuous, "encoder.normalise_obs=true", "total_steps=200"]
    return small_run(*overrides, base=[*RUNS[name], *env])


@pytest.mark.parametrize("name", fast_only(["ppo", "dqn"], RUNS))
def test_the_statistics_are_those_of_all_that_training_observed(in_tmp, name):
    """Evaluations in between add nothing. An observation at which nothing has acted yet is not among them."""
    Noted.made.clear()
    run_dir = noted_run(name, "evaluation.every=70")
    shown = [np.stack(e) for env in Noted.made[:4] for k, e in enumerate(env.shown) if k < len(env.shown) - 1]
    shown += [np.stack(env.shown[-1]) for env in Noted.made[:4] if len(env.shown[-1]) > 1]
    assert sum(map(len, shown)) > 200
    assert len(Noted.made) > 4, "there were evaluations"
    count, mean, variance = statistics(np.concatenate(shown).astype(np.float64))
    checkpoint = Checkpoints(run_dir / "checkpoints").load()[1]
    networks = [checkpoint["agent"], *([checkpoint["algo"]["target"]] if name in ("dqn", "sac") else [])]
    for network in networks:
        norms = [key.removesuffix("count") for key in network if key.endswith("norm.count")]
        assert len(norms) == (2 if name in ("ppo, separate", "sac") else 1)
        for norm in norms:
            assert network[norm + "count"] == count
            torch.testing.assert_close(network[norm + "mean"], mean, rtol=1e-12, atol=0)
            torch.testing.assert_close(network[norm + "variance"], variance, rtol=1e-12, atol=0)
    rows = without_time(run_dir, lambda row: "update" in row)
    assert rows[-1]["update"] > 4
    if name not in ("dqn", "sac"):
        assert max(row[f"{name.partition(',')[0]}/ratio_max_dev"] for row in rows) < 1e-5


@pytest.mark.parametrize("name", fast_only(["dqn"], ["dqn", "sac"]))
def test_targets_are_computed_with_the_statistics_of_the_agent(in_tmp, monkeypatch, name):
    """Of all observations so far, also where the target network follows the agent only now and then."""
    update, counts = OffPolicy.update, []

    def compared(algo, batch):
        ours, theirs = (network.normalisers() for network in (algo.agent, algo.target))
        for one, other in zip(ours, theirs, strict=True):
            assert all(map(torch.equal, one.buffers(), other.buffers()))
        counts.append(ours[0].count.item())
        return update(algo, batch)

    monkeypatch.setattr(OffPolicy, "update", compared)
    noted_run(name, "algo.target_every=1000")
    assert len(counts) > 20
    assert counts[0] >= 20
    assert counts[-1] > 200


def test_of_complete_episodes_all_counts_and_nothing_else(in_tmp):
    """Rollouts begin with a reset. An environment that waits for the others plays on, which does not count."""
    Noted.made.clear()
    agent, _ = ready(Encoder, 1.0, double=False, normalise=True, seen=False)
    env = vectorise(lambda: Noted(spaces.Discrete(5)), 4)
    collector, expected = Collector(env, agent, 0, torch.Generator(), torch.device("cpu")), []
    for _ in range(3):
        before = [len(noted.shown) for noted in Noted.made[:4]]
        rollout, episodes = collector.collect(6, 10**9, complete_episodes=True)
        observe(rollout.streams, agent)
        for i, first in enumerate(before):
            finished = sum(episode.env == i for episode in episodes)
            expected += Noted.made[i].shown[first : first + finished]
        assert not rollout.cut
    assert {len(episode) for episode in expected} == {6, 8}
    assert sum(map(len, expected)) < sum(len(episode) for noted in Noted.made[:4] for episode in noted.shown)
    for norm in agent.normalisers():
        count, mean, variance = statistics(np.concatenate(expected).astype(np.float64))
        assert norm.count == count
        torch.testing.assert_close((norm.mean, norm.variance), (mean, variance), rtol=1e-12, atol=0)


def test_another_run_begins_with_the_statistics(in_tmp):
    choices = ["env=position_only_cartpole", "encoder.normalise_obs=true"]
    first = small_run(*choices, run_dir="first")
    second = small_run(*choices, f"init_from={first}", run_dir="second")
    counts = [
        value.item()
        for run_dir in (first, second)
        for name, value in Checkpoints(run_dir / "checkpoints").load()[1]["agent"].items()
        if name.endswith("norm.count")
    ]
    assert counts[1] > 1.5 * counts[0] > 30
