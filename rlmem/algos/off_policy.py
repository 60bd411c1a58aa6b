"""What off-policy algorithms share: their settings, targets, the optimiser, the target network and the loop."""

from abc import abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlmem.agents.layers import HeadSettings
from rlmem.agents.off_policy import OffPolicyAgent
from rlmem.algos.base import Outline, Plan, ScaledRewards, Storage
from rlmem.algos.on_policy import Finite
from rlmem.batching import Segment
from rlmem.core.types import (
    Batch,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveUnitFloat,
    UnitFloat,
    action_mask,
    flagged,
)
from rlmem.loops.off_policy import OffPolicyLoop
from rlmem.loops.parts import OnNan
from rlmem.losses.off_policy import n_step_return

Metrics = dict[str, Tensor]

LEAST_REWARD = 1e-6
"""The root mean square below which rewards are not scaled up to one: the user must then set `reward_scale`."""


class Slots:
    """The n acted slots of a batch, and those behind them. Slots are numbered b * T + t.

    acted: [n], the slots in which the agent acted
    after: [n], the slot behind each of them, which is its successor
    weight: [n], importance weights; None: all are one
    """

    def __init__(self, batch: Batch):
        self.acted = flagged(batch.mask)
        self.after = self.acted + 1
        weight = batch.behaviour.get("weight")
        self.weight = None if weight is None else self.of(weight)

    def of(self, x: Tensor) -> Tensor:
        """[B, T, ...] to [n, ...], where the agent acted."""
        return x.flatten(0, 1)[self.acted]

    def masks(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """The action masks [n, A] of the slots that acted, and of those behind them; None: all actions are allowed."""
        mask = action_mask(batch.obs)
        return (None, None) if mask is None else (self.of(mask), mask.flatten(0, 1)[self.after])

    def mean(self, x: Tensor) -> Tensor:
        """The mean of x [n]; zero if there is no slot."""
        return x.sum() / max(len(x), 1)

    def weighted_mean(self, x: Tensor) -> Tensor:
        """The mean of x [n] times the importance weights; the sum is still divided by n."""
        return self.mean(x if self.weight is None else self.weight * x)


@dataclass(kw_only=True)
class OffPolicy(ScaledRewards, HeadSettings):
    """An algorithm that learns from replayed episodes.

    An update reads `batch_size` transitions of whole episodes or segments of them. The target of slot t bootstraps
    from slot t+1 of the same rows, as the target network reads them in one unroll:

        y_t = r_t + ... + gamma^{n-1} r_{t+n-1} + gamma^n v_{t+n},   fewer terms where the episode or the row ends

    capacity: transitions that the replay keeps
    replay_dir: folder of the replay's memory-mapped files; None: the replay is in memory
    batch_size: transitions per update
    priority_exponent: 0: rows are drawn uniformly; above it: by their TD error
    importance_exponent: exponent of the importance weights, which correct for drawing by TD error
    collect_slots: slots collected from every environment between updates
    random_steps: environment steps at the beginning that act uniformly at random
    learning_starts: environment steps before the first update
    update_ratio: updates per environment step or per episode, a fraction if need be
    update_per: whether `update_ratio` is per step or per episode
    record_every: environment steps per row of metrics.jsonl
    lr: learning rate of Adam
    lr_warmup: updates over which the learning rate rises linearly from zero
    adam_eps: epsilon of Adam
    max_grad_norm: bound of the gradient's global norm, for each part of the parameters; None: no bound
    gamma: discount
    n_step: rewards in a target before it bootstraps
    reward_scale: factor of the rewards in targets; None: one over the root mean square of the nonzero rewards in the
        replay at the first update. Networks begin with values around 0.1: where rewards are far smaller (POPGym divides
        them by the episode's length), learning would begin by fitting that noise
    tau: how far the target network moves towards the online one; 1 copies it
    target_every: updates between such moves
    """

    capacity: PositiveInt = 1_000_000
    replay_dir: str | None = None
    batch_size: PositiveInt = 1000
    priority_exponent: UnitFloat = 0.0
    importance_exponent: UnitFloat = 0.4
    collect_slots: PositiveInt = 1
    random_steps: NonNegativeInt = 1000
    learning_starts: NonNegativeInt = 1000
    update_ratio: PositiveFloat = 0.05
    update_per: Literal["step", "episode"] = "step"
    record_every: PositiveInt = 1000
    lr: PositiveFloat = 3e-4
    lr_warmup: NonNegativeInt = 0
    adam_eps: PositiveFloat = 1e-8
    max_grad_norm: PositiveFloat | None = None
    gamma: UnitFloat = 0.99
    n_step: PositiveInt = 1
    reward_scale: PositiveFloat | None = None
    tau: PositiveUnitFloat = 0.005
    target_every: PositiveInt = 1

    saved = (*ScaledRewards.saved, "updates")
    bounded_actions = True
    one_process = "learns from one replay"
    weight_copies = 4  # including the target network

    loop = OffPolicyLoop

    def outline(self, plan: Plan) -> Outline:
        outline, batching = super().outline(plan), plan.batching
        length, rows = (batching.length, batching.num_rows) if isinstance(batching, Segment) else (None, None)
        if problem := batching.replay_problem(self.batch_size):
            outline.problems.append(f"batching={plan.choices['batching']}: {problem}")
        outline.problems += [
            f"algo.{name}={steps}: the run ends before, at total_steps={plan.total_steps}; "
            f"e.g. algo.{name}={plan.total_steps // 10}"
            for name, steps in (("learning_starts", self.learning_starts), ("random_steps", self.random_steps))
            if steps >= plan.total_steps
        ]
        if self.replay_dir is not None and (reason := _why_unwritable(Path(self.replay_dir))):
            fault = f"cannot be written ({reason})"
            outline.problems.append(f"algo.replay_dir={self.replay_dir}: {fault}; e.g. algo.replay_dir=/tmp")
        if length is not None and length < self.n_step:
            fault = f"algo.n_step={self.n_step}: no row holds more than {length} rewards, where returns end"
            outline.notes.append(f"{fault}; e.g. batching.length={4 * self.n_step}")
        rate = f"{self.update_ratio:g} updates per {self.update_per} after {self.learning_starts:,}"
        read = f"{rows} segments" if rows else f"{self.batch_size:,} transitions"
        outline.training = f"(the first {self.random_steps:,} at random), {rate}, {read} each"
        if self.update_per == "step":
            outline.updates = self.update_ratio * max(plan.total_steps - self.learning_starts, 0)
        outline.shown = batching.longest_episode(self.batch_size)
        outline.reach = batching.reach(outline.shown)
        states = batching.state_slots(replay=True)
        every = states.every if states else None
        outline.storage = Storage(self.collect_slots, None, False, self.capacity, every, self.replay_dir)
        return outline

    @abstractmethod
    def loss(self, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        """The loss of a batch, metrics, and the TD errors [n] of the acted slots, for priorities."""

    def diagnose(self, batch: Batch) -> Metrics:
        """Measures of the networks on a batch, such as its `feature_rank`."""
        return {}

    def setup(self, agent: OffPolicyAgent, generator: torch.Generator, on_nan: OnNan = "stop") -> None:
        """Prepare to train an agent.

        agent: the agent
        generator: draws what losses need, on the agent's device
        on_nan: see `Finite`
        """
        self.agent: Any = agent
        self.generator, self.finite = generator, Finite(on_nan)
        self.target: Any = deepcopy(agent).requires_grad_(False)
        networks = self.target, self.agent  # listed once: looking for weights takes as long as moving small ones
        self.weights: list[list[Tensor]] = [list(network.parameters()) for network in networks]
        self.buffers = [list(network.buffers()) for network in networks]
        self.parameters = self.trained_parameters()
        groups = [{"params": group, "full_lr": self.rate(part)} for part, group in self.parameters.items()]
        self.optim = torch.optim.Adam(groups, eps=self.adam_eps, fused=True)
        self.updates, self.scale = 0, self.reward_scale

    def trained_parameters(self) -> dict[str, list[nn.Parameter]]:
        """The parameters by the name of their part; gradients are clipped part by part."""
        return {"critic": list(self.agent.parameters())}

    def rate(self, part: str) -> float:
        """The learning rate of a part."""
        return self.lr

    def scale_rewards(self, rewards: Tensor) -> None:
        """Choose `scale` where `reward_scale` leaves it open, from the rewards in the replay."""
        rewards = rewards[rewards != 0].double()
        if self.scale is None and len(rewards):
            self.scale = 1 / max(float(rewards.square().mean().sqrt()), LEAST_REWARD)

    def update(self, batch: Batch) -> tuple[Metrics, Tensor]:
        """Take one gradient step on a batch, if it is finite, which `finite.settle` tells.

        Returns metrics and the TD errors [n] of the acted slots.
        """
        loss, metrics, td_error = self.loss(batch)
        if self.auxiliary_loss is not None:
            auxiliary = self.loss_beside(batch, self.agent.trunks.read_critic(batch))
            loss, metrics["auxiliary_loss"] = loss + auxiliary, auxiliary.detach()
        self.optim.zero_grad()
        loss.backward()
        return metrics | self.step(loss), td_error

    def step(self, loss: Tensor) -> Metrics:
        """Take a gradient step, if it is finite, and move the target network. Returns gradient norms."""
        limit = float("inf") if self.max_grad_norm is None else self.max_grad_norm
        learning = {part: group for part, group in self.parameters.items() if any(p.grad is not None for p in group)}
        norms = {f"{part}_grad_norm": nn.utils.clip_grad_norm_(group, limit) for part, group in learning.items()}
        for group in self.optim.param_groups:
            group["lr"] = group["full_lr"] * min(1.0, (self.updates + 1) / max(self.lr_warmup, 1))
        self.finite.step(self.optim, loss=loss, **norms)
        self.updates += 1
        if self.updates % self.target_every == 0:
            self.follow()
        return norms

    @torch.no_grad()
    def follow(self) -> None:
        """target <- (1 - tau) target + tau online; buffers are copied."""
        target, online = self.weights
        torch._foreach_lerp_(target, online, self.tau)
        for old, new in zip(*self.buffers, strict=True):
            old.copy_(new)

    def returns(self, batch: Batch, slots: Slots, value: Tensor) -> Tensor:
        """The targets y [n] of the acted slots, without gradient, from the values v [n] of the slots behind them."""
        reward, v = batch.reward * (self.scale or 1.0), value.new_zeros(batch.reward.numel())
        v[slots.after] = value.detach()
        v = v.view_as(reward)
        return slots.of(n_step_return(reward, v, batch.terminated, batch.mask, self.gamma, self.n_step))

    def learnt(self) -> dict[str, Any]:
        """The target network, and the scale of rewards if the algorithm has chosen it: critics depend on it."""
        return super().learnt() | {"target": self.target.state_dict()}

    def load_learnt(self, state: dict[str, Any]) -> None:
        super().load_learnt(state)
        self.target.load_state_dict(state["target"])

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "target": self.target.state_dict(),
            "generator": self.generator.get_state(),
            "generator_device": self.generator.device.type,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.target.load_state_dict(state["target"])
        if state["generator_device"] == self.generator.device.type:  # else not its kind of state
            self.generator.set_state(state["generator"].cpu())


def _why_unwritable(folder: Path) -> str | None:
    """Why no file can be made in a folder, which need not exist yet; None if one can."""
    try:
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        TemporaryFile(dir=there).close()
    except (OSError, ValueError) as error:  # ValueError: a null byte
        return getattr(error, "strerror", None) or str(error)
    return None


def q_spread(q: Tensor) -> Tensor:
    """How far the values [..., A] of the best and the worst of A actions are apart, the mean over slots."""
    return (q.amax(-1) - q.amin(-1)).mean()
