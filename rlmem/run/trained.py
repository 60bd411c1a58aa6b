"""A trained agent that acts in anybody's environments, slot after slot."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import ArrayLike
from torch import Tensor, nn

from rlmem.acting.collector import one_thread
from rlmem.acting.guard import NUMBERS, ObservationCheck, UnreadableObservation, as_flags
from rlmem.acting.observed import flat_mask
from rlmem.agents.actor_critic import Agent, Exploration
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.core.spaces import ACTION_MASK, OBSERVATION, by_path, component_sizes, is_tree, leaves, no_action, to_env
from rlmem.core.types import Inputs, State, each_leaf
from rlmem.run.assemble import open_trained
from rlmem.scan.native import Constants, constant_weights


@dataclass(frozen=True, eq=False)
class ActingState:
    """What an agent carries from one slot to the next, for N environments. `TrainedAgent.act` returns another one.

    memory: the states of its memories
    prev_action: the actions of the slot before, [N, ...], as the policy gives them: from zero, or in [-1, 1]
    episode_draw: the draws of the running episodes, [N], for exploration by episodes
    fresh: whether nothing has been read so far
    vector: whether it acts in a vector of environments, or in one by itself
    """

    memory: State
    prev_action: Tensor
    episode_draw: Tensor
    fresh: bool
    vector: bool


class TrainedAgent:
    """An agent with the weights of a checkpoint. `rlmem.load` and `rlmem.Run.agent` make it.

    In a vector of environments with Gymnasium's NEXT_STEP autoreset, as `rlmem.make_env` and `gymnasium.make_vec` give:

        state = agent.initial_state(env.num_envs)
        obs, _ = env.reset()
        reward, start, ended = None, None, np.zeros(env.num_envs, bool)
        while True:
            action, state = agent.act(obs, state, start=start, reward=reward)
            start = ended                        # the step after an end ignores the action and begins an episode
            obs, reward, terminated, truncated, _ = env.step(action)
            ended = terminated | truncated

    In one environment by itself, `initial_state()` before every episode, and no `start`. Observations of several parts
    are given as the environment gives them; of these, the leaves that the actor reads must be there.

    network: the `torch.nn.Module`, whose weights may change between calls, but not through `.data`
    observation_space, action_space: of one environment
    step: environment steps that it had learnt from
    device: where it computes
    exploration: how far sampled actions depart from the policy, as at the end of training
    generator: draws the sampled actions
    reads_reward: whether it reads the reward of the slot before
    """

    def __init__(
        self,
        network: Agent,
        observation_space: Space,
        action_space: Space,
        step: int,
        device: torch.device,
        exploration: Exploration,
        seed: int = 0,
    ):
        self.network = network.eval()
        if is_tree(observation_space):
            network.trunks.step_all = False  # a critic of its own may read what is not there any more
        self.observation_space, self.action_space = observation_space, action_space
        self.step, self.device, self.exploration = step, device, exploration
        self.reads_reward = network.reads_reward
        self._leaves = leaves_read(network, observation_space)
        self._checks = {name: ObservationCheck(space) for name, space in self._leaves.items()}
        self._to_env, self._constants, self._lock = to_env(action_space), Constants(), Lock()
        self._weights = Weights(self.network)
        self.seed(seed)

    def __repr__(self) -> str:
        return (
            f"TrainedAgent({self.observation_space} to {self.action_space}, of {self.step:,} steps, on {self.device})"
        )

    def seed(self, seed: int) -> None:
        """Begin the draws of sampled actions anew."""
        self.generator = Streams(seed).torch("evaluation/act", self.device)

    def initial_state(self, num_envs: int | None = None) -> ActingState:
        """The state before the first slot.

        num_envs: environments of the vector to act in; None: one environment by itself, whose observations, rewards
            and actions have no leading dimension
        """
        if num_envs is not None and num_envs < 1:
            raise UserError(f"num_envs={num_envs}: expected at least 1, or None for one environment by itself")
        n = 1 if num_envs is None else num_envs
        action = no_action(self.action_space, n).to(self.device)
        zeros = torch.zeros(n, device=self.device)
        memory = self.network.initial_state(n)
        return ActingState(memory, action, zeros, fresh=True, vector=num_envs is not None)

    @torch.no_grad()
    def act(
        self,
        obs: ArrayLike,
        state: ActingState,
        start: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        greedy: bool = True,
        action_mask: ArrayLike | None = None,
    ) -> tuple[Any, ActingState]:
        """Read one slot of N environments and act: the actions [N, ...] as the environments take them, and the state.

        obs: observations [N, ...], or dictionaries and tuples of such
        state: what the last call returned, or `initial_state`
        start: [N], where `obs` is the first observation of an episode: the memory forgets what came before. None:
            everywhere in the first call, nowhere in later ones
        reward: [N], what the action before has earned; only agents that read it need it (`reads_reward`)
        greedy: whether to take the best action; otherwise actions are sampled as at the end of training
        action_mask: which actions are allowed [N, A], for agents that learnt with masks, if `obs` does not say; of a
            MultiDiscrete also tuples with an array for every component. Where none is, all are

        Raises UserError for arguments of another shape or kind, for numbers that are not finite, for observations
        outside a discrete space, and where a reward is needed and not given.
        """
        n = len(state.prev_action)
        first = np.zeros(n, bool) if start is None else self._rows("start", as_flags(start), state, "b")
        begins = first | state.fresh
        shown = self._observations(obs, state, action_mask)
        if reward is None and self.reads_reward and not begins.all():
            raise UserError(
                "reward: this agent reads the reward of the slot before; e.g. agent.act(..., reward=reward)"
            )
        earned = np.zeros(n) if reward is None else self._rows("reward", reward, state)
        prev_reward = np.where(begins, 0, earned).astype(np.float32)  # whatever a reset has for a reward
        if not np.isfinite(prev_reward).all():
            raise UserError(f"reward: expected finite numbers, got {prev_reward[~np.isfinite(prev_reward)][0]}")
        here = lambda array: torch.from_numpy(array).to(self.device)  # noqa: E731
        inputs = Inputs(each_leaf(here, shown), state.prev_action, here(prev_reward), here(begins))
        generator, exploration = None if greedy else self.generator, self.exploration
        if generator is not None and exploration.by_episode:
            exploration = exploration.drawn(state.episode_draw, begins, generator)
        with self._lock, one_thread():
            if self._weights.changed():
                self._constants.clear()
            with constant_weights(self.network, self._constants):
                action, _, memory = self.network.act(inputs, state.memory, generator, exploration)
        draw = state.episode_draw if exploration.episode_draw is None else exploration.episode_draw
        chosen = self._to_env(action.cpu().numpy())
        return chosen if state.vector else chosen[0], ActingState(memory, action, draw, False, state.vector)

    def _observations(self, obs: Any, state: ActingState, mask: ArrayLike | None) -> Any:
        """Observations as the agent reads them, [N, ...] of the space's type, or its leaves by their paths.

        Raises UserError if it cannot.
        """
        if not is_tree(self.observation_space):
            if mask is not None:
                raise UserError("action_mask: this agent learnt without masks; e.g. agent.act(obs, state)")
            return self._leaf("obs", "", obs, state)
        parts = isinstance(obs, Mapping) or (isinstance(obs, tuple) and OBSERVATION not in self._leaves)
        obs_by_leaf = by_path(obs) if parts else {OBSERVATION: obs}
        if isinstance(mask, Sequence):  # an array for every component, perhaps
            obs_by_leaf[ACTION_MASK] = [flat_mask(one) for one in mask] if state.vector else flat_mask(mask)
        elif mask is not None:
            obs_by_leaf[ACTION_MASK] = mask
        if lacking := [name for name in self._leaves if name not in obs_by_leaf]:
            example = "agent.act(obs, state, action_mask=mask)" if lacking == [ACTION_MASK] else "a dictionary"
            raise UserError(f"obs: expected {', '.join(self._leaves)}; `{lacking[0]}` is missing; e.g. {example}")
        shown = {name: self._leaf(name, name, obs_by_leaf[name], state) for name in self._leaves}
        if (allowed := shown.get(ACTION_MASK)) is not None:
            sizes = np.cumsum(component_sizes(self.action_space))[:-1]
            shown[ACTION_MASK] = allowed = allowed != 0
            for component in np.split(allowed, sizes, axis=-1):  # views
                component[~component.any(-1)] = True  # nothing follows a final observation
        return shown

    def _leaf(self, said: str, name: str, values: ArrayLike, state: ActingState) -> np.ndarray:
        """One leaf of the observations, [N, ...] of its space's type; `said` is its name in messages."""
        space, check = self._leaves[name], self._checks[name]
        if state.vector and isinstance(values, tuple) and isinstance(space, spaces.MultiDiscrete):
            with suppress(ValueError, TypeError):  # refused below
                values = np.stack(values, -1)  # a vector gives an array for each part of a Tuple
        array = self._rows(said, values, state, None, space.shape or ())
        try:
            return check.read(array)
        except UnreadableObservation as problem:
            where = problem.where if state.vector else None
            who = "" if where is None else f"environment {np.argwhere(where)[0, 0]}: "
            raise UserError(f"{said}: {who}{problem}") from problem

    def _rows(
        self,
        name: str,
        values: ArrayLike,
        state: ActingState,
        kinds: str | None = NUMBERS,
        shape: tuple[int, ...] = (),
    ) -> np.ndarray:
        """An argument as an array [N, *shape].

        Raises UserError for another shape and, unless `kinds` is None, for other kinds of numpy's types.
        """
        try:
            array = np.array(values, order="C")  # a copy, which nobody else can write to
        except (ValueError, TypeError) as error:
            raise UserError(f"{name}: expected an array, got rows of several lengths or no numbers") from error
        expected = (len(state.prev_action), *shape) if state.vector else shape
        if array.shape != expected:
            raise UserError(f"{name}: expected the shape {expected}, got {array.shape}; e.g. initial_state(num_envs)")
        if kinds is not None and array.dtype.kind not in kinds:
            raise UserError(f"{name}: expected {'numbers' if kinds == NUMBERS else 'booleans'}, got {array.dtype}")
        return array if state.vector else array[None]


def open_agent(
    run_dir: Path, which: int | str | None = None, device: str = "cpu", seed: int = 0, trust: bool = False
) -> TrainedAgent:
    """The agent of a checkpoint of a run; see `rlmem.Run.agent`."""
    parts, state = open_trained(run_dir, which, [f"device={device}"], trust)
    parts.env.close()
    spaces_of_env = (parts.env.single_observation_space, parts.env.single_action_space)
    return TrainedAgent(parts.agent, *spaces_of_env, state["step"], parts.device, parts.exploration, seed)


def leaves_read(network: Agent, observation_space: Space) -> dict[str, Space]:
    """The leaves that acting needs, by their paths; an observation of one part is the leaf without a name."""
    if not is_tree(observation_space):
        return {"": observation_space}
    read = {*network.trunks.actor.leaves, ACTION_MASK}
    return {name: space for name, space in leaves(observation_space).items() if name in read}


class Weights:
    """Whether the weights of a network are still the same: `parameters()` alone takes a fifth of an acting step.

    network: a network whose weights may be changed in place or replaced, and so may its parts; what is written through
        `parameter.data` goes unseen, as torch counts no version of it
    """

    def __init__(self, network: nn.Module):
        self.network = network
        self.parts: list[nn.Module] = []
        self.weights: list[nn.Parameter] = []
        self.seen: list[Any] | None = None

    def changed(self) -> bool:
        """Whether they are others than in the last call; in the first one they are."""
        if self._look() == self.seen:
            return False
        self.parts = [*self.network.modules()]
        self.seen = self._look()
        return True

    def _look(self) -> list[Any]:
        """What is another if a part or a weight is, or if a weight was written to."""
        children = [child for part in self.parts for child in part._modules.values()]
        weights = [weight for part in self.parts for weight in part._parameters.values() if weight is not None]
        seen = [*children, *((weight.data_ptr(), weight._version) for weight in weights)]
        self.weights = weights  # as long as they are kept, no other lies where they do
        return seen
