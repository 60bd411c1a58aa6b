"""Q-learning over memory agents: with a replay (DQN), and without one in parallel environments (PQN)."""

from dataclasses import dataclass
from typing import Literal

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.agents.actor_critic import Exploration
from rlmem.agents.graphs import recorded
from rlmem.agents.layers import NormedHeadSettings
from rlmem.agents.off_policy import QAgent
from rlmem.agents.trunk import SlotFeatures, Trunks
from rlmem.algos.base import Learner, ScaledRewards
from rlmem.algos.off_policy import LEAST_REWARD, Metrics, OffPolicy, Slots, q_spread
from rlmem.algos.on_policy import InMinibatches, batch_metrics, cut, feature_rank, mean, means
from rlmem.batching import Batching, Rollout, Rows
from rlmem.core.types import Batch, PositiveFloat, UnitFloat, action_mask, processes
from rlmem.losses.off_policy import chosen, greedy_value, huber, huber_of_mean, rescaled, unscaled
from rlmem.losses.on_policy import lambda_return


@dataclass(kw_only=True)
class EpsilonGreedy(Learner):
    """A learner whose agent acts at random with a chance that falls over the run.

    epsilon_start: chance of a random action at the beginning, after the random steps of a replay
    epsilon_end: chance of a random action at the end of the schedule
    epsilon_fraction: fraction of the run, after the random steps, over which the chance falls
    """

    epsilon_start: UnitFloat = 1.0
    epsilon_end: UnitFloat = 0.05
    epsilon_fraction: UnitFloat = 0.3

    noise_metric = "epsilon"


@dataclass(kw_only=True)
class DQN(EpsilonGreedy, OffPolicy):
    """Deep Q-learning (Mnih et al. 2015), double (van Hasselt et al. 2016, arXiv:1509.06461) and dueling (Wang et al.
    2016, arXiv:1511.06581) by default.

        v_t = Q_target(s_t, argmax_a Q(s_t, a)),   loss = mean over acted slots of huber(Q(s_t, a_t) - y_t)

    double: select the bootstrap action with the online network instead of the target network
    dueling: Q = V + A - mean A
    epsilon_schedule: how it falls
    epsilon_per: step: every action is random or greedy by itself; episode: one draw decides for all actions of an
        episode, each of which is random if the draw is below epsilon
    td_loss: huber, squared, or huber_of_mean: the Huber loss of the batch's mean absolute error. The released code of
        Memoroids uses it for segments only, so that its two schemes learn from different losses
    target_memory: own: the target network's unroll of the same rows; fresh_next_obs, as in the released code of
        Memoroids: a scan of its own over next observations, in which an episode's first observation is missing
    value_rescaling: networks learn h(value) in place of values, y_t = h(r_t + ... + gamma^n h^-1(v_{t+n})), with the h
        of `rlmem.losses.off_policy.rescaled` (Kapturowski et al. 2019, R2D2)
    """

    double: bool = True
    dueling: bool = True
    epsilon_schedule: Literal["linear", "exponential"] = "linear"
    epsilon_per: Literal["step", "episode"] = "step"
    td_loss: Literal["huber", "squared", "huber_of_mean"] = "huber"
    target_memory: Literal["own", "fresh_next_obs"] = "own"
    value_rescaling: bool = False

    action_spaces = (spaces.Discrete, spaces.MultiDiscrete)
    masks = True

    def __post_init__(self) -> None:
        if self.td_loss == "huber_of_mean" and self.priority_exponent:
            raise ValueError("td_loss=huber_of_mean cannot weigh by priority; e.g. priority_exponent=0")
        if self.epsilon_schedule == "exponential" and not (self.epsilon_start and self.epsilon_end):
            raise ValueError("epsilon_schedule=exponential needs epsilon_start and epsilon_end above zero")

    def make_agent(self, trunks: Trunks, action_space: Space) -> QAgent:
        return QAgent(trunks, action_space, self.head_layers, self.dueling)

    def explore(self, steps: int, total_steps: int) -> Exploration:
        decay = max(self.epsilon_fraction * (total_steps - self.random_steps), 1)
        passed = min(max(steps - self.random_steps, 0) / decay, 1)
        if self.epsilon_schedule == "linear":
            epsilon = self.epsilon_start + passed * (self.epsilon_end - self.epsilon_start)
        else:
            epsilon = self.epsilon_start * (self.epsilon_end / self.epsilon_start) ** passed
        return Exploration(steps < self.random_steps, epsilon, self.epsilon_per == "episode")

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        slots = Slots(batch)
        features = self.agent.trunks.critic_features(batch)
        q_tm1 = chosen(self.agent.q(features.at(slots.acted)), self.agent.joint.index(slots.of(batch.action)))
        value = self._value(batch, features, slots)
        target = self.returns(batch, slots, unscaled(value) if self.value_rescaling else value)
        target = rescaled(target) if self.value_rescaling else target
        error = q_tm1 - target
        if self.td_loss == "huber_of_mean":
            loss = huber_of_mean(error)
        else:
            loss = slots.weighted_mean(huber(error) if self.td_loss == "huber" else error.square())
        metrics = {
            "loss": loss.detach(),
            "q_mean": slots.mean(q_tm1.detach()),
            "target_mean": slots.mean(target),
            "td_error": slots.mean(error.detach().abs()),
        }
        return loss, metrics, error.detach()

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Metrics:
        features = self.agent.trunks.critic_features(batch).at(Slots(batch).acted)
        return {"feature_rank": feature_rank(features), "q_spread": q_spread(self.agent.q(features))}

    @torch.no_grad()
    def _value(self, batch: Batch, features: SlotFeatures, slots: Slots) -> Tensor:
        """v [n] of the slots behind the acted ones; `features` are the online network's."""
        if self.target_memory == "own":
            theirs, ours = self.target.trunks.critic_features(batch).at(slots.after), features.at(slots.after)
        else:
            readers = self.target.trunks.critic, self.agent.trunks.critic
            theirs, ours = (reader.read_successors(batch).flatten(0, 1)[slots.after] for reader in readers)
        q_target = self.target.q(theirs)
        q = self.agent.q(ours) if self.double else q_target
        return greedy_value(q, q_target, self.agent.allowed(slots.masks(batch)[1]))


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
        """The gradients of `InMinibatches.loss_gradients`, without coefficients."""
        features = self.agent.trunks.read_critic(batch)
        taken = chosen(self.agent.q(features), self.agent.joint.index(batch.action))
        error = taken - batch.behaviour["target"]
        loss = mean(error.square(), batch.mask) / 2
        metrics = {"loss": loss, "q_mean": mean(taken, batch.mask), "td_error": mean(error.abs(), batch.mask)}
        for name, auxiliary in self.auxiliary(batch, features).items():
            loss, metrics[name] = loss + auxiliary, auxiliary
        metrics = {name: value.detach() for name, value in metrics.items()}
        return loss.detach(), metrics, self.gradients(loss)
