"""IMPALA: an actor-critic that corrects for acting with older weights."""

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.acting.actors import missing
from rlmem.algos.base import Outline, Plan
from rlmem.algos.on_policy import OnPolicy, batch_metrics, cut, mean, means, replay_deviation
from rlmem.batching import Batching, Rollout, Rows
from rlmem.core.types import (
    Batch,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitFloat,
    action_mask,
    processes,
)
from rlmem.loops.on_policy import ActorLoop
from rlmem.losses.on_policy import clipped_surrogate, vtrace


@dataclass(kw_only=True)
class Impala(OnPolicy):
    """IMPALA (Espeholt et al. 2018, arXiv:1802.01561): V-trace actor-critic, a gradient step per rollout.

        loss = sum_t -A_t log pi(a_t) + value_coef (vs_t - v_t)^2 / 2 - entropy_coef * entropy_t

    vs and A are V-trace's targets and advantages over whole streams (`rlmem.losses.on_policy.vtrace`), both constants.

    epochs: gradient steps on each rollout; 1: as published. From the second on, V-trace corrects for those before it
    clip: use PPO's surrogate in place of -A_t log pi(a_t), around the policy before the first step, so that many steps
        do not go too far (as in RLlib's APPO, without its target network); None: as published
    reduction: whether the loss is a sum over slots, as published, or a mean; the optimiser and the clipping of the
        gradient depend on its scale
    optimiser: RMSProp or Adam
    eps: epsilon of the optimiser
    decay: decay of RMSProp's mean of squared gradients
    momentum: momentum of RMSProp
    trace_lambda: lambda of V-trace's remark 2; 1: as published
    rho_bar: where the importance weights of the TD errors are clipped
    c_bar: where the importance weights of the traces are clipped
    actors: processes on Ray that collect, each in `env.num_envs` environments; 0: the learner collects between updates
    ray_address: address of a Ray cluster for the actors; see `rlmem.acting.actors.attached`
    """

    rollout_slots: PositiveInt = 100
    lr: PositiveFloat = 4.8e-4
    max_grad_norm: PositiveFloat | None = 40.0
    entropy_coef: NonNegativeFloat = 2.5e-4
    epochs: PositiveInt = 1
    clip: PositiveFloat | None = None
    reduction: Literal["sum", "mean"] = "sum"
    optimiser: Literal["rmsprop", "adam"] = "rmsprop"
    eps: PositiveFloat = 0.1
    decay: UnitFloat = 0.99
    momentum: UnitFloat = 0.0
    trace_lambda: UnitFloat = 1.0
    rho_bar: PositiveFloat = 1.0
    c_bar: PositiveFloat = 1.0
    actors: NonNegativeInt = 0
    ray_address: str | None = None

    def __post_init__(self) -> None:
        if self.actors:
            self.loop, self.resumes_environments = ActorLoop, False

    def outline(self, plan: Plan) -> Outline:
        outline = super().outline(plan)
        if not self.actors:
            return outline
        problems = [missing()]
        if plan.processes > 1:
            devices = f"trainer.devices={plan.processes}"
            problems.append(f"one process learns from actors, not {devices}; expected 1; e.g. algo.actors=0")
        outline.problems += [f"algo.actors={self.actors}: {problem}" for problem in problems if problem]
        processes = f"{self.actors} processes on Ray" if self.actors > 1 else "a process on Ray"
        unordered = "rollouts come in any order, so neither this run nor a resumed one can be repeated exactly"
        outline.actors = f"{processes}; {unordered}"
        return outline

    def make_optimiser(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self.optimiser == "adam":
            return torch.optim.Adam(parameters, lr=self.lr, eps=self.eps, fused=True)
        return torch.optim.RMSprop(parameters, lr=self.lr, alpha=self.decay, eps=self.eps, momentum=self.momentum)

    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]:
        lr = self.anneal(progress)
        rows = cut(rollout, batching)
        batch = rows.batch(rollout)
        steps: list[dict[str, Tensor]] = []
        deviation: dict[str, float] = {}
        diagnosed: dict[str, float] = {}
        for epoch in range(self.epochs):
            actor, critic = self.agent.trunks.read(batch)
            if epoch == 0:
                diagnosed = self.diagnose(critic.detach()[batch.mask], batch.action[batch.mask])
            loss, metrics = self.loss(rollout.streams, rows, batch, actor, critic)
            largest = metrics.pop("ratio_max_dev")
            if epoch == rollout.lag == 0:
                deviation = {"ratio_max_dev": float(largest)}
            steps.append({name: value.detach() for name, value in metrics.items()} | {"grad_norm": self.step(loss)})
        values = means(self.taken(steps)) | deviation | diagnosed | {"lr": lr, "lag": rollout.lag}
        return self.named(values) | batch_metrics(rollout, rows, batch)

    def loss(
        self, streams: Batch, rows: Rows, batch: Batch, actor: Tensor, critic: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of the rows `batch` that were cut from `streams`; metrics, which are means over slots.

        actor, critic: the features [B, T, F] of the rows
        """
        parameters, value = self.agent.heads(actor, critic, action_mask(batch.obs))
        policy = self.agent.policy.distribution(parameters)
        log_prob = policy.log_prob(batch.action)
        # With `clip`, V-trace corrects up to the policy before the first step, and the surrogate for the steps since.
        before = log_prob.detach() if self.clip is None else batch.behaviour.setdefault("before", log_prob.detach())
        log_ratio = before - batch.behaviour["log_prob"]
        with torch.no_grad():  # V-trace runs over the uncut streams
            ratios, values = (rows.scatter(x, streams.shape) for x in (log_ratio, value))
            target, advantage = vtrace(
                ratios, streams.reward, values, streams.terminated, streams.mask,
                self.gamma, self.trace_lambda, self.rho_bar, self.c_bar,
            )  # fmt: skip
        target, advantage, mask = rows.gather(target), rows.gather(advantage), batch.mask
        if self.clip is None:
            policy_loss = -mean(advantage * log_prob, mask)
        else:
            policy_loss = mean(clipped_surrogate(log_prob, before, advantage, self.clip), mask)
        value_loss = mean((target - value).square(), mask) / 2
        entropy = mean(policy.entropy(), mask)
        loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * entropy
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "value_mean": mean(value, mask),
            "ratio_max_dev": replay_deviation(log_ratio, batch.mask),
            "rho_mean": mean(log_ratio.clamp(max=log(self.rho_bar)).exp(), mask),
        }
        loss = loss * processes().summed(mask.sum()) if self.reduction == "sum" else loss
        for name, auxiliary in self.auxiliary(batch, critic).items():
            loss, metrics[name] = loss + auxiliary, auxiliary
        return loss, metrics
