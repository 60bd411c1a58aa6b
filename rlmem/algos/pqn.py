"""PQN: Q-learning in parallel environments, without a replay and without a target network."""

from dataclasses import dataclass

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.agents.actor_critic import Exploration
from rlmem.agents.graphs import recorded
from rlmem.agents.layers import NormedHeadSettings
from rlmem.agents.off_policy import QAgent
from rlmem.agents.trunk import Trunks
from rlmem.algos.base import ScaledRewards
from rlmem.algos.dqn import EpsilonGreedy
from rlmem.algos.off_policy import LEAST_REWARD
from rlmem.algos.on_policy import InMinibatches, batch_metrics, cut, mean, means
from rlmem.batching import Batching, Rollout, Rows
from rlmem.core.types import Batch, PositiveFloat, UnitFloat, action_mask, processes
from rlmem.losses.off_policy import chosen, greedy_value
from rlmem.losses.on_policy import lambda_return


@dataclass(kw_only=True)
class PQN(ScaledRewards, EpsilonGreedy, NormedHeadSettings, InMinibatches):
    """Parallelised Q-network (Gallici et al. 2024, arXiv:2407.04811): Q(lambda) on rollouts, with layer norm in place
    of a replay and a target network.

        R_t = r_t + gamma ((1 - lambda) max_a Q(s_{t+1}, a) + lambda R_{t+1}),   loss = mean[(Q(s_t, a_t) - R_t)^2] / 2

    The heads' hidden layers have a layer norm (`layer_norm`). The optimiser is Adam; the paper has RAdam. The targets
    are those of the weights that acted. They are computed once for each rollout, over whole streams; then come
    `epochs` passes over shuffled rows.

    td_lambda: lambda of the returns
    reward_scale: factor of the rewards in targets; None: one over the root mean square of the first rewards that are
        not zero (see `OffPolicy`)
    dueling: Q = V + A - mean A; the paper does without
    """

    td_lambda: UnitFloat = 0.65
    reward_scale: PositiveFloat | None = None
    dueling: bool = False

    action_spaces = (spaces.Discrete, spaces.MultiDiscrete)
    masks = True

    def make_agent(self, trunks: Trunks, action_space: Space) -> QAgent:
        return QAgent(trunks, action_space, self.head_layers, self.dueling)

    def explore(self, steps: int, total_steps: int) -> Exploration:
        passed = min(steps / max(self.epsilon_fraction * total_steps, 1), 1)
        return Exploration(noise=self.epsilon_start + passed * (self.epsilon_end - self.epsilon_start))

    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]:
        lr, rows = self.anneal(progress), cut(rollout, batching)
        batch = rows.batch(rollout)
        metrics = self.evaluate_rollout(rollout.streams, rows, batch)
        steps = self.passes(batch, self.minibatch)
        metrics |= means(self.taken(steps))
        return self.named(metrics | {"lr": lr}) | batch_metrics(rollout, rows, batch)

    @torch.no_grad()
    def evaluate_rollout(self, streams: Batch, rows: Rows, batch: Batch) -> dict[str, float]:
        """Read all rows once, before any gradient step. Fills `batch.behaviour` with targets; returns metrics."""
        self._scale_rewards(streams)
        scale, mask = self.scale or 1.0, batch.mask
        features = self.agent.trunks.read_critic(batch)
        q = self.agent.q(features)
        value = greedy_value(q, q, self.agent.allowed(action_mask(batch.obs)))
        signals = streams.reward * scale, rows.scatter(value, streams.shape), streams.terminated, streams.mask
        target = rows.gather(lambda_return(*signals, self.gamma, self.td_lambda))
        batch.behaviour["target"] = target
        return {
            "target_mean": float(mean(target, mask)),
            "q_spread": float(mean(q.amax(-1) - q.amin(-1), mask)),
            "reward_scale": scale,
            **self.diagnose(features[mask], batch.action[mask]),
        }

    def _scale_rewards(self, streams: Batch) -> None:
        """Choose `scale` where `reward_scale` leaves it open, from the rewards of all processes."""
        rewards = streams.reward[streams.mask].double()
        total, count = processes().totals(float(rewards.square().sum()), int((rewards != 0).sum()))
        if self.scale is None and count:
            self.scale = 1 / max((total / count) ** 0.5, LEAST_REWARD)

    @recorded
    def loss_gradients(
        self, batch: Batch, *coefficients: float
    ) -> tuple[Tensor, dict[str, Tensor], list[Tensor | None]]:
        """As `InMinibatches.loss_gradients`; there are no coefficients."""
        features = self.agent.trunks.read_critic(batch)
        taken = chosen(self.agent.q(features), self.agent.joint.index(batch.action))
        error = taken - batch.behaviour["target"]
        loss = mean(error.square(), batch.mask) / 2
        metrics = {"loss": loss, "q_mean": mean(taken, batch.mask), "td_error": mean(error.abs(), batch.mask)}
        for name, auxiliary in self.auxiliary(batch, features).items():
            loss, metrics[name] = loss + auxiliary, auxiliary
        metrics = {name: value.detach() for name, value in metrics.items()}
        return loss.detach(), metrics, self.gradients(loss)
