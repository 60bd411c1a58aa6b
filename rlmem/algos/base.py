"""What every algorithm says of itself: the only way in which the rest of the platform knows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from rlmem.acting.evaluate import evaluate_both
from rlmem.agents.exploration import ON_POLICY, Exploration
from rlmem.agents.trunk import Trunk
from rlmem.algos.finite import Finite
from rlmem.batching import Batching
from rlmem.loops.base import Loop, LoopParts, Results, one_thread
from rlmem.seeding import Streams
from rlmem.spaces import READABLE, is_bounded, is_flat, is_readable


@dataclass(frozen=True)
class Plan:
    """The run that an algorithm is chosen for, as far as it matters to what hinders it and to how it is described.

    choices: the name of the chosen option of each group, for messages
    env: a vector of environments, or a source of labelled sequences
    batching: how rows are cut
    total_steps: environment steps of the run
    num_envs: environments of each process, or the rows that a supervised algorithm reads side by side
    processes: how many train together
    """

    choices: Mapping[str, str | list[str]]
    env: Any
    batching: Batching
    total_steps: int
    num_envs: int
    processes: int


@dataclass(frozen=True)
class Storage:
    """What an algorithm keeps of the agent's experience, from which a forecast of memory follows.

    slots: slots that are collected from every environment before an update
    slots_key: the key of `algo` that sets `slots`, where a smaller number would need much less memory
    with_gradient: whether an update keeps the features of all these slots for a gradient
    capacity: transitions that a replay holds at most; None: there is no replay
    state_every: slots between the memory states that the replay keeps; None: it keeps none
    directory: where the replay lies on the disk; None: in memory
    """

    slots: int
    slots_key: str | None = None
    with_gradient: bool = False
    capacity: int | None = None
    state_every: int | None = None
    directory: str | None = None


class Algorithm(ABC):
    """Turns experience into a better agent.

    To add one, derive from `OnPolicy`, `OffPolicy` or `Supervised`, which fill in most of what is below, and name the
    class in a yaml of conf/algo. A kind of algorithm that is none of these derives from this class and fills in the
    abstract methods; every other member has a default that fits an algorithm whose agent acts, in one process, without
    a replay.
    """

    acts: ClassVar[bool] = True
    """Whether its agent acts in environments; otherwise it answers questions about what it reads."""
    action_spaces: ClassVar[tuple[type[Space], ...]] = ()
    """The action spaces that the algorithm is defined for."""
    bounded_actions: ClassVar[bool] = False
    """Whether continuous actions must lie between bounds."""
    one_process: ClassVar[str | None] = None
    """What hinders several processes from training together, such as "learns from one replay"; None: nothing does."""
    weight_copies: ClassVar[int] = 3
    """Tensors of the size of the weights in a checkpoint: here the weights and two moments of the optimiser."""
    finite: Finite
    """Counts the gradient steps that were not finite; set when training begins."""

    @property
    def name(self) -> str:
        """The prefix of its metrics."""
        return type(self).__name__.lower()

    @property
    def rows(self) -> int | None:
        """Rows that it reads side by side; None: one for every environment."""
        return None

    @property
    def resumes_environments(self) -> bool:
        """Whether checkpoints hold the states of environments, which must then offer `state()` and `restore()`."""
        return self.acts

    @abstractmethod
    def make_agent(self, make_trunk: Callable[[], Trunk], action_space: Space) -> Any:
        """The network that is trained.

        make_trunk: builds an encoder with a memory
        action_space: of one environment
        """

    @abstractmethod
    def make_loop(self, parts: LoopParts) -> Loop:
        """Take `parts.agent` into training, and build the loop that trains it."""

    @abstractmethod
    def describe(self, plan: Plan) -> dict[str, str]:
        """Lines of the summary before a run, by their heading.

        "training" is required: the number and the size of the updates. "actors" is optional: the processes that act.
        """

    @abstractmethod
    def storage(self, batching: Batching) -> Storage | None:
        """What it keeps of the agent's experience; None: nothing that could fill the memory of a machine."""

    def problems(self, plan: Plan) -> list[str]:
        """Why the choices of `plan` do not go together, a sentence each; [] if they do."""
        env_name, algo_name = plan.choices["env"], plan.choices["algo"]
        if not isinstance(plan.env, VectorEnv):
            what = f"holds labelled sequences, in which algo={algo_name} cannot act"
            return [f"env={env_name}: {what}; e.g. algo=classify"]
        found, methods = [], ("state", "restore") if self.resumes_environments else ()
        observation, action = plan.env.single_observation_space, plan.env.single_action_space
        if lacks := [f"{name}()" for name in methods if not callable(getattr(plan.env, name, None))]:
            what = (
                f"has no {' and no '.join(lacks)}, without which no checkpoint of a run can be written or gone on from"
            )
            example = "a single Gymnasium environment by env=gym env.id=..., or a class derived from BatchedEnv"
            found.append(f"env={env_name}: {type(plan.env.unwrapped).__name__} {what}; e.g. {example}")
        if not is_readable(observation):
            what = f"no encoder reads observation space {observation}; expected {READABLE}"
            found.append(f"env={env_name}: {what}; e.g. env=repeat_previous")
        if not isinstance(action, self.action_spaces) or not is_flat(action):
            names = ", ".join(space.__name__ for space in self.action_spaces)
            found.append(
                f"algo={algo_name}: does not support action space {action} of env={env_name}; "
                f"supported: {names}, of one dimension; e.g. algo={'sac' if isinstance(action, Box) else 'sacd'}"
            )
        elif self.bounded_actions and isinstance(action, Box) and not is_bounded(action):
            what = f"acts between bounds, which action space {action} of env={env_name} lacks"
            found.append(f"algo={algo_name}: {what}; e.g. algo=ppo")
        found += self.setting_problems(plan)
        if problem := self.batching_problem(plan.batching):
            found.append(f"batching={plan.choices['batching']}: {problem}")
        return found

    def setting_problems(self, plan: Plan) -> list[str]:
        """Why the algorithm's own settings do not fit the run, a sentence each."""
        return []

    def batching_problem(self, batching: Batching) -> str | None:
        """Why the algorithm cannot learn from rows that are cut so."""
        return None

    def prepare_evaluation(self, streams: Streams, device: torch.device) -> None:  # noqa: B027 - most need nothing
        """Read what `evaluate` needs, where no loop has been made that did so."""

    def evaluate(
        self,
        agent: Any,
        env: Any,
        episodes: int,
        streams: Streams,
        device: torch.device,
        max_steps: int | None,
        say: Callable[[str], None],
        exploration: Exploration,
    ) -> Results:
        """Means over `episodes` evaluation episodes, {policy: {metric: mean}}; the same `streams` give the same ones.

        agent: the one to evaluate
        env: made for this evaluation
        episodes: how many
        streams: roots of the random numbers of the episodes
        device: the agent's
        max_steps: bound of an episode's length; None: no bound
        say: is told of the progress of long evaluations
        exploration: how the agent explores where actions are sampled
        """
        with one_thread():
            return evaluate_both(agent, env, episodes, streams, device, max_steps, say, exploration)

    def explore(self, steps: int, total_steps: int) -> Exploration:
        """How the agent explores after so many of `total_steps` environment steps."""
        return ON_POLICY

    def learnt(self) -> dict[str, Any]:
        """What was learnt beside the agent's weights and belongs to them, such as a target network."""
        return {}

    def load_learnt(self, state: dict[str, Any]) -> None:  # noqa: B027 - most have nothing beside the weights
        """Take over what `learnt` of another run of the same algorithm gave."""

    def skipped(self) -> dict[str, float]:
        """Metrics of the gradient steps that were not taken, if any may be left out."""
        return self.finite.metrics()

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What continues training exactly, beside the agent's weights."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave. Raises ValueError if it does not fit."""
