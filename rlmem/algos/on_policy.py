"""What algorithms that learn from rollouts share: their settings, the agent and the optimiser's step."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.agents.actor_critic import ActorCritic, MemoryGradient
from rlmem.agents.trunk import Trunks
from rlmem.algos.base import Algorithm, Plan, Storage
from rlmem.algos.diagnostics import action_spread, actions_at_bounds, feature_rank
from rlmem.algos.finite import Finite
from rlmem.batching import Batching, Rollout, Rows
from rlmem.loops.base import Loop
from rlmem.loops.on_policy import OnPolicyLoop
from rlmem.loops.parts import LoopParts, OnNan
from rlmem.losses.on_policy import masked_mean, masked_total
from rlmem.nets.layers import HeadSettings
from rlmem.parallel import alone, largest, least, place, sum_gradients, summed, totals
from rlmem.types import Batch, NonNegativeFloat, PositiveFloat, PositiveInt, UnitFloat, on_host


@dataclass(kw_only=True)
class FromRollouts(HeadSettings, Algorithm):
    """An algorithm that learns from each rollout and then drops it.

    rollout_slots: slots collected from every environment per update
    complete_episodes: whether rollouts start from a reset and run every episode to its end
    lr: learning rate
    anneal_lr: lower the learning rate linearly to zero over the run
    max_grad_norm: bound of the gradient's global norm; None: no bound
    gamma: discount
    """

    rollout_slots: PositiveInt = 128
    complete_episodes: bool = field(default=False, init=False)
    lr: PositiveFloat = 1e-3
    anneal_lr: bool = True
    max_grad_norm: PositiveFloat | None = 0.5
    gamma: UnitFloat = 0.99

    def setup(self, agent: Any, generator: torch.Generator, on_nan: OnNan = "stop") -> None:
        """Prepare to train an agent.

        agent: the agent
        generator: shuffles rows
        on_nan: see `Finite`
        """
        self.agent, self.generator, self.finite = agent, generator, Finite(on_nan)
        self.weights: list[nn.Parameter] = list(agent.parameters())
        self.optim = self.make_optimiser(self.weights)
        if agent.graphs is not None and alone():  # in several processes, a gradient holds means over the rows of all
            agent.graphs.record(self)

    def make_loop(self, parts: LoopParts) -> Loop:
        generator = parts.streams.torch(parts.own_stream("rows"))
        self.setup(parts.agent, generator, parts.on_nan)
        at_end = self.explore(parts.total_steps, parts.total_steps)  # for the evaluation of a run that has ended
        return OnPolicyLoop(algo=self, collector=parts.make_collector(), exploration=at_end, **vars(parts))

    def describe(self, plan: Plan) -> dict[str, str]:
        num_envs = plan.num_envs * plan.processes
        updates = f"in about {self.planned_updates(plan):,} updates"
        return {"training": f"{updates} of {num_envs} x {self.rollout_slots} slots"}

    def planned_updates(self, plan: Plan) -> int:
        return -(-plan.total_steps // (self.rollout_slots * plan.num_envs * plan.processes))

    def shown(self, batching: Batching) -> int | None:
        return None if self.complete_episodes else self.rollout_slots

    def storage(self, batching: Batching) -> Storage:
        return Storage(self.rollout_slots, slots_key="rollout_slots", with_gradient=True)

    def batching_problem(self, batching: Batching) -> str | None:
        return batching.on_policy_problem()

    def make_optimiser(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, fused=True)

    @abstractmethod
    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]:
        """Improve the agent from one rollout. Returns metrics. Raises FloatingPointError as `Finite.settle` does.

        rollout: what the agent, or an earlier version of it, collected
        batching: how to cut rows
        progress: the fraction of the run's steps that were taken before the rollout
        """

    def passes(
        self, batch: Batch, epochs: int, most: int, learn: Callable[[Batch], dict[str, Tensor]]
    ) -> list[dict[str, Tensor]]:
        """Call `learn` for every minibatch of `epochs` passes over shuffled rows, and return what it returned.

        most: minibatches of a pass, at most one per row of any process
        """
        n = len(batch.mask)
        parts = least(min(most, n))
        orders = (torch.randperm(n, generator=self.generator) for _ in range(epochs))
        return [learn(batch.rows(part)) for order in orders for part in order.tensor_split(parts)]

    def named(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics with the algorithm's name as their prefix."""
        return {f"{self.name}/{name}": value for name, value in metrics.items()}

    def anneal(self, progress: float) -> float:
        """Set the learning rate, and return it."""
        lr = self.lr * (1 - progress) if self.anneal_lr else self.lr
        for group in self.optim.param_groups:
            group["lr"] = lr
        return lr

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        """The gradients of a loss, one for each of the agent's parameters."""
        self.optim.zero_grad()
        loss.backward()
        return [parameter.grad for parameter in self.weights]

    def step(self, loss: Tensor, gradients: list[Tensor | None] | None = None) -> Tensor:
        """Take one gradient step, clipped by global norm, if loss and gradient are finite. Returns the norm before
        clipping. Every process takes the same step: `loss` is the mean over the rows of all.

        gradients: of the loss, as `gradients` returned them; None: they are taken here
        """
        for parameter, gradient in zip(self.weights, gradients or self.gradients(loss), strict=True):
            parameter.grad = gradient
        sum_gradients(self.weights)
        limit = float("inf") if self.max_grad_norm is None else self.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.weights, limit)
        self.finite.step(self.optim, loss=loss, grad_norm=grad_norm)
        return grad_norm

    def taken(self, steps: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """The metrics of the steps that were taken, of those of all steps in their order."""
        return [metrics for metrics, taken in zip(steps, self.settle(), strict=True) if taken]

    def diagnose(self, features: Tensor, action: Tensor) -> dict[str, float]:
        """What the acted slots say about critic and policy (`rlmem.algos.diagnostics`), the mean over all processes.

        features: [n, F] of the critic
        action: [n, ...]
        """
        measures: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {"feature_rank": (feature_rank, features)}
        if action.is_floating_point():
            action = action.clamp(-1, 1)  # as the environment does; a mean far outside would hide how little it differs
            measures |= {"actions_at_bounds": (actions_at_bounds, action), "action_spread": (action_spread, action)}
        n = len(features)
        found = [n * float(measure(x)) if n else 0.0 for measure, x in measures.values()]
        *sums, count = totals(*found, n)
        return {name: total / count for name, total in zip(measures, sums, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.generator.set_state(state["generator"].cpu())


@dataclass(kw_only=True)
class OnPolicy(FromRollouts):
    """An algorithm that learns from each rollout of an actor-critic.

    entropy_coef: weight of the entropy bonus
    value_coef: weight of the value loss
    state_dependent_std: see `rlmem.nets.heads.PolicyHead`
    separate: actor and critic have an encoder and a memory each; otherwise they share one
    memory_gradient: whose loss trains a shared encoder and memory
    critic_observation: the leaves that a critic of its own reads, in the place of the actor's: paths or patterns; None:
        those of the actor. See docs/any-observation.md
    critic_memory: the option of `memory` for a critic of its own, as wide as the actor's; None: the actor's
    """

    entropy_coef: NonNegativeFloat = 0.01
    value_coef: NonNegativeFloat = 0.5
    state_dependent_std: bool = False
    separate: bool = False
    memory_gradient: MemoryGradient = "both"
    critic_observation: Sequence[str] | None = None
    critic_memory: str | None = None

    action_spaces = (spaces.Discrete, spaces.MultiDiscrete, spaces.Box)
    masks = True

    def make_agent(self, trunks: Trunks, action_space: Space) -> ActorCritic:
        std, whose = self.state_dependent_std, self.memory_gradient
        return ActorCritic(trunks, action_space, self.head_layers, std, whose, self.values)

    @property
    def values(self) -> int:
        """The values that the critic has of a slot."""
        return 1


def mean(x: Tensor, mask: Tensor) -> Tensor:
    """`masked_mean`, over the rows of all processes."""
    if alone():
        return masked_mean(x, mask)
    total, count = masked_total(x, mask)
    sums = summed(torch.cat([total.view(-1), count.to(total.dtype)[None]]))
    return sums[:-1].view_as(total) / sums[-1].clamp(min=1)


def means(steps: list[dict[str, Tensor]]) -> dict[str, float]:
    """The mean of every metric over the gradient steps that were taken."""
    return {name: float(torch.stack([step[name] for step in steps]).mean()) for name in (steps[0] if steps else ())}


def replay_deviation(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Largest |pi/mu - 1| of the acted slots, given log_ratio = log pi - log mu [B, T].

    It is no more than rounding if training reads what acting read and pi is still the policy mu that acted
    (docs/design.md).
    """
    return largest(torch.where(mask, (log_ratio.exp() - 1).abs(), 0).max())


def cut(rollout: Rollout, batching: Batching) -> Rows:
    """The rows of a rollout; one row without an acted slot if other processes took all of the last steps."""
    if alone() or on_host(rollout.streams.mask).any():
        return batching.rows(rollout.streams)
    none = np.zeros(1, np.int64)
    return Rows(env=none, begin=none, length=none + 1, acted=none, device=rollout.streams.mask.device)


def batch_metrics(rollout: Rollout, rows: Rows, batch: Batch) -> dict[str, float]:
    """Metrics of how the rollouts of all processes were cut into rows."""
    counts = len(rows.env), int(on_host(rollout.streams.start).sum()), int(on_host(batch.mask).sum())
    number, episodes, transitions, padding = totals(*counts, rows.pad_fraction)
    return {
        "batch/rows": int(number),
        "batch/episodes": int(episodes),
        "batch/transitions": int(transitions),
        "batch/pad_fraction": padding / place().size,
    }
