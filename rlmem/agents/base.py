"""The bases of all networks that are trained, and how an agent explores."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlmem.agents.trunk import Trunks
from rlmem.nets.encoder import InputEncoder
from rlmem.nets.graphs import Graphs
from rlmem.nets.running import RunningNorm
from rlmem.types import Batch, Inputs, State, to_device


@dataclass(frozen=True)
class Exploration:
    """How far an agent departs from its policy while it samples actions. A greedy agent ignores it.

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
        """This exploration with the draws of episodes, if it is by episodes.

        draws: of the running episodes, [N]
        begins: [N], where an episode begins now, which gets another draw
        generator: draws them
        """
        if not self.by_episode:
            return self
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
    """Whether its trunks read slots as environments give them, one by one, which analyses and exports rely on."""
    computes_in = "float32"
    """The `precision` of the run that it belongs to."""
    graphs: Graphs | None = None

    @property
    def reads_reward(self) -> bool:
        """Whether it reads the reward of the slot before."""
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
