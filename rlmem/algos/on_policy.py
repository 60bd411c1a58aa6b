"""What algorithms that learn from rollouts share: their settings, the agent and the optimiser's step."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.agents.actor_critic import ON_POLICY, ActorCritic, Exploration, MemoryGradient
from rlmem.agents.layers import HeadSettings
from rlmem.agents.trunk import Trunks
from rlmem.algos.base import Algorithm, Outline, Plan, Storage
from rlmem.batching import Batching, Rollout, Rows
from rlmem.core.types import Batch, NonNegativeFloat, PositiveFloat, PositiveInt, UnitFloat, on_host, processes
from rlmem.loops.on_policy import OnPolicyLoop
from rlmem.loops.parts import OnNan
from rlmem.losses.on_policy import masked_mean, masked_total

MOST_SKIPPED = 100
"""Steps that may be skipped in a row; parameters that fail more often will not recover."""
SLOTS = 128
"""The most slots whose features are decomposed."""
BOUND = 0.99
"""From this size on, an action of [-1, 1] counts as at a bound: tanh' is below 0.02 there."""


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

    loop = OnPolicyLoop

    def setup(self, agent: Any, generator: torch.Generator, on_nan: OnNan = "stop") -> None:
        """Prepare to train an agent.

        agent: the agent
        generator: shuffles rows
        on_nan: see `Finite`
        """
        self.agent, self.generator, self.finite = agent, generator, Finite(on_nan)
        self.weights: list[nn.Parameter] = list(agent.parameters())
        self.optim = self.make_optimiser(self.weights)
        alone = processes().size == 1  # with several, a gradient holds means over the rows of all
        if agent.graphs is not None and alone:
            agent.graphs.record(self)

    def explore(self, steps: int, total_steps: int) -> Exploration:
        """Actions are those of the policy."""
        return ON_POLICY

    def outline(self, plan: Plan) -> Outline:
        outline, num_envs = super().outline(plan), plan.num_envs * plan.processes
        if problem := plan.batching.on_policy_problem():
            outline.problems.append(f"batching={plan.choices['batching']}: {problem}")
        outline.updates = updates = -(-plan.total_steps // (self.rollout_slots * num_envs))
        outline.training = f"in about {updates:,} updates of {num_envs} x {self.rollout_slots} slots"
        outline.shown = None if self.complete_episodes else self.rollout_slots
        outline.reach = plan.batching.reach(outline.shown)
        outline.storage = Storage(self.rollout_slots, slots_key="rollout_slots", with_gradient=True)
        return outline

    @abstractmethod
    def make_optimiser(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser of all weights; `anneal` sets its learning rate."""

    @abstractmethod
    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]:
        """Improve the agent from one rollout. Returns metrics. Raises FloatingPointError as `Finite.settle` does.

        rollout: what the agent, or an earlier version of it, collected
        batching: how to cut rows
        progress: the fraction of the run's steps that were taken before the rollout
        """

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
        processes().sum_gradients(self.weights)
        limit = float("inf") if self.max_grad_norm is None else self.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.weights, limit)
        self.finite.step(self.optim, loss=loss, grad_norm=grad_norm)
        return grad_norm

    def auxiliary(self, batch: Batch, features: Tensor) -> dict[str, Tensor]:
        """The auxiliary loss of some rows by its name; {} without one. features: [B, T, F] of the critic's trunk."""
        return {} if self.auxiliary_loss is None else {"auxiliary_loss": self.loss_beside(batch, features)}

    def taken(self, steps: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """The metrics of the steps that were taken, of those of all steps in their order."""
        return [metrics for metrics, taken in zip(steps, self.finite.settle(), strict=True) if taken]

    def diagnose(self, features: Tensor, action: Tensor) -> dict[str, float]:
        """Measures of the critic and the policy on the acted slots, the mean over all processes.

        features: [n, F] of the critic
        action: [n, ...]
        """
        measures: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {"feature_rank": (feature_rank, features)}
        if action.is_floating_point():
            action = action.clamp(-1, 1)  # as the environment does; a mean far outside would hide how little it differs
            measures |= {"actions_at_bounds": (actions_at_bounds, action), "action_spread": (action_spread, action)}
        n = len(features)
        *sums, count = processes().totals(*(n * float(measure(x)) if n else 0.0 for measure, x in measures.values()), n)
        return {name: total / count for name, total in zip(measures, sums, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.generator.set_state(state["generator"].cpu())


@dataclass(kw_only=True)
class InMinibatches(FromRollouts):
    """An algorithm that passes over each rollout several times, with a step of Adam for each minibatch of its rows.

    epochs: passes over a rollout
    num_minibatches: parts of each pass, at most one per row of any process
    adam_eps: epsilon of Adam
    """

    epochs: PositiveInt = 4
    num_minibatches: PositiveInt = 8
    adam_eps: PositiveFloat = 1e-5

    def outline(self, plan: Plan) -> Outline:
        outline = super().outline(plan)
        rows = plan.num_envs if plan.choices["batching"] == "tape" else self.num_minibatches
        outline.training += f", {self.epochs} epochs of {min(self.num_minibatches, rows)} minibatches"
        return outline

    def make_optimiser(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, eps=self.adam_eps, fused=True)

    def passes(self, batch: Batch, learn: Callable[[Batch], dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """Call `learn` for every minibatch of all passes over shuffled rows, and return what it returned."""
        n = len(batch.mask)
        parts = processes().least(min(self.num_minibatches, n))
        orders = (torch.randperm(n, generator=self.generator) for _ in range(self.epochs))
        return [learn(batch.rows(part)) for order in orders for part in order.tensor_split(parts)]

    def minibatch(self, batch: Batch, *coefficients: float) -> dict[str, Tensor]:
        """Take one gradient step on some rows, as `loss_gradients` says. Returns metrics."""
        if self.agent.trunks.stateless:
            batch = batch.acted()
        loss, metrics, gradients = self.loss_gradients(batch, *coefficients)
        grad_norm = self.step(loss, gradients)
        values = torch.stack([*metrics.values(), grad_norm])  # copies: the next replay of a graph writes over them
        return dict(zip((*metrics, "grad_norm"), values.unbind(), strict=True))

    @abstractmethod
    def loss_gradients(
        self, batch: Batch, *coefficients: float
    ) -> tuple[Tensor, dict[str, Tensor], list[Tensor | None]]:
        """The loss of some rows, metrics, and the gradients of the loss, for `minibatch`.

        coefficients: numbers that may change from update to update
        """


@dataclass(kw_only=True)
class OnPolicy(FromRollouts):
    """An algorithm that learns from each rollout of an actor-critic.

    entropy_coef: weight of the entropy bonus
    value_coef: weight of the value loss
    state_dependent_std: see `rlmem.agents.heads.PolicyHead`
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
    if processes().size == 1:
        return masked_mean(x, mask)
    total, count = masked_total(x, mask)
    sums = processes().summed(torch.cat([total.view(-1), count.to(total.dtype)[None]]))
    return sums[:-1].view_as(total) / sums[-1].clamp(min=1)


def means(steps: list[dict[str, Tensor]]) -> dict[str, float]:
    """The mean of every metric over the gradient steps that were taken."""
    return {name: float(torch.stack([step[name] for step in steps]).mean()) for name in (steps[0] if steps else ())}


def replay_deviation(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Largest |pi/mu - 1| of the acted slots, given log_ratio = log pi - log mu [B, T].

    It is no more than rounding if training reads what acting read and pi is still the policy mu that acted
    (docs/design.md).
    """
    return processes().largest(torch.where(mask, (log_ratio.exp() - 1).abs(), 0).max())


def cut(rollout: Rollout, batching: Batching) -> Rows:
    """The rows of a rollout; one row without an acted slot if other processes took all of the last steps."""
    if processes().size == 1 or on_host(rollout.streams.mask).any():
        return batching.rows(rollout.streams)
    none = np.zeros(1, np.int64)
    return Rows(env=none, begin=none, length=none + 1, acted=none, device=rollout.streams.mask.device)


def batch_metrics(rollout: Rollout, rows: Rows, batch: Batch) -> dict[str, float]:
    """Metrics of how the rollouts of all processes were cut into rows."""
    counts = len(rows.env), int(on_host(rollout.streams.start).sum()), int(on_host(batch.mask).sum())
    number, episodes, transitions, padding = processes().totals(*counts, rows.pad_fraction)
    return {
        "batch/rows": int(number),
        "batch/episodes": int(episodes),
        "batch/transitions": int(transitions),
        "batch/pad_fraction": padding / processes().size,
    }


class Finite:
    """Takes the gradient steps whose loss and gradient are finite, and no others.

    A step is decided on the device, and the next may follow at once; what was decided is known after `settle`.

    on_nan: stop: raise FloatingPointError; skip: leave the step out, at most MOST_SKIPPED times in a row
    """

    def __init__(self, on_nan: OnNan = "stop"):
        self.on_nan = on_nan
        self.skipped = self.in_a_row = 0
        self.unsettled: list[tuple[tuple[str, ...], Tensor, Tensor]] = []

    def step(self, optim: torch.optim.Optimizer, **numbers: Tensor) -> None:
        """Take the optimiser's step if the numbers, loss and gradient norms, are finite. If `on_nan` is stop, none is
        taken after one that was not.

        Fused optimisers read on the device whether to (`found_inf`, as from torch's GradScaler); others wait for it.
        """
        values = torch.stack([number.detach() for number in numbers.values()])
        finite = torch.isfinite(values).all()
        if self.on_nan == "stop" and self.unsettled:
            finite = finite & self.unsettled[-1][2]
        self.unsettled.append((tuple(numbers), values, finite))
        if optim.defaults.get("fused"):
            optim.found_inf = (~finite).float()  # type: ignore[attr-defined]
            optim.step()
        elif finite:
            optim.step()

    def settle(self) -> list[bool]:
        """Whether each step since the last call was taken. Raises FloatingPointError for the first that was not if
        `on_nan` says so.
        """
        unsettled, self.unsettled = self.unsettled, []
        if not unsettled:
            return []
        numbers = iter(torch.cat([values for _, values, _ in unsettled]).tolist())
        taken = []
        for names, _, _ in unsettled:
            values_by_name = {name: next(numbers) for name in names}
            taken.append(all(map(math.isfinite, values_by_name.values())))
            if taken[-1]:
                self.in_a_row = 0
                continue
            self.skipped += 1
            self.in_a_row += 1
            if self.on_nan == "stop" or self.in_a_row > MOST_SKIPPED:
                before = f" after {MOST_SKIPPED} in a row that were skipped" if self.in_a_row > MOST_SKIPPED else ""
                values = ", ".join(f"{name} {value}" for name, value in values_by_name.items())
                raise FloatingPointError(f"{values}{before}: no step was taken")
        return taken

    def metrics(self) -> dict[str, float]:
        """The number of gradient steps that were left out; {} where `on_nan` leaves none out."""
        return {"nan/skipped": self.skipped} if self.on_nan == "skip" else {}


def some(features: Tensor) -> Tensor:
    """At most SLOTS of the slots of features [n, F], evenly spaced."""
    return features[torch.linspace(0, len(features) - 1, min(len(features), SLOTS), device=features.device).long()]


def feature_rank(features: Tensor, share: float = 0.99) -> Tensor:
    """Effective rank of features [n, F] (Kumar et al. 2021, arXiv:2010.14498, section 3).

    It is the number of singular values, from the largest, that make up `share` of their sum, over at most SLOTS slots.
    NaN if they cannot be found, as for features that are not finite.
    """
    try:
        sizes = torch.linalg.svdvals(some(features))
    except torch.linalg.LinAlgError:
        return features.new_tensor(torch.nan)
    return (sizes.cumsum(0) < share * sizes.sum()).sum() + 1


def actions_at_bounds(action: Tensor) -> Tensor:
    """Share of the components of actions [..., K] that lie at or beyond a bound of [-1, 1]."""
    return (action.abs() >= BOUND).float().mean()


def action_spread(action: Tensor) -> Tensor:
    """Standard deviation of actions [n, K] over slots, the mean over their components."""
    return action.std(0, correction=0).mean()
