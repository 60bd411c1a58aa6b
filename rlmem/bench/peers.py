"""Peers to compare with: torch's GRU under the memory contract, and an update of SAC over it in plain torch."""

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from math import log
from typing import Any

import torch
from torch import Tensor, nn

from rlmem.memory.base import Memory
from rlmem.types import Batch

HEAD_SIZES = (128, 128)
TEMPERATURE, GAMMA, TAU = 0.1, 0.99, 0.005


class TorchGRU(Memory):
    """`torch.nn.GRU`. It ignores starts: every row is one episode."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.rnn: Any = nn.GRU(input_size, hidden_size, batch_first=True)

    def initial_state(self, batch_size: int) -> Tensor:
        return self._like_parameters().new_zeros(batch_size, self.output_size)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.rnn(x, state[None])
        return y, h[0]


class TorchGRUCell(TorchGRU):
    """`torch.nn.GRUCell` in a Python loop, the form in which FFM's Figure 3 runs its recurrent networks."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.rnn = nn.GRUCell(input_size, hidden_size)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for x_t in x.unbind(1):
            state = self.rnn(x_t, state)
            outputs.append(state)
        return torch.stack(outputs, 1), state


class SeparateGRUs:
    """SAC over two `torch.nn.GRU` as POMDP-Baselines updates them (Ni et al. 2022, arXiv:2110.05038, released code).

    The critic's step comes before the actor's, and the temperature's is last; there are five unrolls from zero states.
    The network is that of `SAC` with memory `TorchGRU` and encoder `embeddings`, parameters in the same order; the
    published one has shortcut embeddings beside it.
    """

    def __init__(self, obs_size: int, action_size: int, hidden_size: int, generator: torch.Generator, lr: float = 3e-4):
        self.generator, device = generator, generator.device
        self.target_entropy = -float(action_size)
        slot = obs_size, action_size, hidden_size
        self.actor = RecurrentHeads(*slot, reads=0, outputs=2 * action_size, heads=1).to(device)
        self.critic = RecurrentHeads(*slot, reads=action_size, outputs=1, heads=2).to(device)
        self.target = deepcopy(self.critic)
        self.alpha = TEMPERATURE
        self.log_alpha = torch.tensor(log(self.alpha), device=device, requires_grad=True)
        parts = {"critic": self.critic.parameters(), "actor": self.actor.parameters(), "temperature": [self.log_alpha]}
        self.optimisers = {name: torch.optim.Adam(parameters, lr=lr) for name, parameters in parts.items()}

    def update(self, batch: Batch, mark: Callable[[str], None]) -> dict[str, float]:
        """One update on rows of one episode each; returns the losses. `mark` is told each part of it that has ended."""
        mask, count = batch.mask, batch.mask.sum()
        with torch.no_grad():
            action, log_prob = self.draw(batch)
            value = self.target(batch, action)[..., 0].amin(0) - self.alpha * log_prob
            target = batch.reward[:, :-1] + GAMMA * (~batch.terminated[:, :-1]) * value[:, 1:]
        error = (self.critic(batch, batch.action)[:, :, :-1, 0] - target) * mask[:, :-1]
        critic_loss = error.square().sum() / count
        self.descend("critic", critic_loss, mark)
        action, log_prob = self.draw(batch)
        q = self.critic(batch, action)[..., 0].amin(0)
        actor_loss = ((self.alpha * log_prob - q) * mask).sum() / count
        self.descend("actor", actor_loss, mark)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.copy_(old * (1 - TAU) + new * TAU)
        mark("optimiser")
        entropy = -((log_prob.detach() * mask).sum() / count).item()
        self.descend("temperature", -self.log_alpha.exp() * (self.target_entropy - entropy), mark)
        self.alpha = self.log_alpha.exp().item()
        return {"critic_loss": critic_loss.item(), "actor_loss": actor_loss.item()}

    def descend(self, part: str, loss: Tensor, mark: Callable[[str], None]) -> None:
        mark("forward")
        self.optimisers[part].zero_grad()
        loss.backward()
        mark("backward")
        self.optimisers[part].step()
        mark("optimiser")

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """A tanh-Gaussian action [B, T, A] and its log-probability [B, T]."""
        mean, log_std = self.actor(batch)[0].chunk(2, -1)
        std = log_std.clamp(-20, 2).exp()
        u = mean + std * torch.empty_like(mean).normal_(generator=self.generator)
        normal = torch.distributions.Normal(mean, std, validate_args=False).log_prob(u)
        return u.tanh(), (normal - 2 * (log(2) - u - nn.functional.softplus(-2 * u))).sum(-1)


class RecurrentHeads(nn.Module):
    """Embeddings of a slot, a GRU over them, and `heads` perceptrons that read its output and `reads` more numbers."""

    def __init__(self, obs_size: int, action_size: int, hidden_size: int, *, reads: int, outputs: int, heads: int):
        super().__init__()
        self.obs, self.action, self.reward = nn.Linear(obs_size, 32), nn.Linear(action_size, 16), nn.Linear(1, 16)
        self.rnn = nn.GRU(64, hidden_size, batch_first=True)
        self.heads = nn.ModuleList()
        for _ in range(heads):
            widths = pairwise([hidden_size + reads, *HEAD_SIZES])
            hidden = [layer for pair in widths for layer in (nn.Linear(*pair), nn.LeakyReLU())]
            self.heads.append(nn.Sequential(*hidden, nn.Linear(HEAD_SIZES[-1], outputs)))

    def forward(self, batch: Batch, action: Tensor | None = None) -> Tensor:
        """The outputs [heads, B, T, outputs]; `action` [B, T, A] is read by the perceptrons."""
        inputs = self.obs(batch.obs), self.action(batch.prev_action), self.reward(batch.prev_reward[..., None])
        features, _ = self.rnn(torch.cat(inputs, -1).relu())
        if action is not None:
            features = torch.cat([features, action], -1)
        return torch.stack([head(features) for head in self.heads])
