"""Acting as one CUDA graph (`compile=graphs`): an upload, draws, a replay and a download for each step of a vector."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from rlmem.agents.actor_critic import ActorCritic
from rlmem.agents.base import Agent
from rlmem.nets.graphs import Graphs
from rlmem.types import Inputs, State

ALIGNED = 16
"""Bytes, of which the place of each tensor in a block is a multiple."""


class Block:
    """Tensors that lie together, in one piece of memory on the host and one on the device: one copy moves all of them.

    like: tensors of the same shapes and types
    device: to or from which they are copied
    """

    def __init__(self, like: Sequence[Tensor], device: torch.device):
        self.device = device
        ends = list(accumulate(-(-x.nbytes // ALIGNED) * ALIGNED for x in like))
        self.whole_there = torch.zeros(ends[-1], dtype=torch.uint8, device=device)
        self.whole_here = torch.zeros(ends[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")

        def parts(whole: Tensor) -> list[Tensor]:
            places = zip(like, [0, *ends], strict=False)
            return [whole[i : i + x.nbytes].view(x.dtype).view(x.shape) for x, i in places]

        self.there, self.here = parts(self.whole_there), parts(self.whole_here)

    def upload(self, tensors: Sequence[Tensor]) -> None:
        """Copy tensors of the host to the device, without waiting; an earlier upload must have ended."""
        for own, x in zip(self.here, tensors, strict=True):
            own.copy_(x)
        self.whole_there.copy_(self.whole_here, non_blocking=True)

    def download(self) -> list[Tensor]:
        """Copies on the host of the tensors on the device, for which it waits."""
        self.whole_here.copy_(self.whole_there, non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return [x.clone() for x in self.here]


class OneGraph:
    """Acts in a vector of environments as an `ActorCritic` does, by one graph, with the same random numbers.

    The states of the memory stay where they are and are overwritten by every step. Random numbers are drawn outside of
    the graph, in the order and by the kernels of a run without.

    agent: acts
    inputs: of one slot, [N, ...] each, on the host
    state: of the memories
    device: the agent's
    """

    def __init__(self, agent: ActorCritic, inputs: Inputs, state: State, device: torch.device):
        self.agent = agent
        tensors, structure = tree_flatten(inputs)
        self.reads = Block(tensors, device)
        self.inputs: Inputs = tree_unflatten(self.reads.there, structure)
        self.state = tree_map(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), state)
        self.distribution, _ = agent.policy_of(self.inputs, self.state)
        self.noise = self.distribution.draw(torch.Generator(device))  # for its memory
        self.writes = Block([inputs.prev_action, torch.zeros_like(inputs.prev_reward)], device)
        self.replay = cast(Graphs, agent.compiler).in_place("acting", self._run)

    @classmethod
    @torch.no_grad()
    def of(cls, agent: Agent, inputs: Inputs, state: State, device: torch.device) -> OneGraph | None:
        """The graph; None where the agent has none, or where its acting cannot be recorded, which the user is told.

        `RLMEM_ONE_GRAPH=off` in the environment turns it off.
        """
        is_due = isinstance(agent, ActorCritic) and isinstance(getattr(agent, "compiler", None), Graphs)
        if not is_due or os.environ.get("RLMEM_ONE_GRAPH") == "off":
            return None
        graph = cls(cast(ActorCritic, agent), inputs, state, device)
        return None if graph.replay is None else graph

    def _run(self) -> None:
        distribution, after = self.agent.policy_of(self.inputs, self.state)
        action = distribution.sampled(self.noise)
        for own, value in zip(self.writes.there, (action, distribution.log_prob(action)), strict=True):
            own.copy_(value)
        copies = tree_map(torch.clone, after)  # a state after a step may be a view of one before it
        for own, value in zip(tree_leaves(self.state), tree_leaves(copies), strict=True):
            own.copy_(value)

    @torch.no_grad()
    def act(self, inputs: Inputs, state: State, generator: torch.Generator) -> tuple[Tensor, Tensor, State]:
        """As `ActorCritic.act`, of inputs on the host; the action and its log-probability are on the host.

        The state that it returns is overwritten by the next call.
        """
        if state is not self.state:
            tree_map(Tensor.copy_, self.state, state)
        self.reads.upload(tree_leaves(inputs))
        self.distribution.draw(generator, self.noise)
        assert self.replay is not None
        self.replay()
        action, log_prob = self.writes.download()
        return action, log_prob, self.state
