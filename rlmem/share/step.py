"""The acting step of an agent as a module with named inputs and outputs."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_unflatten

from rlmem.agents.actor_critic import Agent
from rlmem.core.spaces import in_env, readable_type
from rlmem.core.types import Inputs
from rlmem.run.trained import TrainedAgent

FIXED = ("obs", "start", "reward", "state_prev_action")
"""The inputs before the memory's: the last is the action before, as the policy gives it, a part of the state."""


class ActingStep(nn.Module):
    """One slot of N environments, read and acted in greedily.

        action, scores, *state' = step(obs, start, reward, *state)

    obs: [N, ...], observations in the type of their space
    start: [N] bool, where an episode begins: what the state holds is forgotten, so that any numbers may be there
    reward: [N] float, what the action before has earned
    state: tensors [N, ...]; of complex states [N, ..., 2], real and imaginary parts
    action: [N, ...], as the environment takes it
    scores: [N, ...], see `Agent.scores`

    agent: the trained agent, of which a copy is made
    names: of the parts of the state
    inputs, outputs: all names in their order; a part of the state that is returned is called `next_` and its name
    """

    def __init__(self, agent: TrainedAgent):
        super().__init__()
        self.network: Agent = deepcopy(agent.network).cpu().eval()
        self.observation_space, self.action_space = agent.observation_space, agent.action_space
        self.obs_dtype = torch.from_numpy(np.zeros(0, readable_type(agent.observation_space))).dtype
        memory = self.network.trunks.actor.memory
        for part in memory.scanning():
            part.engine = "loop"  # of torch's operators alone; one slot is one step
        found, self.form = tree_flatten_with_path(memory.initial_state(2))
        self.dtypes = [leaf.dtype for _, leaf in found]
        self.names = [FIXED[-1], *("_".join(["state", *map(_word, path)]) for path, _ in found)]
        self.inputs = [*FIXED[:-1], *self.names]
        self.outputs = ["action", "scores", *(f"next_{name}" for name in self.names)]

    def forward(self, obs: Tensor, start: Tensor, reward: Tensor, prev_action: Tensor, *leaves: Tensor) -> Any:
        pairs = zip(leaves, self.dtypes, strict=True)
        own = [torch.view_as_complex(leaf) if dtype.is_complex else leaf for leaf, dtype in pairs]
        inputs = Inputs(obs.to(self.obs_dtype), prev_action, torch.where(start, 0, reward), start)
        features, after = self.network.trunks.actor.step(inputs, tree_unflatten(own, self.form))
        action = self.network.greedy(features)
        after = [_real(leaf) for leaf in tree_leaves(after)]
        return in_env(self.action_space)(action), self.network.scores(features), action.clone(), *after

    def examples(self, agent: TrainedAgent, n: int) -> dict[str, Tensor]:
        """Inputs of n environments that begin an episode, by name."""
        space = deepcopy(self.observation_space)
        space.seed(0)
        obs = np.stack([np.asarray(space.sample()) for _ in range(n)])
        memory = [_real(leaf).clone() for leaf in tree_leaves(self.network.trunks.actor.initial_state(n))]
        first = [torch.from_numpy(obs), torch.ones(n, dtype=torch.bool), torch.zeros(n)]
        return dict(zip(self.inputs, [*first, agent.initial_state(n).prev_action.cpu(), *memory], strict=True))


def _real(leaf: Tensor) -> Tensor:
    return torch.view_as_real(leaf) if leaf.is_complex() else leaf


def _word(key: Any) -> str:
    """A step on the way to a leaf of a state, for its name."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))
