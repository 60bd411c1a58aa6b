"""Whole updates of PPO equal those of stable-baselines3: hundreds of clipped gradient steps on what rlmem collected.

The settings are those of experiments/familiar/lander.yaml, where the value loss decides how far gradients are clipped.
Actor and critic are compared apart, since the critic moves much further. Advantages are standardised by the deviation
over n transitions here and over n - 1 there, which alone leads the actors percents apart: here both take the former.
"""

from functools import partialmethod
from itertools import chain
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from torch import nn

from rlmem.algos.on_policy import cut
from rlmem.algos.ppo import PPO
from rlmem.config.compose import load
from rlmem.config.paths import experiments_dir
from rlmem.run.train import train

sb3 = pytest.importorskip("stable_baselines3")
buffers = pytest.importorskip("stable_baselines3.common.buffers")

ITEM = yaml.safe_load((experiments_dir() / "familiar/lander.yaml").read_text())
GAME = ["env.id=CartPole-v1", "env.max_episode_steps=25", "algo.rollout_slots=256", "algo.num_minibatches=64"]
GAMMA, LAMBDA, PARTS = 0.999, 0.98, 64


@pytest.mark.slow
def test_ppo_moves_its_weights_as_stable_baselines3_does(in_tmp):
    model = sb3.PPO(
        "MlpPolicy", gym.make("CartPole-v1"), n_epochs=4, gamma=GAMMA, gae_lambda=LAMBDA, ent_coef=0.01, device="cpu"
    )
    model.set_logger(sb3.common.logger.Logger(folder=None, output_formats=[]))
    apart = []
    original = PPO.update

    def both(algo, rollout, batching, progress):
        pairs = list(zip(linears(algo.agent.policy, algo.agent.critic), layers_of(model.policy), strict=True))
        with torch.no_grad():
            for ours, theirs in pairs:
                theirs.load_state_dict(ours.state_dict())
        before = [flat(network) for network in networks(pairs, 0)]
        model.rollout_buffer = Transitions(model.policy, rollout, cut(rollout, batching), algo.generator)
        with patch.object(torch.Tensor, "std", partialmethod(torch.Tensor.std, correction=0)):
            model.train()
        metrics = original(algo, rollout, batching, progress)
        for old, *both in zip(before, networks(pairs, 0), networks(pairs, 1), strict=True):
            ours, theirs = map(flat, both)
            apart.append(float((ours - theirs).norm() / (ours - old).norm()))
        assert metrics["ppo/value_loss"] == pytest.approx(model.logger.name_to_value["train/value_loss"], rel=1e-3)
        assert model.rollout_buffer.timeouts > 10
        return metrics

    with patch.object(PPO, "update", both):
        train(load([*ITEM["overrides"], *ITEM["columns"]["lander_ppo"], *GAME, "total_steps=7000", "run_dir=run"]))
    assert len(apart) == 2 * 2
    assert max(apart) < 1e-4  # rounding grows from step to step


class Transitions:
    """The buffer of stable-baselines3 of each environment, read in the order of rlmem's minibatches.

    timeouts: how many episodes a time limit ended
    """

    def __init__(self, policy, rollout, rows, generator):
        s, self.timeouts, kept, number = rollout.streams, 0, [], {}
        observations, actions = gym.spaces.Box(-np.inf, np.inf, s.obs.shape[2:]), gym.spaces.Discrete(2)
        bootstrap = s.mask.shape[1] - 1
        for env in range(len(s.mask)):
            slots = np.flatnonzero(s.mask[env])
            buffer = buffers.RolloutBuffer(len(slots), observations, actions, gamma=GAMMA, gae_lambda=LAMBDA)
            value = policy.predict_values(s.obs[env].float()).detach().flatten()
            for t in slots:
                timeout = t + 1 < bootstrap and not s.mask[env, t + 1] and not s.terminated[env, t]
                self.timeouts += timeout
                reward = s.reward[env, t] + GAMMA * value[t + 1] * timeout  # as its collector does
                facts = (x[env, t].numpy() for x in (s.obs, s.action, reward.expand_as(s.reward), s.start))
                buffer.add(*facts, value[t], s.behaviour["log_prob"][env, t, None])
                number[env, t] = len(number)
            ended = np.array([bool(s.terminated[env, slots[-1]]) or slots[-1] + 1 < bootstrap])
            buffer.compute_returns_and_advantage(value[slots[-1] + 1], ended)
            kept.append(buffer)
        self.samples = [next(iter(in_order(buffer))) for buffer in kept]
        self.values, self.returns = (np.concatenate([getattr(b, name) for b in kept]) for name in ("values", "returns"))
        self.place = torch.tensor([number[env, t] for env, t in zip(rows.env, rows.begin, strict=True)])
        self.generator = torch.Generator()
        self.generator.set_state(generator.get_state())

    def get(self, batch_size):
        fields = [torch.cat(parts) for parts in zip(*self.samples, strict=True)]
        for part in torch.randperm(len(self.place), generator=self.generator).tensor_split(PARTS):
            yield buffers.RolloutBufferSamples(*(field[self.place[part]] for field in fields))


def in_order(buffer):
    """All of a buffer's samples as one batch, not shuffled."""
    with patch("numpy.random.permutation", np.arange):
        yield from buffer.get()


def linears(*networks):
    return [part for network in networks for part in network.modules() if isinstance(part, nn.Linear)]


def layers_of(policy):
    extractor = policy.mlp_extractor
    return chain(linears(extractor.policy_net, policy.action_net), linears(extractor.value_net, policy.value_net))


def networks(pairs, whose):
    """The layers of the actor and of the critic, ours (0) or theirs (1)."""
    layers = [pair[whose] for pair in pairs]
    return layers[:3], layers[3:]


@torch.no_grad()
def flat(layers):
    return torch.cat([parameter.flatten().clone() for layer in layers for parameter in layer.parameters()])
