"""The agent: an encoder, a memory, and heads for acting and valuing. All parameters live here."""

from collections.abc import Sequence

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlmem.memory.base import Memory
from rlmem.nets.encoder import Encoder
from rlmem.nets.layers import hidden_layers, small_output
from rlmem.nets.policy import PolicyHead
from rlmem.types import Batch, State


class ActorCritic(nn.Module):
    """Actor and critic over one shared encoder and memory, as in POPGym's baselines.

    Acting steps the memory; `unroll` reads whole rows in parallel. Both see the same inputs in the same order, so
    log-probabilities computed while acting equal those of an unroll from the same state.
    """

    def __init__(
        self,
        encoder: Encoder,
        memory: Memory,
        action_space: Space,
        head_sizes: Sequence[int],
        state_dependent_std: bool = False,
    ):
        super().__init__()
        self.encoder = encoder
        self.memory = memory
        self.policy = PolicyHead(memory.output_size, action_space, head_sizes, state_dependent_std)
        trunk, width = hidden_layers(memory.output_size, head_sizes)
        self.critic = nn.Sequential(trunk, small_output(width, 1))

    def initial_state(self, batch_size: int) -> State:
        return self.memory.initial_state(batch_size)

    @torch.no_grad()
    def act(
        self,
        obs: Tensor,
        prev_action: Tensor,
        prev_reward: Tensor,
        start: Tensor,
        state: State,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor, State]:
        """Read one slot of N environments and act; greedily if `generator` is None.

        Returns action [N, ...], its log-probability [N] and the next memory state.
        """
        x = self.encoder(obs, prev_action, prev_reward, start)
        y, state = self.memory.step(x, state, start)
        distribution = self.policy(y)
        action = distribution.mode() if generator is None else distribution.sample(generator)
        return action, distribution.log_prob(action), state

    def unroll(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Policy parameters [B, T, P] and values [B, T] of every slot, from the rows' `state0`."""
        x = self.encoder(batch.obs, batch.prev_action, batch.prev_reward, batch.start)
        y, _ = self.memory(x, batch.state0, batch.start)
        return self.policy.parameters_of(y), self.critic(y).squeeze(-1)
