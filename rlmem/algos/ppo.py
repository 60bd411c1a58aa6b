"""Proximal Policy Optimisation over memory agents."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlmem.agents.graphs import recorded
from rlmem.algos.base import ScaledRewards
from rlmem.algos.on_policy import InMinibatches, OnPolicy, batch_metrics, cut, mean, means, replay_deviation
from rlmem.batching import Batching, Rollout, Rows
from rlmem.core.types import Batch, NonNegativeFloat, PositiveFloat, ShareBelowOne, UnitFloat, action_mask, processes
from rlmem.losses.on_policy import (
    adapt_kl_coef,
    clipped_surrogate,
    discounted_return,
    gae,
    lambda_return,
    standardise,
    value_error,
    with_discrepancy,
)


@dataclass(kw_only=True)
class PPO(ScaledRewards, InMinibatches, OnPolicy):
    """Proximal Policy Optimisation (Schulman et al. 2017, arXiv:1707.06347) with recurrent rows.

        loss = clipped surrogate + value_coef * value error - entropy_coef * entropy + kl_coef * KL(old || new)

    Each update: cut the rollout into rows; recompute log-probabilities and values in one unroll, which must agree
    with acting (`ppo/ratio_max_dev`); advantages over whole streams; then `epochs` passes over shuffled rows.

    complete_episodes: start rollouts from a reset and run every episode to its end
    gae_lambda: lambda of generalised advantage estimation
    reward_scale: factor of the rewards in advantages and targets; None: one over the root mean square of the discounted
        returns in the first rollout, at most 1. A new critic gives values around 0.1: where returns are in the
        hundreds, its loss drowns the policy's, and it takes many steps until its values have the right size
    clip: epsilon of the clipped surrogate
    anneal_clip: lower it linearly to zero over the run
    value_error_clamp: upper bound of the squared value error; None: no bound
    normalize_advantage: whether advantages are standardised, over a minibatch or the whole batch
    kl_coef: weight of the KL penalty, adapted after every update; 0: no penalty
    kl_target: the KL divergence that `kl_coef` is adapted to
    ld_weight: w of the lambda-discrepancy (Allen et al. 2024, arXiv:2407.07333): in the place of the value error stands
        (1 - w) mean[(error + error') / 2] + w mean[(V - V')^2], with a second critic V' that learns the returns of
        `ld_lambda`. Both agree where what is remembered is Markov, so that it rewards memory; below 1; 0: one critic
    ld_lambda: lambda of the second critic; that of the first is `gae_lambda`
    """

    complete_episodes: bool = False
    gae_lambda: UnitFloat = 0.95
    reward_scale: PositiveFloat | None = 1.0
    clip: PositiveFloat = 0.2
    anneal_clip: bool = False
    value_error_clamp: PositiveFloat | None = None
    normalize_advantage: Literal["minibatch", "batch", "none"] = "minibatch"
    kl_coef: NonNegativeFloat = 0.0
    kl_target: PositiveFloat = 0.01
    ld_weight: ShareBelowOne = 0.0
    ld_lambda: UnitFloat = 0.5

    saved = (*ScaledRewards.saved, "kl_coef")

    @property
    def values(self) -> int:
        return 2 if self.ld_weight else 1

    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]:
        lr, clip = self.anneal(progress), self.clip * (1 - progress) if self.anneal_clip else self.clip
        rows = cut(rollout, batching)
        batch = rows.batch(rollout)
        metrics = self.evaluate_rollout(rollout.streams, rows, batch)
        learn = lambda part: self.minibatch(part, clip, self.kl_coef)  # noqa: E731
        steps = self.taken(self.passes(batch, learn))
        metrics |= means(steps)
        if self.kl_coef and steps:
            per_epoch = -(-len(steps) // self.epochs)
            last_epoch = means(steps[-per_epoch:])
            metrics["kl_coef"] = self.kl_coef
            self.kl_coef = adapt_kl_coef(self.kl_coef, last_epoch["kl"], self.kl_target)
        return self.named(metrics | {"lr": lr}) | batch_metrics(rollout, rows, batch)

    @torch.no_grad()
    def evaluate_rollout(self, streams: Batch, rows: Rows, batch: Batch) -> dict[str, float]:
        """Read all rows once as training will, before any gradient step. Fills `batch.behaviour` with advantages and
        targets; returns metrics, with the deviation from what acting computed.
        """
        actor, critic = self.agent.trunks.read(batch)
        parameters, value = self.agent.heads(actor, critic, action_mask(batch.obs))
        log_prob = self.agent.policy.distribution(parameters).log_prob(batch.action)
        stream_value = rows.scatter(value, streams.shape)
        reward = streams.reward * self._scale(streams)
        signals = reward, stream_value, streams.terminated, streams.mask
        advantage = gae(*signals, self.gamma, self.gae_lambda)
        target = rows.gather(advantage + stream_value)
        unexplained, total = (mean((x - mean(x, batch.mask)).square(), batch.mask) for x in (target - value, target))
        if self.normalize_advantage == "batch":
            advantage = standardise(advantage, streams.mask, mean)
        batch.behaviour |= {"advantage": rows.gather(advantage), "target": target}
        if self.kl_coef:
            batch.behaviour["parameters"] = parameters
        metrics = {}
        for second in self.agent.more_values(critic):
            signals = reward, rows.scatter(second, streams.shape), streams.terminated, streams.mask
            batch.behaviour["second_target"] = rows.gather(lambda_return(*signals, self.gamma, self.ld_lambda))
            metrics = {"lambda_discrepancy": float(mean((value - second).square(), batch.mask).sqrt())}
        return metrics | {
            "ratio_max_dev": float(replay_deviation(log_prob - batch.behaviour["log_prob"], batch.mask)),
            "explained_variance": float(1 - unexplained / (total + 1e-8)),
            "value_mean": float(mean(value, batch.mask)),
            "reward_scale": self._scale(streams),
            **self.diagnose(critic[batch.mask], batch.action[batch.mask]),
        }

    def _scale(self, streams: Batch) -> float:
        """The factor of the rewards, which is chosen from these streams [N, T+1] if it is not known yet."""
        if self.scale is None:
            _, exponent = math.frexp(float(processes().largest(streams.reward.abs().amax())))
            unit = 2.0 ** max(0, exponent - 1)  # so that no square is too large
            returns = discounted_return(streams.reward / unit, streams.terminated, streams.mask, self.gamma)
            self.scale = 1 / max(unit * float(mean(returns.square(), streams.mask).sqrt()), 1.0)
        return self.scale

    @recorded
    def loss_gradients(
        self, batch: Batch, *coefficients: float
    ) -> tuple[Tensor, dict[str, Tensor], list[Tensor | None]]:
        """As `InMinibatches.loss_gradients`; the coefficients are those of the clip and of the KL penalty."""
        clip, kl_coef = coefficients
        old, mask = batch.behaviour, batch.mask
        actor, critic = self.agent.trunks.read(batch)
        parameters, value = self.agent.heads(actor, critic, action_mask(batch.obs))
        policy = self.agent.policy.distribution(parameters)
        log_prob = policy.log_prob(batch.action)
        advantage = old["advantage"]
        if self.normalize_advantage == "minibatch":
            advantage = standardise(advantage, mask, mean)
        surrogate = clipped_surrogate(log_prob, old["log_prob"], advantage, clip)
        error = value_error(value, old["target"], self.value_error_clamp)
        for second in self.agent.more_values(critic):
            second_error = value_error(second, old["second_target"], self.value_error_clamp)
            error = with_discrepancy(error, value, second_error, second, self.ld_weight)
        log_ratio = (log_prob - old["log_prob"]).detach()
        ratio_less_one = torch.expm1(log_ratio)
        if "parameters" in old:
            change = self.agent.policy.distribution(old["parameters"]).kl(policy)
        else:
            change = ratio_less_one - log_ratio  # unbiased, never negative (Schulman 2020)
        clipped = (ratio_less_one.abs() > clip).float()
        all_means = mean(torch.stack([surrogate, error, policy.entropy(), change, clipped]), mask)
        policy_loss, value_loss, entropy, kl, _ = all_means.unbind()
        loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * entropy
        if "parameters" in old:
            loss = loss + kl_coef * kl
        names = "policy_loss", "value_loss", "entropy", "kl", "clip_fraction"
        metrics = dict(zip(names, all_means.detach().unbind(), strict=True))
        for name, auxiliary in self.auxiliary(batch, critic).items():
            loss, metrics[name] = loss + auxiliary, auxiliary.detach()
        return loss.detach(), metrics, self.gradients(loss)
