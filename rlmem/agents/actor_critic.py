"""The bases of all networks that are trained, how an agent explores, and the actor-critic of on-policy algorithms."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from rlmem.agents.encoder import InputEncoder
from rlmem.agents.graphs import Graphs, recorded
from rlmem.agents.heads import PolicyHead
from rlmem.agents.layers import VALUE_GAIN, HeadLayers, RunningNorm
from rlmem.agents.trunk import Trunks
from rlmem.core.types import Batch, Inputs, State, action_mask, to_device


@dataclass(frozen=True)
class Exploration:
    """The distance of an agent from its policy while it samples actions. A greedy agent ignores it.

    The algorithm chooses it and passes it to acting.

    random: act uniformly at random, in the range of the policy's actions
    noise: how far a policy that is not random by itself departs from its best action: DQN's epsilon, or the standard
        deviation of TD3's noise
    by_episode: one draw decides for all actions of an episode, instead of one draw for each action
    episode_draw: the draws of the running episodes, [N] on [0, 1), which the collector fills in; None: draw each time
    """

    random: bool = False
    noise: float = 0.0
    by_episode: bool = False
    episode_draw: Tensor | None = None

    def drawn(self, draws: Tensor, begins: np.ndarray, generator: torch.Generator) -> "Exploration":
        """This exploration, which is by episodes, with the draws of episodes.

        draws: of the running episodes, [N]
        begins: [N], where an episode begins now, which gets another draw
        generator: draws them
        """
        if begins.any():
            drawn = torch.rand(len(begins), generator=generator, device=draws.device)
            draws = torch.where(to_device(begins, draws.device), drawn, draws)
        return replace(self, episode_draw=draws)


ON_POLICY = Exploration()
"""Actions are sampled from the policy as it is."""


class Network(nn.Module):
    """Encoders and memories in `trunks`, with heads that read their features."""

    trunks: Trunks
    reads_slots: ClassVar[bool] = True
    """True if its trunks read slots one by one, as environments give them. Analyses and exports rely on this."""
    computes_in = "float32"
    """The `precision` of the run that it belongs to."""
    graphs: Graphs | None = None

    @property
    def reads_reward(self) -> bool:
        """True if it reads the reward of the slot before."""
        return any(part.reads_reward for part in self.modules() if isinstance(part, InputEncoder))

    def initial_state(self, batch_size: int) -> State:
        """The state of rows that have read nothing."""
        return self.trunks.initial_state(batch_size)

    def record_by(self, graphs: Graphs) -> None:
        """Record the methods that are marked as `recorded` in CUDA graphs, here and in later copies."""
        self.graphs = graphs
        for module in self.modules():
            graphs.record(module)

    def normalisers(self) -> list[RunningNorm]:
        """What normalises the observations, one in each encoder, with equal statistics; [] if none does."""
        parts = (part for trunk in self.trunks.trunks for part in trunk.encoder.modules())  # type: ignore[union-attr]
        return [part for part in parts if isinstance(part, RunningNorm)]


class Agent(Network, ABC):
    """A network that acts in environments, and gives slots values."""

    value_name = "Q(s, a)"
    """What `value` is, in symbols."""

    @abstractmethod
    def act(
        self, inputs: Inputs, state: State, generator: torch.Generator | None, exploration: Exploration = ON_POLICY
    ) -> tuple[Tensor, Tensor, State]:
        """Read one slot of N environments and act.

        inputs: of the slot, [N, ...] each
        state: of the memories before it
        generator: draws the actions; None: act greedily
        exploration: how to depart from the policy when actions are drawn

        Returns actions [N, ...], their log-probabilities [N], and the state after the slot.
        """

    @abstractmethod
    def greedy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """The best action for features [N, F], of those that an action mask [N, A] allows."""

    @abstractmethod
    def scores(self, features: Tensor) -> Tensor:
        """What the best action for features [N, F] is read from, [N, ...]: logits, action values, or the action."""

    def value(self, batch: Batch) -> Tensor:
        """The value [B, T] of every slot's action, or of its state alone (`value_name`); of twins, the smaller one.

        Analyses ask for it; training does not.
        """
        raise TypeError(f"{type(self).__name__} has no value that is known here")

    def action_values(self, batch: Batch) -> Tensor:
        """The values [B, T, A] of every action in every slot; with A = 1, of the action taken or of the state alone."""
        return self.value(batch)[..., None]


MemoryGradient = Literal["both", "critic", "actor"]
"""Whose loss trains a shared encoder and memory."""


class ActorCritic(Agent):
    """Actor and critic over one shared encoder and memory, as in POPGym's baselines, or over one each.

    Acting steps the memory; `unroll` reads whole rows in parallel. Both see the same inputs in the same order, so
    log-probabilities computed while acting equal those of an unroll from the same state.

    trunks: encoders and memories
    action_space: of one environment
    layers: what both heads are made of
    state_dependent_std: see `rlmem.agents.heads.PolicyHead`
    memory_gradient: whose loss trains a shared encoder and memory
    values: how many critics, with hidden layers of their own each; what the first says is the value of a slot
    """

    value_name = "V(s)"

    def __init__(
        self,
        trunks: Trunks,
        action_space: Space,
        layers: HeadLayers,
        state_dependent_std: bool = False,
        memory_gradient: MemoryGradient = "both",
        values: int = 1,
    ):
        super().__init__()
        self.trunks = trunks
        self.policy = PolicyHead(trunks.actor.output_size, action_space, layers, state_dependent_std)
        self.critic = self._value_head(layers)
        self.more_critics = nn.ModuleList(self._value_head(layers) for _ in range(values - 1))
        self.memory_gradient = memory_gradient

    def _value_head(self, layers: HeadLayers) -> nn.Sequential:
        trunk, width = layers.hidden(self.trunks.critic.output_size)
        return nn.Sequential(trunk, layers.output(width, 1, VALUE_GAIN))

    @torch.no_grad()
    def act(
        self, inputs: Inputs, state: State, generator: torch.Generator | None, exploration: Exploration = ON_POLICY
    ) -> tuple[Tensor, Tensor, State]:
        """As `Agent.act`; the policy samples by itself, and `exploration` is ignored."""
        parameters, state = self._step(inputs, state)
        distribution = self.policy.distribution(parameters)
        action = distribution.mode() if generator is None else distribution.sample(generator)
        return action, distribution.log_prob(action), state

    @recorded
    def _step(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """Policy parameters [N, P] of one slot, and the next states."""
        features, state = self.trunks.step(inputs, state)
        return self.policy.parameters_of(features, action_mask(inputs.obs)), state

    def greedy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.policy(features, mask).mode()

    def scores(self, features: Tensor) -> Tensor:
        return self.policy.parameters_of(features)

    def value(self, batch: Batch) -> Tensor:
        return self.critic(self.trunks.read_critic(batch)).squeeze(-1)

    def more_values(self, features: Tensor) -> list[Tensor]:
        """What the other critics say, [B, T] each, of features [B, T, F] that `trunks` read for the critic."""
        if not self.trunks.separate and self.memory_gradient == "actor":
            features = features.detach()
        return [critic(features).squeeze(-1) for critic in self.more_critics]

    def unroll(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Policy parameters [B, T, P] and values [B, T] of every slot, from the rows' `state0`."""
        return self.heads(*self.trunks.read(batch), action_mask(batch.obs))

    def heads(self, actor: Tensor, critic: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What `unroll` returns, from the features [B, T, F] of actor and critic, and from the slots' action masks."""
        if not self.trunks.separate:
            actor = actor.detach() if self.memory_gradient == "critic" else actor
            critic = critic.detach() if self.memory_gradient == "actor" else critic
        return self.policy.parameters_of(actor, mask), self.critic(critic).squeeze(-1)
