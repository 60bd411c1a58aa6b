"""The acting step of an agent as a module with named inputs and outputs."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from rlmem.agents.base import Agent
from rlmem.api.trained import TrainedAgent
from rlmem.spaces import is_bounded
from rlmem.types import Inputs

PREVIOUS = "state_prev_action"
"""The part of the state that is the action before, as the policy gives it."""


class ActingStep(nn.Module):
    """One slot of N environments, read and acted in greedily.

        action, *state' = step(obs, start, reward, *state)

    obs: [N, ...], observations in the type of their space
    start: [N] bool, where an episode begins: what the state holds is forgotten, so that any numbers may be there
    reward: [N] float, what the action before has earned
    state: tensors [N, ...] by the names in `names`; of complex states [N, ..., 2], real and imaginary parts
    action: [N, ...], as the environment takes it

    agent: the trained agent, of which a copy is made
    inputs, outputs: the names of all, in their order; a state that is returned is called `next_` and its name
    """

    def __init__(self, agent: TrainedAgent):
        super().__init__()
        self.network: Agent = deepcopy(agent.network).cpu().eval()
        self.network.trunks.step_all = False  # a critic's own memory does not act
        for part in self.network.modules():
            if hasattr(part, "engine"):
                part.engine = "loop"  # type: ignore[assignment]
        found, self.form = tree_flatten_with_path(self.network.trunks.actor.initial_state(2))
        self.dtypes = [leaf.dtype for _, leaf in found]
        self.names = [PREVIOUS, *("_".join(["state", *map(_word, path)]) or "state" for path, _ in found)]
        self.inputs = ["obs", "start", "reward", *self.names]
        self.outputs = ["action", *(f"next_{name}" for name in self.names)]
        self.space = agent.action_space
        self.low: Tensor | None = None
        if isinstance(self.space, spaces.Box):
            self.act_dtype = torch.from_numpy(np.zeros(0, self.space.dtype)).dtype
            if is_bounded(self.space):
                self.low = torch.from_numpy(self.space.low)
                self.scale = torch.from_numpy((self.space.high - self.space.low) / 2)

    def forward(self, obs: Tensor, start: Tensor, reward: Tensor, prev_action: Tensor, *leaves: Tensor) -> Any:
        own = (
            torch.view_as_complex(x) if dtype.is_complex else x for x, dtype in zip(leaves, self.dtypes, strict=True)
        )
        before = tree_unflatten(list(own), self.form)
        inputs = Inputs(obs, prev_action, torch.where(start, 0, reward), start)
        rest = (None,) * (len(self.network.trunks.trunks) - 1)
        action, _, after = self.network.act(inputs, (before, *rest), None)
        found, _ = tree_flatten_with_path(after[0])
        real = [torch.view_as_real(leaf) if leaf.is_complex() else leaf for _, leaf in found]
        return self._in_env(action), action.clone(), *real

    def examples(self, agent: TrainedAgent, n: int) -> dict[str, Tensor]:
        """Inputs of n environments that begin an episode, by name."""
        obs = torch.from_numpy(np.stack([np.asarray(agent.observation_space.sample()) for _ in range(n)]))
        action = agent.initial_state(n).prev_action.cpu()
        leaves = [leaf for _, leaf in tree_flatten_with_path(self.network.trunks.actor.initial_state(n))[0]]
        real = [torch.view_as_real(leaf).clone() if leaf.is_complex() else leaf.clone() for leaf in leaves]
        first = {"obs": obs, "start": torch.ones(n, dtype=torch.bool), "reward": torch.zeros(n)}
        return first | dict(zip(self.names, [action, *real], strict=True))

    def _in_env(self, action: Tensor) -> Tensor:
        if isinstance(self.space, spaces.Box):
            if self.low is not None:
                action = self.low + (action.clamp(-1, 1) + 1) * self.scale
            return action.to(self.act_dtype)
        first = getattr(self.space, "start", 0)
        return action + torch.as_tensor(first)


def _word(key: Any) -> str:
    """A step on the way to a leaf of a state, for its name."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))
