"""From slots to features: an encoder and a memory, or two of them for an actor and a critic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rlmem.agents.encoder import InputEncoder
from rlmem.agents.graphs import recorded
from rlmem.agents.layers import name_leaf
from rlmem.batching import unroll
from rlmem.core.types import Batch, Inputs, State
from rlmem.memory.base import Memory, Projecting
from rlmem.scan.native import is_constant, of_weights, rows_alike

LEAST_SLOTS = 2
"""With at least this many slots for each possible input, encoding all inputs is faster than encoding all slots."""
MOST_KEPT = 128
"""Up to this many inputs, acting encodes all of them, as weights stay the same for a rollout."""


class Trunk(nn.Module):
    """An encoder, a memory, and beside the memory the encoder's shortcut, if it has one.

        features_t = [memory(encoder(slot_0), ..., encoder(slot_t)), shortcut(obs_t)]

    `step` reads one slot of N environments, `read` whole rows in parallel; both give the same features.

    encoder: reads slots
    memory: reads what the encoder makes of them
    leaf: of observations of several parts, the one that the encoder reads; None: it reads the observation as it is
    """

    def __init__(self, encoder: InputEncoder, memory: Memory, leaf: str | None = None):
        super().__init__()
        self.encoder, self.memory, self.leaf = encoder, memory, leaf
        if leaf is not None:
            name_leaf(encoder, leaf)
        self.output_size = memory.output_size + encoder.shortcut_size
        self.stateless = not tree_leaves(memory.initial_state(1))
        # What a class promises, its subclasses have to promise anew: they may read otherwise.
        self.few_inputs = encoder.few_inputs() if "few_inputs" in vars(type(encoder)) else None
        self.projects = isinstance(memory, Projecting) and "project_slots" in vars(type(memory))

    @property
    def leaves(self) -> list[str]:
        """The leaves that it reads, by their paths; none if observations are one part."""
        if self.leaf is not None:
            return [self.leaf]
        return [*getattr(self.encoder, "read", ())] if getattr(self.encoder, "reads_leaves", False) else []

    def initial_state(self, batch_size: int) -> State:
        return self.memory.initial_state(batch_size)

    def step(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """Features [N, F] of one slot and the next memory state."""
        inputs = self._own(inputs)
        reader, x = self._reader(inputs)
        y, state = reader.step(x, state, inputs.start)
        return self._beside(y, inputs), state

    def read(self, batch: Batch, state: State | None) -> Tensor:
        """Features [B, T, F] of every slot.

        batch: the rows
        state: the memory's, before slot 0 or before the prefix if there is one; None: the initial state
        """
        if state is None:
            state = self.initial_state(batch.shape[0])
        if batch.prefix is not None:
            with torch.no_grad():
                reader, x = self._reader(self._own(batch.prefix))
                _, state = reader(x, state, batch.prefix.start)
        inputs = self._own(batch.inputs)
        reader, x = self._reader(inputs)
        y = unroll(reader, x, state, batch.start, batch.detach_every)
        return self._beside(y, inputs)

    def read_successors(self, batch: Batch) -> Tensor:
        """Features [B, T, F] by slot t+1, from a scan of its own over the successors of the slots 0 ... T-2.

        The memory begins empty at slot 1 and is reset where slot t is a start, so an episode's first observation is
        missing from all its features: the published target of Memoroids (Morad et al. 2024, arXiv:2402.09900, code).
        Slot 0 holds zeros.
        """
        inputs = self._own(batch.inputs.map(lambda field: field[:, 1:]))
        reader, x = self._reader(inputs)
        y, _ = reader(x, self.initial_state(batch.shape[0]), batch.start[:, :-1])
        return nn.functional.pad(self._beside(y, inputs), (0, 0, 1, 0))

    def _reader(self, inputs: Inputs) -> "tuple[Memory | NumberedInputs, Tensor]":
        """What reads slots, and what it reads of each: the memory, and what the encoder makes of the slot.

        Where few inputs are possible, each of them is encoded, and projected by a memory that does that first, once for
        all slots that have it. FFM, GRU and LSTM then read the same to the bit; gradients are summed in another order.
        """
        if self.few_inputs is None or not self._repeats(inputs):
            return self.memory, self.encoder(*inputs)
        x, number = self.all_inputs(), self.few_inputs.number(inputs)
        if not self.projects:
            return self.memory, nn.functional.embedding(number, x)
        return NumberedInputs(cast(Projecting, self.memory), x), number

    @of_weights
    def all_inputs(self) -> Tensor:
        """What the memory reads of every possible input: the encoder's features [n, D], or their projections [n, P]."""
        assert self.few_inputs is not None
        with rows_alike():
            x = self.encoder(*self.few_inputs.all())
            return cast(Projecting, self.memory).project_slots(x) if self.projects else x

    def _repeats(self, inputs: Inputs) -> bool:
        """Whether it is faster to encode all inputs than every slot.

        On a GPU, the gradient's sums would have another order in every run; and hooks of modules wait for the slots.
        """
        if torch.compiler.is_compiling() or not inputs.start.is_cpu or any(map(_is_hooked, self.modules())):
            return False
        most = MOST_KEPT if is_constant() else inputs.start.numel() // LEAST_SLOTS
        return self.few_inputs is not None and self.few_inputs.count <= most

    def _own(self, inputs: Inputs) -> Inputs:
        """The inputs with the observation that the encoder reads."""
        return inputs if self.leaf is None else inputs._replace(obs=inputs.obs[self.leaf])

    def _beside(self, y: Tensor, inputs: Inputs) -> Tensor:
        return torch.cat([y, self.encoder.shortcut(inputs.obs)], -1) if self.encoder.shortcut_size else y


@dataclass
class NumberedInputs:
    """A memory that reads, in the place of a slot, the number of its projection.

    p: projections [n, P], of `Projecting.project_slots`
    """

    memory: Projecting
    p: Tensor

    def step(self, number: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`Memory.step` of slots with the projections p[number]."""
        return self.memory.step_projected(self.p, number, state, start)

    def __call__(self, number: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`Memory.forward` of rows whose slots have the projections p[number]."""
        return self.memory.read_projected(self.p, number, state, start)


def _is_hooked(module: nn.Module) -> bool:
    """True if a module has hooks of its own for its inputs, outputs or gradients."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks)


class SlotFeatures:
    """The features of a batch's slots.

    A memory with a state has read whole rows before the first slot is asked for. One without reads the slots that are
    asked for and no others, each time anew.

    trunk: reads the slots
    batch: the rows
    state: as for `Trunk.read`
    """

    def __init__(self, trunk: Trunk, batch: Batch, state: State | None):
        self.trunk, self.batch = trunk, batch
        self.rows = None if trunk.stateless else trunk.read(batch, state).flatten(0, 1)

    def at(self, slots: Tensor) -> Tensor:
        """Features [n, F] of the slots [n], which are numbered b * T + t."""
        if self.rows is not None:
            return self.rows[slots]
        inputs = self.batch.inputs.map(lambda field: field.flatten(0, 1)[slots])
        return self.trunk.step(inputs, self.trunk.initial_state(len(slots)))[0]


class Trunks(nn.Module):
    """The trunks of an actor and a critic: one that both read, or one each. A state is a tuple, an entry per trunk.

    actor: read by the policy
    critic: read by the critic; None: the actor's
    step_all: whether acting also steps the critic's own memory, for algorithms that need its states; set from outside
    """

    def __init__(self, actor: Trunk, critic: Trunk | None = None):
        super().__init__()
        self.trunks = nn.ModuleList([actor] if critic is None else [actor, critic])
        self.step_all = True

    @property
    def actor(self) -> Trunk:
        return self.trunks[0]  # type: ignore[return-value]

    @property
    def critic(self) -> Trunk:
        return self.trunks[-1]  # type: ignore[return-value]

    @property
    def separate(self) -> bool:
        return len(self.trunks) == 2

    @property
    def stateless(self) -> bool:
        """Whether no memory has a state, so that every slot is read by itself."""
        return all(cast(Trunk, trunk).stateless for trunk in self.trunks)

    def initial_state(self, batch_size: int) -> State:
        return tuple(cast(Trunk, trunk).initial_state(batch_size) for trunk in self.trunks)

    @recorded
    def step(self, inputs: Inputs, state: Sequence[State]) -> tuple[Tensor, State]:
        """The actor's features [N, F] of one slot, and the next states."""
        features, after = self.actor.step(inputs, state[0])
        if not self.separate:
            return features, (after,)
        return features, (after, self.critic.step(inputs, state[1])[1] if self.step_all else state[1])

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The actor's and the critic's features of every slot, both [B, T, F]; one tensor twice if they share."""
        critic = self.read_critic(batch)
        return (self.actor.read(batch, self._state0(batch)[0]) if self.separate else critic), critic

    def read_critic(self, batch: Batch) -> Tensor:
        """The critic's features alone."""
        return self.critic.read(batch, self._state0(batch)[-1])

    def features(self, batch: Batch) -> tuple[SlotFeatures, SlotFeatures]:
        """The actor's and the critic's features of the slots that will be asked for; one twice if they share."""
        critic = self.critic_features(batch)
        return (SlotFeatures(self.actor, batch, self._state0(batch)[0]) if self.separate else critic), critic

    def critic_features(self, batch: Batch) -> SlotFeatures:
        """The critic's features alone."""
        return SlotFeatures(self.critic, batch, self._state0(batch)[-1])

    def _state0(self, batch: Batch) -> Sequence[State | None]:
        return [None] * len(self.trunks) if batch.state0 is None else batch.state0
