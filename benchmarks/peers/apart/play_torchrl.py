"""TorchRL: its recurrent modules, ActorValueOperator, Collector, GAE and ClipPPOLoss, as its PPO examples use them."""

import torch
from games import repeat_previous
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import (
    MLP,
    ActorValueOperator,
    GRUModule,
    LSTMModule,
    OneHotCategorical,
    ProbabilisticActor,
    ValueOperator,
    set_recurrent_mode,
)
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE


def train(setting, turn):
    games = SyncVectorEnv([repeat_previous] * setting.envs, autoreset_mode=AutoresetMode.DISABLED)
    envs = GymWrapper(games)
    observations, actions = envs.observation_spec["observation"].shape[-1], envs.action_spec.shape[-1]
    memory = LSTMModule if setting.memory == "lstm" else GRUModule
    common = TensorDictSequential(
        TensorDictModule(
            MLP(observations, setting.encoder, num_cells=[setting.encoder], activation_class=nn.ReLU),
            in_keys=["observation"],
            out_keys=["embedding"],
        ),
        memory(setting.encoder, setting.width, in_key="embedding", out_key="features"),
    )
    heads = {"in_features": setting.width, "num_cells": [setting.heads] * 2, "activation_class": nn.ReLU}
    policy = ProbabilisticActor(
        TensorDictModule(MLP(out_features=actions, **heads), in_keys=["features"], out_keys=["logits"]),
        in_keys=["logits"],
        spec=envs.action_spec_unbatched,
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    value = ValueOperator(MLP(out_features=1, **heads), in_keys=["features"])
    agent = ActorValueOperator(common, policy, value)
    actor, critic = agent.get_policy_operator(), agent.get_value_operator()
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, deactivate_vmap=True)
    loss_of = ClipPPOLoss(
        actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, critic_coeff=0.5, normalize_advantage=True
    )
    optimiser = torch.optim.Adam(agent.parameters(), lr=setting.lr, eps=1e-5)
    collector = Collector(
        envs,
        actor,
        frames_per_batch=setting.envs * setting.slots,
        total_frames=-1,
        auto_register_policy_transforms=True,
    )
    rollouts, steps = iter(collector), 0
    while True:
        turn(steps)
        rollout = next(rollouts)
        steps += rollout.numel()
        for _ in range(setting.epochs):
            with torch.no_grad(), set_recurrent_mode("recurrent"):
                rollout = advantage(rollout)
            for rows in torch.randperm(setting.envs).chunk(setting.minibatches):
                with set_recurrent_mode("recurrent"):
                    losses = loss_of(rollout[rows])
                (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()
                optimiser.zero_grad()
