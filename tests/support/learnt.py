"""Small on-policy agents, with what collects for them."""

import torch
from helpers import make_memory, make_trunks
from rlmem_envs import popgym

from rlmem.acting.collector import Collector
from rlmem.agents.encoder import Encoder
from rlmem.agents.trunk import Trunk
from rlmem.algos.ppo import PPO
from rlmem.core.seeding import Streams

CPU = torch.device("cpu")


PPO_SETTINGS = {"rollout_slots": 30, "num_minibatches": 3, "epochs": 2}


def make_ppo(memory_name, env_name="RepeatPrevious", **hyperparameters):
    """PPO with a small agent, and what collects for it."""
    return make_on_policy(PPO, memory_name, env_name, **PPO_SETTINGS | hyperparameters)


def make_on_policy(kind, memory_name, env_name="RepeatPrevious", **hyperparameters):
    """An algorithm with a small agent, and what collects for it."""
    env = popgym.make(env_name, "easy", 6)
    streams, algo = Streams(0), kind(**hyperparameters)
    with streams.module_init("init"):

        def make_trunk():
            encoder = Encoder(env.single_observation_space, env.single_action_space, prev_reward=True)
            return Trunk(encoder, make_memory(memory_name, encoder.output_size, hidden_size=32))

        agent = algo.make_agent(make_trunks(make_trunk, algo.separate), env.single_action_space)
    algo.setup(agent, streams.torch("rows"))
    return algo, Collector(env, agent, streams.int("env"), streams.torch("act"), CPU)
