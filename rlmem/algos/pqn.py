"""PQN: Q-learning in parallel environments, without a replay and without a target network."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.agents.base import Exploration
from rlmem.agents.off_policy import QAgent
from rlmem.agents.trunk import Trunk
from rlmem.algos.base import Plan
from rlmem.algos.diagnostics import q_spread
from rlmem.algos.on_policy import FromRollouts, batch_metrics, cut, mean, means
from rlmem.batching import Batching, Rollout
from rlmem.losses.q_learning import chosen
from rlmem.losses.returns import lambda_return
from rlmem.parallel import least
from rlmem.types import Batch, PositiveFloat, PositiveInt, UnitFloat


@dataclass(kw_only=True)
class PQN(FromRollouts):
    """Parallelised Q-network (Gallici et al. 2024, arXiv:2407.04811): Q(lambda) on rollouts, with layer norm in place
    of a replay and a target network.

        R_t = r_t + gamma ((1 - lambda) max_a Q(s_{t+1}, a) + lambda R_{t+1}),   loss = mean (Q(s_t, a_t) - R_t)^2 / 2

    The targets are those of the weights that acted. They are computed once for each rollout, over whole streams; then
    come `epochs` passes over shuffled rows.

    epochs: passes over a rollout
    num_minibatches: parts of each pass, at most one per row of any process
    adam_eps: epsilon of Adam; the paper has RAdam
    td_lambda: lambda of the returns
    reward_scale: factor of the rewards in targets
    layer_norm: whether the heads' hidden layers have a layer norm before their activation, as the paper asks for
    dueling: Q = V + A - mean A; the paper does without
    epsilon_start: chance of a random action at the beginning
    epsilon_end: chance of a random action at the end of the schedule
    epsilon_fraction: fraction of the run over which the chance falls linearly
    """

    epochs: PositiveInt = 4
    num_minibatches: PositiveInt = 8
    adam_eps: PositiveFloat = 1e-5
    td_lambda: UnitFloat = 0.65
    reward_scale: PositiveFloat = 1.0
    layer_norm: bool = True
    dueling: bool = False
    epsilon_start: UnitFloat = 1.0
    epsilon_end: UnitFloat = 0.01
    epsilon_fraction: UnitFloat = 0.2

    action_spaces = (spaces.Discrete, spaces.MultiDiscrete)

    def heads_normed(self) -> bool:
        return self.layer_norm

    def make_agent(self, make_trunk: Callable[[], Trunk], action_space: Space) -> QAgent:
        return QAgent(make_trunk, action_space, self.head_layers, self.dueling)

    def make_optimiser(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, eps=self.adam_eps, fused=True)

    def describe(self, plan: Plan) -> dict[str, str]:
        rows = plan.num_envs if plan.choices["batching"] == "tape" else self.num_minibatches
        passes = f"{self.epochs} epochs of {min(self.num_minibatches, rows)} minibatches"
        return {"training": f"{super().describe(plan)['training']}, {passes}"}

    def explore(self, steps: int, total_steps: int) -> Exploration:
        passed = min(steps / max(self.epsilon_fraction * total_steps, 1), 1)
        return Exploration(noise=self.epsilon_start + passed * (self.epsilon_end - self.epsilon_start))

    def exploration_metrics(self, exploration: Exploration) -> dict[str, float]:
        return {"epsilon": exploration.noise}

    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]:
        lr, rows, streams = self.anneal(progress), cut(rollout, batching), rollout.streams
        batch = rows.batch(rollout)
        with torch.no_grad():
            features = self.agent.trunks.read_critic(batch)
            q = self.agent.q(features)
            value, reward = rows.scatter(q.amax(-1), streams.shape), streams.reward * self.reward_scale
            target = lambda_return(reward, value, streams.terminated, streams.mask, self.gamma, self.td_lambda)
            batch.behaviour["target"] = rows.gather(target)
            mask = batch.mask
            metrics = {
                "target_mean": float(mean(batch.behaviour["target"], mask)),
                "q_spread": float(q_spread(q[mask])),
            }
            metrics |= self.diagnose(features[mask], batch.action[mask])
        parts = least(min(self.num_minibatches, len(rows.env)))
        steps: list[dict[str, Tensor]] = []
        for _ in range(self.epochs):
            order = torch.randperm(len(rows.env), generator=self.generator)
            steps += [self._minibatch(batch.rows(part)) for part in order.tensor_split(parts)]
        metrics |= means(self.taken(steps))
        return self.named(metrics | {"lr": lr}) | batch_metrics(rollout, rows, batch)

    def _minibatch(self, batch: Batch) -> dict[str, Tensor]:
        """Take one gradient step on some rows. Returns metrics."""
        if self.agent.trunks.stateless:
            batch = batch.acted()
        q = self.agent.q(self.agent.trunks.read_critic(batch))
        taken = chosen(q, self.agent.joint.index(batch.action))
        error = taken - batch.behaviour["target"]
        loss = mean(error.square(), batch.mask) / 2
        grad_norm = self.step(loss)
        metrics = {"loss": loss, "q_mean": mean(taken, batch.mask), "td_error": mean(error.abs(), batch.mask)}
        return {name: value.detach() for name, value in (metrics | {"grad_norm": grad_norm}).items()}
