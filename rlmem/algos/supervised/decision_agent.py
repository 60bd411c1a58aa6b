"""The agent of a decision model: it acts from the last slots of an episode, some of whose frames it did not receive."""

from collections.abc import Iterator, Sequence

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.agents.actor_critic import ON_POLICY, Agent, Exploration
from rlmem.agents.trunk import Trunks
from rlmem.algos.supervised.feed import Predictor
from rlmem.algos.supervised.windows import framed
from rlmem.core.types import Inputs, State, where_start

AGES = 32
"""The ages of frames that drop information tells apart, in slots; the last stands for older ones, too."""


class DecisionAgent(Predictor, Agent):
    """Acts as the action that a memory predicts in the last slot of a window (Chen et al. 2021, arXiv:2106.01345).

    A slot of a window holds the newest frame that was received, (observation, return to go), and the action before.
    Encoder and memory read

        [(obs - mean) / std, return to go / return_scale, one-hot(slots since that frame)]

    whose last part is there with `drop_information` alone. In acting, the last `context` slots are read again in every
    slot, from an empty memory, as in training. The return to go begins an episode as `target_return`, and what is
    earned is taken from it; a frame that is not received tells of neither.
    State: the slots of the window, `frames` [N, context, O + 2] and `actions` [N, context, ...], the true return to go
    [N], and `age` [N], slots since the episode began, up to context - 1.

    observation_space, action_space: of one environment
    head_sizes: see `Predictor`
    context: slots of a window
    return_scale: the return to go that the memory reads as 1
    drop_information: whether it reads how many slots ago the newest frame was received
    """

    reads_slots = False

    mean: Tensor
    std: Tensor
    target_return: Tensor

    def __init__(
        self,
        trunks: Trunks,
        observation_size: int,
        action_space: Space,
        head_sizes: Sequence[int] | None,
        context: int,
        return_scale: float,
        drop_information: bool,
    ):
        super().__init__(trunks, action_size(action_space), head_sizes)
        self.discrete = isinstance(action_space, spaces.Discrete)
        self.context, self.return_scale, self.drop_information = context, return_scale, drop_information
        self.frame_size = observation_size + 2
        self.action_shape = action_space.shape or ()
        self.register_buffer("mean", torch.zeros(observation_size))
        self.register_buffer("std", torch.ones(observation_size))
        self.register_buffer("target_return", torch.zeros(()))

    @property
    def reads_reward(self) -> bool:
        return True  # for the return to go

    def know(self, seen: Tensor, target_return: float) -> None:
        """Standardise by the mean and the standard deviation of observations [N, O], and aim at a return."""
        std, mean = torch.std_mean(seen.double(), 0, correction=0)
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std > 1e-6, std, 1))  # the deviation of a constant is nearly zero
        self.target_return.fill_(target_return)

    def read(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """As `Predictor.read`, of frames; every row is a window of its own, which begins with an empty memory."""
        frames, memory = inputs.obs, self.trunks.actor.initial_state(len(inputs.start))
        parts = [(frames[..., :-2] - self.mean) / self.std, frames[..., -2:-1] / self.return_scale]
        if self.drop_information:
            ages = torch.arange(AGES, device=frames.device)  # one_hot would wait for the device
            parts.append((frames[..., -1:].clamp(max=AGES - 1) == ages).to(frames.dtype))
        return super().read(inputs._replace(obs=torch.cat(parts, -1)), memory)[0], state

    def initial_state(self, batch_size: int) -> State:
        like = self.mean
        action = torch.int64 if self.discrete else like.dtype
        return {
            "frames": like.new_zeros(batch_size, self.context, self.frame_size),
            "actions": like.new_zeros(batch_size, self.context, *self.action_shape, dtype=action),
            "to_go": like.new_zeros(batch_size),
            "age": like.new_zeros(batch_size, dtype=torch.int64),
        }

    def receive(self, inputs: Inputs, arrived: Tensor, state: State) -> State:
        """The state after a slot, whose frame was received where `arrived` [N] is true, or an episode begins."""
        begins = inputs.start
        to_go = torch.where(begins, self.target_return, state["to_go"] - inputs.prev_reward)
        new, last = framed(inputs.obs, to_go, torch.zeros_like(to_go)), state["frames"][:, -1]
        repeated = torch.cat([last[:, :-1], last[:, -1:] + 1], -1)
        frame = where_start(arrived | begins, new, repeated)
        after = {
            name: torch.cat([state[name][:, 1:], slot[:, None]], 1)
            for name, slot in (("frames", frame), ("actions", inputs.prev_action))
        }
        age = torch.where(begins, 0, (state["age"] + 1).clamp(max=self.context - 1))
        return after | {"to_go": to_go, "age": age}

    @torch.no_grad()
    def act_with(self, inputs: Inputs, arrived: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """As `act`, having received the frames of the rows `arrived` [N] alone."""
        state = self.receive(inputs, arrived, state)
        slot = torch.arange(self.context, device=arrived.device)
        start = slot == self.context - 1 - state["age"][:, None]  # what lies before it is another episode's
        reward = torch.zeros_like(start, dtype=state["to_go"].dtype)
        features, _ = self.read(Inputs(state["frames"], state["actions"], reward, start), ())
        return self.greedy(features[:, -1]), torch.zeros_like(state["to_go"]), state

    def act(
        self, inputs: Inputs, state: State, generator: torch.Generator | None, exploration: Exploration = ON_POLICY
    ) -> tuple[Tensor, Tensor, State]:
        """As `Agent.act`, with zeros [N] for log-probabilities. It receives every frame, and always acts greedily."""
        return self.act_with(inputs, torch.ones_like(inputs.start), state)

    def scores(self, features: Tensor) -> Tensor:
        scores = self.head(features)
        return scores if self.discrete else torch.tanh(scores)

    def greedy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = self.scores(features)
        return scores.argmax(-1) if self.discrete else scores


class Dropping:
    """An agent behind a line that drops frames; it stands for the agent where a `Collector` acts.

    agent: acts
    probability: of dropping a frame, but never the first one of an episode
    generator: on the CPU, draws which are dropped, for every environment on its own
    """

    def __init__(self, agent: DecisionAgent, probability: float, generator: torch.Generator):
        self.agent, self.probability, self.generator = agent, probability, generator

    def modules(self) -> Iterator[nn.Module]:
        return self.agent.modules()

    def initial_state(self, batch_size: int) -> State:
        return self.agent.initial_state(batch_size)

    def act(
        self, inputs: Inputs, state: State, generator: torch.Generator | None, exploration: Exploration = ON_POLICY
    ) -> tuple[Tensor, Tensor, State]:
        arrived = torch.rand(len(inputs.start), generator=self.generator) >= self.probability
        return self.agent.act_with(inputs, arrived.to(inputs.start.device), state)


def action_size(space: Space) -> int:
    """How many numbers a policy's head gives: one per action, or one per dimension of an action."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    assert space.shape is not None
    return space.shape[0]
