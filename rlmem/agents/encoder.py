"""Encoders: from observation, previous action, previous reward and start flag to the input of the memory."""

from typing import ClassVar

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.agents.layers import RunningNorm, orthogonal
from rlmem.core.spaces import JointActions, component_sizes, is_flat
from rlmem.core.types import Inputs, NonNegativeInt, PositiveInt
from rlmem.scan import Linear


class Features(nn.Module):
    """A space's elements [..., *shape] as vectors [..., size]: one-hot for discrete spaces, unchanged for others.

    Bytes (uint8) are divided by the greatest value they can have; images, and all else of several dimensions, are
    flattened.

    unit: elements are policy actions; discrete ones count from 0, bounded continuous ones are clipped to [-1, 1].
    normalise: rows of continuous numbers (a one-dimensional Box of floats) are normalised, see `RunningNorm`
    """

    code: Tensor
    component: Tensor
    greatest: Tensor | None

    def __init__(self, space: Space, unit: bool = False, normalise: bool = False):
        super().__init__()
        self.norm: RunningNorm | None = None
        self.scalar = isinstance(space, spaces.Discrete)
        self.discrete = not isinstance(space, spaces.Box | spaces.MultiBinary)
        self.clip = unit and isinstance(space, spaces.Box) and space.is_bounded("both")
        if isinstance(space, spaces.Box | spaces.MultiBinary):
            self.size, self.dims = int(np.prod(space.shape)), len(space.shape)
            scaled = isinstance(space, spaces.Box) and space.dtype == np.uint8 and (space.high > 1).any()
            greatest = torch.tensor(np.maximum(space.high, 1), dtype=torch.float) if scaled else None  # type: ignore[union-attr]
            self.register_buffer("greatest", greatest, persistent=False)
            if normalise and self.dims == 1 and np.issubdtype(space.dtype, np.floating):
                self.norm = RunningNorm(self.size)
            return
        nvec = component_sizes(space)
        first = np.zeros(len(nvec)) if unit else np.atleast_1d(space.start)  # type: ignore[attr-defined]
        code = [f + value for n, f in zip(nvec, first, strict=True) for value in range(n)]
        self.size = len(code)
        self.register_buffer("code", torch.tensor(code, dtype=torch.long), persistent=False)
        component = np.repeat(np.arange(len(nvec)), nvec)
        self.register_buffer("component", torch.from_numpy(component), persistent=False)

    @property
    def reading(self) -> str | None:
        """See `InputEncoder.reading`."""
        return None if self.discrete or self.dims < 2 else f"one row of {self.size} numbers"

    def forward(self, x: Tensor) -> Tensor:
        if not self.discrete:
            if self.greatest is not None:
                x = x / self.greatest
            x = x if self.dims == 1 else x.flatten(-self.dims) if self.dims else x[..., None]
            x = x if self.norm is None else self.norm(x)
            return x.clamp(-1, 1) if self.clip else x
        x = x[..., None] if self.scalar else x[..., self.component]
        return x == self.code


class Embedding(Linear):
    """A linear layer and ReLU, for inputs of any type."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(super().forward(input.to(self.weight.dtype)))


class InputEncoder(nn.Module):
    """Base of encoders: features of the spaces, inputs that are appended as they are, and a shortcut of observations.

    `forward` reads obs [..., *obs_shape], prev_action [..., *action_shape], prev_reward [...] and start [...] bool.

    shortcut_size: width of a second embedding of the observation, which skips the memory and goes to the heads
        (POMDP-Baselines, Ni et al. 2022, arXiv:2110.05038); 0 where there is none
    prev_action, prev_reward, start_flag: which inputs `beside` appends. Previous action and reward are zero on an
        episode's first slot, so that no action stands for "none yet"
    normalise_obs: normalise continuous observations by their running mean and standard deviation; see `Features`
    """

    output_size: int
    reads_leaves: ClassVar[bool] = False
    """Whether it reads observations of several parts: a dictionary from the paths of leaves to tensors."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        shortcut_size: int = 0,
        prev_action: bool = False,
        prev_reward: bool = False,
        start_flag: bool = False,
        normalise_obs: bool = False,
    ):
        super().__init__()
        self.spaces = observation_space, action_space
        self.obs_features = Features(observation_space, normalise=normalise_obs)
        self.action_features = Features(action_space, unit=True)
        self.prev_action, self.prev_reward, self.start_flag = prev_action, prev_reward, start_flag
        self.plain_size = self.action_features.size * prev_action + int(prev_reward) + int(start_flag)
        self.shortcut_size = shortcut_size
        self.skip = Embedding(self.obs_features.size, shortcut_size) if shortcut_size else None

    @property
    def reads_reward(self) -> bool:
        """Whether `forward` reads the previous reward."""
        return self.prev_reward

    @property
    def reading(self) -> str | None:
        """The way in which an observation of several dimensions is read, for the summary of a run; None: it has one."""
        return self.obs_features.reading

    def few_inputs(self) -> "FewInputs | None":
        """All inputs that `forward` can be given, so that each is encoded once, not once per slot; None: too many.

        A class that overrides this promises that equal inputs have equal features, so that it draws nothing; subclasses
        that do not override it again are given every slot.
        """
        return None

    def shortcut(self, obs: Tensor) -> Tensor:
        """ReLU(W obs + b) [..., shortcut_size]; of width 0 where there is none."""
        features = self.obs_features(obs)
        return features[..., :0].float() if self.skip is None else self.skip(features)

    def beside(self, obs: Tensor, prev_action: Tensor, prev_reward: Tensor, start: Tensor) -> Tensor:
        """obs [..., D] with the chosen inputs appended: [..., D + plain_size], of obs's type."""
        inputs = [obs]
        if self.prev_action:
            inputs.append(self.action_features(prev_action).to(obs.dtype).masked_fill(start[..., None], 0))
        if self.prev_reward:
            inputs.append(prev_reward.to(obs.dtype).masked_fill(start, 0)[..., None])
        if self.start_flag:
            inputs.append(start[..., None].to(obs.dtype))
        return torch.cat(inputs, -1)


class Encoder(InputEncoder):
    """Observation, previous action, previous reward and start flag to x [..., hidden_size], as in POPGym's baselines.

        x = phi(W_2 LN(W_1 [obs, prev_action, prev_reward, start] + b_1) + b_2),   phi = LeakyReLU

    The layer norm has no parameters. Images are read as rows of numbers.

    shortcut_size: width of the observation's embedding that skips the memory, 0 for none
    normalise_obs: see `InputEncoder`
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: PositiveInt = 128,
        prev_action: bool = True,
        prev_reward: bool = False,
        start_flag: bool = True,
        shortcut_size: NonNegativeInt = 0,
        normalise_obs: bool = False,
    ):
        super().__init__(
            observation_space, action_space, shortcut_size, prev_action, prev_reward, start_flag, normalise_obs
        )
        self.output_size = hidden_size
        self.features = orthogonal(Linear(self.obs_features.size + self.plain_size, hidden_size))
        self.hidden = orthogonal(Linear(hidden_size, hidden_size))

    def few_inputs(self) -> "FewInputs | None":
        observations, actions = self.spaces
        return None if self.reads_reward else FewInputs.of(observations, actions if self.prev_action else None)

    def forward(self, obs: Tensor, prev_action: Tensor, prev_reward: Tensor, start: Tensor) -> Tensor:
        obs = self.obs_features(obs).to(self.features.weight.dtype)
        x = self.features(self.beside(obs, prev_action, prev_reward, start))
        return F.leaky_relu(self.hidden(F.layer_norm(x, x.shape[-1:])))


class Embeddings(InputEncoder):
    """Observation, previous action and previous reward, each embedded by itself (POMDP-Baselines, Ni et al. 2022).

        x = [ReLU(W_o obs + b_o), ReLU(W_a prev_action + b_a), ReLU(W_r prev_reward + b_r)]

    A size of 0 leaves that input out. Previous action and reward are zero on an episode's first slot, before they are
    embedded. The start flag is appended as it is. Torch's initialisation.

    shortcut_size: width of the observation's embedding that skips the memory, 0 for none
    normalise_obs: see `InputEncoder`
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        obs_size: NonNegativeInt = 32,
        action_size: NonNegativeInt = 16,
        reward_size: NonNegativeInt = 16,
        start_flag: bool = False,
        shortcut_size: NonNegativeInt = 0,
        normalise_obs: bool = False,
    ):
        if not obs_size + action_size + reward_size:
            raise ValueError("obs_size, action_size and reward_size are all 0, which leaves the memory nothing to read")
        super().__init__(
            observation_space, action_space, shortcut_size, start_flag=start_flag, normalise_obs=normalise_obs
        )
        self.obs = Embedding(self.obs_features.size, obs_size) if obs_size else None
        self.action = Embedding(self.action_features.size, action_size) if action_size else None
        self.reward = Embedding(1, reward_size) if reward_size else None
        self.output_size = obs_size + action_size + reward_size + self.plain_size

    @property
    def reads_reward(self) -> bool:
        return self.reward is not None

    def few_inputs(self) -> "FewInputs | None":
        observations, actions = self.spaces
        return None if self.reads_reward else FewInputs.of(observations, actions if self.action else None)

    def forward(self, obs: Tensor, prev_action: Tensor, prev_reward: Tensor, start: Tensor) -> Tensor:
        begins = start[..., None]
        inputs = [] if self.obs is None else [self.obs(self.obs_features(obs))]
        if self.action is not None:
            inputs.append(self.action(self.action_features(prev_action).masked_fill(begins, 0)))
        if self.reward is not None:
            inputs.append(self.reward(prev_reward[..., None].masked_fill(begins, 0)))
        return self.beside(torch.cat(inputs, -1), prev_action, prev_reward, start)


MOST_INPUTS = 4096
"""Inputs that are still few."""


class FewInputs:
    """All that an encoder can read of a slot whose observation and previous action are discrete, in a fixed order.

    An episode's first slot has no previous action, which counts as one action more; a start flag says nothing else.

    observations: the space of observations
    actions: the space of policy actions; None: the encoder does not read them
    """

    def __init__(self, observations: Space, actions: Space | None):
        self.observations, self.first = JointActions(observations), torch.as_tensor(observations.start)  # type: ignore[attr-defined]
        self.actions = None if actions is None else JointActions(actions)
        self.kinds = 1 if self.actions is None else self.actions.n
        self.count = self.observations.n * (self.kinds + 1)

    @classmethod
    def of(cls, observations: Space, actions: Space | None) -> "FewInputs | None":
        """The inputs of two spaces, or None if they are not discrete or more than `MOST_INPUTS`."""
        read = [observations] if actions is None else [observations, actions]
        if not all(isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and is_flat(space) for space in read):
            return None
        few = cls(observations, actions)
        return few if few.count <= MOST_INPUTS else None

    def all(self) -> Inputs:
        """The inputs [count, ...], without rewards."""
        number = torch.arange(self.count)
        start = number >= self.observations.n * self.kinds
        action = torch.where(start, 0, number // self.observations.n)
        prev_action = action if self.actions is None else self.actions.action(action)
        obs = self.observations.action(number % self.observations.n) + self.first
        return Inputs(obs, prev_action, torch.zeros(self.count), start)

    def number(self, inputs: Inputs) -> Tensor:
        """Which of all inputs each slot has: [...] of start [...]; any, for what is outside the spaces."""
        action = torch.zeros_like(inputs.start, dtype=torch.long)
        if self.actions is not None:
            action = self.actions.index(inputs.prev_action)
        action = action.masked_fill(inputs.start, self.kinds)
        number = torch.add(self.observations.index(inputs.obs.long() - self.first), action, alpha=self.observations.n)
        return number.clamp_(0, self.count - 1)  # padding may be anything


class Plain(InputEncoder):
    """Observation and, by choice, previous action, previous reward and start flag side by side: x [..., D].

    Discrete observations are one-hot. This is the input of the supervised LP-RNN and LSTM of Stepleton et al. 2018
    (arXiv:1805.04955, figures 11 and 13a), which have no embedding.

    normalise_obs: see `InputEncoder`
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        prev_action: bool = False,
        prev_reward: bool = False,
        start_flag: bool = False,
        normalise_obs: bool = False,
    ):
        super().__init__(observation_space, action_space, 0, prev_action, prev_reward, start_flag, normalise_obs)
        self.output_size = self.obs_features.size + self.plain_size

    def forward(self, obs: Tensor, prev_action: Tensor, prev_reward: Tensor, start: Tensor) -> Tensor:
        return self.beside(self.obs_features(obs).float(), prev_action, prev_reward, start)
