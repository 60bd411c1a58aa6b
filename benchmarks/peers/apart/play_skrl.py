"""SKRL: PPO_RNN and SequentialTrainer over a model of policy and value, which is built as its documents show."""

from itertools import pairwise

import torch
from games import repeat_previous
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from skrl.agents.torch.ppo import PPO_RNN
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn


class Shared(CategoricalMixin, DeterministicMixin, Model):
    """Encoder and memory, then a head of the policy and one of the value, which reads what the policy's call found."""

    def __init__(self, observation_space, action_space, setting):
        Model.__init__(self, observation_space=observation_space, action_space=action_space, device="cpu")
        CategoricalMixin.__init__(self, role="policy")
        DeterministicMixin.__init__(self, role="value")
        self.setting, self.found = setting, None
        self.encoder = perceptron(self.num_observations, setting.encoder, setting.encoder)
        rnn = nn.LSTM if setting.memory == "lstm" else nn.GRU
        self.rnn = rnn(setting.encoder, setting.width, batch_first=True)
        self.policy = perceptron(setting.width, setting.heads, setting.heads)
        self.policy.append(nn.Linear(setting.heads, self.num_actions))
        self.value = perceptron(setting.width, setting.heads, setting.heads)
        self.value.append(nn.Linear(setting.heads, 1))

    def get_specification(self):
        sizes = [(1, self.setting.envs, self.setting.width)] * (2 if self.setting.memory == "lstm" else 1)
        return {"rnn": {"sequence_length": self.setting.slots, "sizes": sizes}}

    def act(self, inputs, *, role=""):
        mixin = CategoricalMixin if role == "policy" else DeterministicMixin
        return mixin.act(self, inputs, role=role)

    def compute(self, inputs, role=""):
        if role == "policy":
            self.found = self.remember(inputs)
            features, states = self.found
            return self.policy(features), {"rnn": states}
        features, states = self.found or self.remember(inputs)
        self.found = None
        return self.value(features), {"rnn": states}

    def remember(self, inputs):
        x, states = self.encoder(inputs["observations"]), inputs["rnn"]
        if not self.training:
            features, states = self.unroll(x[:, None], states)
            return features[:, 0], states
        length = self.setting.slots
        x = x.view(-1, length, x.shape[-1])
        states = [state.view(1, -1, length, state.shape[-1])[:, :, 0].contiguous() for state in states]
        ended = (inputs["terminated"] | inputs["truncated"]).view(-1, length)
        ends = [*(ended[:, :-1].any(0).nonzero()[:, 0] + 1).tolist(), length]
        features, start = [], 0
        for end in ends:
            if start:
                states = [state * ~ended[None, :, start - 1, None] for state in states]
            part, states = self.unroll(x[:, start:end], states)
            features.append(part)
            start = end
        return torch.cat(features, 1).flatten(0, 1), states

    def unroll(self, x, states):
        if self.setting.memory == "lstm":
            features, states = self.rnn(x, tuple(states))
            return features, list(states)
        features, state = self.rnn(x, states[0])
        return features, [state]


def perceptron(*sizes):
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers)


def train(setting, turn):
    class Agent(PPO_RNN):
        def pre_interaction(self, *, timestep, timesteps):
            if timestep % setting.slots == 0:
                turn(timestep * setting.envs)

    games = SyncVectorEnv([repeat_previous] * setting.envs, autoreset_mode=AutoresetMode.SAME_STEP)
    envs = wrap_env(games, wrapper="gymnasium")
    model = Shared(envs.observation_space, envs.action_space, setting)
    agent = Agent(
        models={"policy": model, "value": model},
        memory=RandomMemory(memory_size=setting.slots, num_envs=setting.envs, device="cpu"),
        observation_space=envs.observation_space,
        action_space=envs.action_space,
        device="cpu",
        cfg={
            "rollouts": setting.slots,
            "learning_epochs": setting.epochs,
            "mini_batches": setting.minibatches,
            "learning_rate": setting.lr,
            "entropy_loss_scale": 0.01,
            "value_loss_scale": 0.5,
            "experiment": {"directory": "skrl", "write_interval": setting.slots, "checkpoint_interval": 0},
        },
    )
    trainer = {"timesteps": 10**9, "disable_progressbar": True, "headless": True}
    SequentialTrainer(env=envs, agents=agent, cfg=trainer).train()
