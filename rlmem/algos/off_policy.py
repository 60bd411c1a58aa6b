"""What off-policy algorithms share: their settings, targets, the optimiser, the target network and the loop."""

from abc import abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from rlmem.agents.actor_critic import Exploration
from rlmem.agents.off_policy import OffPolicyAgent
from rlmem.algos.base import Algorithm, Plan, Storage
from rlmem.algos.finite import Finite
from rlmem.algos.slots import Slots
from rlmem.batching import Batching, Segment
from rlmem.loops.base import Loop
from rlmem.loops.off_policy import OffPolicyLoop
from rlmem.loops.parts import LoopParts, OnNan
from rlmem.losses.on_policy import n_step_return
from rlmem.nets.layers import HeadSettings
from rlmem.replay import Replay
from rlmem.types import Batch, NonNegativeInt, PositiveFloat, PositiveInt, PositiveUnitFloat, UnitFloat

Metrics = dict[str, Tensor]

LEAST_REWARD = 1e-6
"""The root mean square below which rewards are not scaled up to one: the user must then set `reward_scale`."""


@dataclass(kw_only=True)
class OffPolicy(HeadSettings, Algorithm):
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

    bounded_actions = True
    one_process = "learns from one replay"
    weight_copies = 4  # including the target network

    @abstractmethod
    def explore(self, steps: int, total_steps: int) -> Exploration: ...

    def make_loop(self, parts: LoopParts) -> Loop:
        self.setup(cast(OffPolicyAgent, parts.agent), parts.streams.torch("losses", parts.device), parts.on_nan)
        stores = parts.state_slots(replay=True) is not None
        parts.agent.trunks.step_all = stores
        exponents = self.priority_exponent, self.importance_exponent
        folder = None if self.replay_dir is None else Path(self.replay_dir)
        state = parts.agent.initial_state(1) if stores else None
        replay = Replay(self.capacity, parts.num_envs, parts.device, *exponents, folder, state)
        return OffPolicyLoop(
            algo=self,
            collector=parts.make_collector(),
            replay=replay,
            generator=parts.streams.torch("replay"),
            exploration=self.explore(parts.total_steps, parts.total_steps),
            **vars(parts),
        )

    def describe(self, plan: Plan) -> dict[str, str]:
        rate = f"{self.update_ratio:g} updates per {self.update_per} after {self.learning_starts:,}"
        rows = plan.batching.num_rows if isinstance(plan.batching, Segment) else None
        read = f"{rows} segments" if rows else f"{self.batch_size:,} transitions"
        return {"training": f"(the first {self.random_steps:,} at random), {rate}, {read} each"}

    def planned_updates(self, plan: Plan) -> float | None:
        learning = max(plan.total_steps - self.learning_starts, 0)
        return self.update_ratio * learning if self.update_per == "step" else None

    def shown(self, batching: Batching) -> int | None:
        return batching.longest_episode(self.batch_size)

    def storage(self, batching: Batching) -> Storage:
        kept = batching.state_slots(replay=True)
        every = kept.every if kept else None
        return Storage(self.collect_slots, capacity=self.capacity, state_every=every, directory=self.replay_dir)

    def setting_problems(self, plan: Plan) -> list[str]:
        found = [
            f"algo.{name}={steps}: the run ends before, at total_steps={plan.total_steps}; "
            f"e.g. algo.{name}={plan.total_steps // 10}"
            for name, steps in (("learning_starts", self.learning_starts), ("random_steps", self.random_steps))
            if steps >= plan.total_steps
        ]
        if self.replay_dir is not None:
            folder = Path(self.replay_dir).absolute()  # which need not exist yet
            try:
                there = next(parent for parent in (folder, *folder.parents) if parent.exists())
                TemporaryFile(dir=there).close()
            except (OSError, ValueError) as error:  # ValueError: a null byte
                reason = getattr(error, "strerror", None) or str(error)
                found.append(
                    f"algo.replay_dir={self.replay_dir}: cannot be written ({reason}); e.g. algo.replay_dir=/tmp"
                )
        return found

    def notes(self, plan: Plan) -> list[str]:
        length = plan.batching.length if isinstance(plan.batching, Segment) else None
        if length is None or length >= self.n_step:
            return []
        what = f"algo.n_step={self.n_step}: no row holds more than {length} rewards, where returns end"
        return [f"{what}; e.g. batching.length={4 * self.n_step}"]

    def batching_problem(self, batching: Batching) -> str | None:
        return batching.replay_problem(self.batch_size)

    @abstractmethod
    def loss(self, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        """The loss of a batch, metrics, and the TD errors [n] of the acted slots, for priorities."""

    def diagnose(self, batch: Batch) -> Metrics:
        """What a batch tells about the state of the networks; see `rlmem.algos.diagnostics`."""
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
        self.updates = 0
        self.scale: float | None = self.reward_scale

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
        chosen = {"scale": self.scale} if self.reward_scale is None else {}
        return {"target": self.target.state_dict()} | chosen

    def load_learnt(self, state: dict[str, Any]) -> None:
        self.target.load_state_dict(state["target"])
        self.scale = state.get("scale", self.scale)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "target": self.target.state_dict(),
            "generator": self.generator.get_state(),
            "generator_device": self.generator.device.type,
            "updates": self.updates,
            "scale": self.scale,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.target.load_state_dict(state["target"])
        if state["generator_device"] == self.generator.device.type:  # else not its kind of state
            self.generator.set_state(state["generator"].cpu())
        self.updates, self.scale = state["updates"], state["scale"]
