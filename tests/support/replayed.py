"""Small off-policy agents, and an environment that keeps a record of its own of what happened in it."""

from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from helpers import make_memory, make_trunks

from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import Exploration
from rlmem.agents.encoder import Encoder
from rlmem.agents.trunk import Trunk
from rlmem.algos.dqn import DQN
from rlmem.algos.sac import SAC, SACD
from rlmem.algos.td3 import TD3
from rlmem.batching import Replay

CPU = torch.device("cpu")
ALGOS = {"dqn": DQN, "sac": SAC, "sacd": SACD, "td3": TD3}
OBS = spaces.Box(-np.inf, np.inf, (3,), np.float32)
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
LENGTHS = [[7, -5, 11, -9], [-6, 3, 10]]
"""Lengths of the episodes of two environments."""


def actions_of(name: str) -> gym.Space:
    return DISCRETE if name in ("dqn", "sacd") else BOX


@dataclass
class Episode:
    """n + 1 observations, n actions and rewards, and whether the last action terminated it (else it was truncated)."""

    obs: list[np.ndarray]
    action: list[np.ndarray] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    terminated: bool = False


class Recorded(gym.Env):
    """Random observations and rewards in episodes of given lengths in turn; a negative length ends by truncation.

    episodes: all that happened, in the environment's own words
    """

    observation_space = OBS

    def __init__(self, lengths, action_space, seed=0):
        self.lengths, self.action_space = lengths, action_space
        self.rng, self.episodes = np.random.default_rng(seed), []

    def reset(self, *, seed=None, options=None):
        self.length = self.lengths[len(self.episodes) % len(self.lengths)]
        self.episodes.append(Episode([self._draw()]))
        return self.episodes[-1].obs[0], {}

    def step(self, action):
        episode = self.episodes[-1]
        episode.action.append(np.array(action))
        episode.reward.append(float(self.rng.standard_normal(dtype=np.float32)))
        episode.obs.append(self._draw())
        ended = len(episode.action) == abs(self.length)
        episode.terminated = ended and self.length > 0
        return episode.obs[-1], episode.reward[-1], episode.terminated, ended and self.length < 0, {}

    def _draw(self):
        return self.rng.standard_normal(3, dtype=np.float32)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def disturb(module: torch.nn.Module, seed: int, scale: float = 0.1) -> None:
    """Move every parameter, so that no two networks agree by chance."""
    source = generator(seed)
    for parameter in module.parameters():
        parameter.add_(scale * torch.randn(parameter.shape, generator=source, dtype=parameter.dtype))


def make_algo(name: str, memory: str = "gru", dtype=torch.float32, shortcut_size: int = 0, **settings):
    """A small agent in training whose networks and target networks all differ."""
    algo = ALGOS[name](**{"head_sizes": (16,), "gamma": 0.9} | settings)
    space = actions_of(name)

    def make_trunk():
        encoder = Encoder(OBS, space, hidden_size=8, prev_reward=True, shortcut_size=shortcut_size)
        return Trunk(encoder, make_memory(memory, encoder.output_size, hidden_size=8))

    torch.manual_seed(0)
    agent = algo.make_agent(make_trunks(make_trunk, algo.separate), space).to(dtype)
    disturb(agent, 1)
    algo.setup(agent, generator(2))
    disturb(algo.target, 3)
    return algo


def live(algo, lengths, batching, rounds: int = 60, collect_slots: int = 1, **replay):
    """Act in one environment per list of `lengths`; the replay of what was lived, and the environments."""
    space = actions_of(algo.name)
    envs = [Recorded(script, space, seed) for seed, script in enumerate(lengths)]
    slots = batching.state_slots(replay=True)
    collector = Collector(SyncVectorEnv([lambda e=e: e for e in envs]), algo.agent, 0, generator(4), CPU)
    initial = None if slots is None else algo.agent.initial_state(1)
    memory = Replay(10**6, len(envs), CPU, initial_state=initial, **replay)
    half = Exploration(noise=0.5)
    for _ in range(rounds):
        memory.add(collector.collect(collect_slots, 10**9, state_slots=slots, exploration=half)[0])
    return memory, envs


def gradients(algo, batch, seed=6):
    """The loss of a batch, and its gradients by parameter."""
    algo.generator = generator(seed)
    algo.updates = algo.__dict__.get("policy_delay", 1) - 1  # an update of TD3's actor, too
    loss, _, _ = algo.loss(batch)
    algo.optim.zero_grad()
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in algo.agent.named_parameters() if p.grad is not None}


def assert_same_gradients(first, second, **tolerance):
    torch.testing.assert_close(first[0], second[0], **tolerance)
    assert first[1].keys() == second[1].keys()
    for name, gradient in first[1].items():
        torch.testing.assert_close(gradient, second[1][name], msg=lambda m, n=name: f"{n}: {m}", **tolerance)
