"""Proximal Policy Optimisation over memory agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.agents.actor_critic import ActorCritic, MemoryGradient
from rlmem.agents.trunk import Trunk
from rlmem.batching import Batching, Rollout, Rows
from rlmem.losses.ppo import adapt_kl_coef, clipped_surrogate, value_error
from rlmem.losses.reduce import masked_mean, standardise
from rlmem.losses.returns import gae
from rlmem.types import Batch, NonNegativeFloat, PositiveFloat, PositiveInt, UnitFloat


class PPO:
    """Proximal Policy Optimisation (Schulman et al. 2017, arXiv:1707.06347) with recurrent rows.

        loss = clipped surrogate + value_coef * value error - entropy_coef * entropy + kl_coef * KL(old || new)

    Each update: cut the rollout into rows; recompute log-probabilities and values in one unroll, which must agree
    with acting (`ppo/ratio_max_dev`); advantages over whole streams; then `epochs` passes over shuffled rows.

    rollout_slots: slots collected from every environment per update
    complete_episodes: start rollouts from a reset and run every episode to its end
    epochs, num_minibatches: passes over a rollout, and parts of each pass (at most one per row)
    lr, anneal_lr, adam_eps, max_grad_norm: Adam, linearly annealed to zero over the run, clipped by global norm
    gamma, gae_lambda: discount and GAE's trade-off;  clip: of the probability ratio
    value_error_clamp: upper bound of the squared value error;  normalize_advantage: over what, if at all
    kl_coef, kl_target: weight of the KL penalty, adapted to the target after every update; zero turns it off
    head_sizes: hidden layers of actor and critic;  state_dependent_std: see `rlmem.nets.policy.PolicyHead`
    separate: an encoder and a memory each for actor and critic;  memory_gradient: whose loss trains a shared one
    """

    action_spaces = (spaces.Discrete, spaces.MultiDiscrete, spaces.Box)

    def __init__(
        self,
        rollout_slots: PositiveInt = 128,
        complete_episodes: bool = False,
        epochs: PositiveInt = 4,
        num_minibatches: PositiveInt = 8,
        lr: PositiveFloat = 1e-3,
        anneal_lr: bool = True,
        adam_eps: PositiveFloat = 1e-5,
        gamma: UnitFloat = 0.99,
        gae_lambda: UnitFloat = 0.95,
        clip: PositiveFloat = 0.2,
        entropy_coef: NonNegativeFloat = 0.01,
        value_coef: NonNegativeFloat = 0.5,
        value_error_clamp: PositiveFloat | None = None,
        normalize_advantage: Literal["minibatch", "batch", "none"] = "minibatch",
        max_grad_norm: PositiveFloat | None = 0.5,
        kl_coef: NonNegativeFloat = 0.0,
        kl_target: PositiveFloat = 0.01,
        head_sizes: Sequence[PositiveInt] = (128, 128),
        state_dependent_std: bool = False,
        separate: bool = False,
        memory_gradient: MemoryGradient = "both",
    ):
        self.rollout_slots = rollout_slots
        self.complete_episodes = complete_episodes
        self.epochs = epochs
        self.num_minibatches = num_minibatches
        self.lr = lr
        self.anneal_lr = anneal_lr
        self.adam_eps = adam_eps
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.clip = clip
        self.entropy_coef = entropy_coef
        self.value_coef = value_coef
        self.value_error_clamp = value_error_clamp
        self.normalize_advantage = normalize_advantage
        self.max_grad_norm = max_grad_norm
        self.kl_coef = kl_coef
        self.kl_target = kl_target
        self.head_sizes = head_sizes
        self.state_dependent_std = state_dependent_std
        self.separate = separate
        self.memory_gradient = memory_gradient

    def make_agent(self, make_trunk: Callable[[], Trunk], action_space: Space) -> ActorCritic:
        return ActorCritic(
            make_trunk, action_space, self.head_sizes, self.state_dependent_std, self.separate, self.memory_gradient
        )

    def setup(self, agent: ActorCritic, generator: torch.Generator) -> None:
        """Take `agent` into training; `generator` shuffles rows."""
        self.agent = agent
        self.generator = generator
        self.optimiser = torch.optim.Adam(agent.parameters(), lr=self.lr, eps=self.adam_eps, fused=True)

    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]:
        """Improve the agent from one rollout; `progress` is the fraction of training done. Returns metrics.

        Raises FloatingPointError if the loss is not finite.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr * (1 - progress) if self.anneal_lr else self.lr
        rows = batching.rows(rollout.streams)
        batch = rows.batch(rollout)
        metrics = self._evaluate_rollout(rollout.streams, rows, batch)
        sums: defaultdict[str, list[Tensor]] = defaultdict(list)
        for _ in range(self.epochs):
            order = torch.randperm(len(rows.env), generator=self.generator).to(rows.env.device)
            for part in order.tensor_split(min(self.num_minibatches, len(order))):
                for name, value in self._minibatch(batch.rows(part)).items():
                    sums[name].append(value)
        metrics |= {f"ppo/{name}": float(torch.stack(values).mean()) for name, values in sums.items()}
        if self.kl_coef:
            per_epoch = len(sums["kl"]) // self.epochs
            last_epoch = float(torch.stack(sums["kl"][-per_epoch:]).mean())
            metrics["ppo/kl_coef"] = self.kl_coef
            self.kl_coef = adapt_kl_coef(self.kl_coef, last_epoch, self.kl_target)
        return metrics | {
            "ppo/lr": self.optimiser.param_groups[0]["lr"],
            "batch/rows": len(rows.env),
            "batch/episodes": int(rollout.streams.start.sum()),
            "batch/transitions": int(batch.mask.sum()),
            "batch/pad_fraction": rows.pad_fraction,
        }

    @torch.no_grad()
    def _evaluate_rollout(self, streams: Batch, rows: Rows, batch: Batch) -> dict[str, float]:
        """Read all rows once as training will, before any gradient step: fills `batch.behaviour`, checks the replay."""
        parameters, value = self.agent.unroll(batch)
        log_prob = self.agent.policy.distribution(parameters).log_prob(batch.action)
        ratio = torch.exp(log_prob - batch.behaviour["log_prob"])
        stream_value = rows.scatter(value, streams.shape)
        advantage = gae(streams.reward, stream_value, streams.terminated, streams.mask, self.gamma, self.gae_lambda)
        target = rows.gather(advantage + stream_value)
        explained = 1 - _variance(target - value, batch.mask) / (_variance(target, batch.mask) + 1e-8)
        if self.normalize_advantage == "batch":
            advantage = standardise(advantage, streams.mask)
        batch.behaviour |= {"advantage": rows.gather(advantage), "target": target}
        if self.kl_coef:
            batch.behaviour["parameters"] = parameters
        return {
            "ppo/ratio_max_dev": float(torch.where(batch.mask, (ratio - 1).abs(), 0).max()),
            "ppo/explained_variance": float(explained),
            "ppo/value_mean": float(masked_mean(value, batch.mask)),
        }

    def _minibatch(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step on some rows."""
        old, mask = batch.behaviour, batch.mask
        parameters, value = self.agent.unroll(batch)
        policy = self.agent.policy.distribution(parameters)
        log_prob = policy.log_prob(batch.action)
        advantage = old["advantage"]
        if self.normalize_advantage == "minibatch":
            advantage = standardise(advantage, mask)
        policy_loss = masked_mean(clipped_surrogate(log_prob, old["log_prob"], advantage, self.clip), mask)
        value_loss = masked_mean(value_error(value, old["target"], self.value_error_clamp), mask)
        entropy = masked_mean(policy.entropy(), mask)
        loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * entropy
        log_ratio = (log_prob - old["log_prob"]).detach()
        if self.kl_coef:
            kl = masked_mean(self.agent.policy.distribution(old["parameters"]).kl(policy), mask)
            loss = loss + self.kl_coef * kl
        else:
            kl = masked_mean(torch.expm1(log_ratio) - log_ratio, mask)  # unbiased, never negative (Schulman 2020)
        self.optimiser.zero_grad()
        loss.backward()
        limit = float("inf") if self.max_grad_norm is None else self.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.agent.parameters(), limit)
        if not torch.isfinite(grad_norm):
            raise FloatingPointError(
                f"gradient norm is {float(grad_norm)}, loss {float(loss.detach())}: no step was taken"
            )
        self.optimiser.step()
        clipped = masked_mean(((torch.exp(log_ratio) - 1).abs() > self.clip).float(), mask)
        return {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl": kl.detach(),
            "clip_fraction": clipped,
            "grad_norm": grad_norm,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimiser": self.optimiser.state_dict(),
            "kl_coef": self.kl_coef,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimiser.load_state_dict(state["optimiser"])
        self.kl_coef = state["kl_coef"]
        self.generator.set_state(state["generator"].cpu())


def _variance(x: Tensor, mask: Tensor) -> Tensor:
    return masked_mean((x - masked_mean(x, mask)).square(), mask)
