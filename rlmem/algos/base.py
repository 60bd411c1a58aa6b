"""The interface of algorithms: all that the rest of rlmem knows about them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import VectorEnv
from torch import Tensor

from rlmem.acting.collector import one_thread
from rlmem.acting.evaluate import Request, evaluate
from rlmem.agents.actor_critic import Exploration
from rlmem.agents.trunk import Trunks
from rlmem.batching import Batching
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.core.spaces import ACTION_MASK, READABLE, component_sizes, is_flat, is_readable, is_tree
from rlmem.core.types import Batch
from rlmem.loops.base import Loop
from rlmem.loops.parts import OnNan, Results


@dataclass(frozen=True)
class Plan:
    """What an algorithm needs to know of a run to check whether it fits and to describe it.

    choices: the name of the chosen option of each group, for messages
    env: a vector of environments, or a source of labelled sequences
    batching: how rows are cut
    total_steps: environment steps of the run
    num_envs: environments of each process, or the rows that a supervised algorithm reads side by side
    processes: how many processes train together
    learns: whether the agent is to learn; otherwise it is only evaluated or acts
    """

    choices: Mapping[str, str | list[str]]
    env: Any
    batching: Batching
    total_steps: int
    num_envs: int
    processes: int
    learns: bool


@dataclass(frozen=True)
class Storage:
    """What an algorithm keeps of the agent's experience, for the forecast of memory.

    slots: slots collected from every environment before an update
    slots_key: the key of `algo` that sets `slots`, where a smaller number would need much less memory
    with_gradient: whether an update keeps the features of all these slots for a gradient
    capacity: transitions that a replay holds at most; None: there is no replay
    state_every: slots between the memory states that the replay keeps; None: it keeps none
    directory: folder of the replay's files; None: the replay is in memory
    """

    slots: int
    slots_key: str | None = None
    with_gradient: bool = False
    capacity: int | None = None
    state_every: int | None = None
    directory: str | None = None


@dataclass(kw_only=True)
class Outline:
    """A run with an algorithm, as it is known before the run begins.

    problems: why the choices do not go together, one sentence each; [] if they do
    notes: what a user should know of the choices, one sentence each
    training: the number and the size of the updates, for the summary
    actors: the processes that act, for the summary; None: there are none
    updates: about how many updates the run makes; None where that cannot be told
    shown: the most slots of one episode that a rollout or a batch shows in one piece; None: whole episodes
    reach: the most slots of one episode between which gradients flow in a row; None: whole episodes
    storage: what the algorithm keeps of the agent's experience; None: too little to need a forecast
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    training: str = ""
    actors: str | None = None
    updates: float | None = None
    shown: int | None = None
    reach: int | None = None
    storage: Storage | None = None


class Learner(ABC):
    """Trains a network: what a run needs of every algorithm, whether it learns by acting or from recorded data.

    A loop of the class `loop` calls `setup` and then the methods of its kind of learner.
    """

    acts: ClassVar[bool]
    """Whether its network acts in environments; otherwise it answers questions about what it reads."""
    learns_by_acting: ClassVar[bool]
    """Whether it learns from episodes that its network plays."""
    one_process: ClassVar[str | None] = None
    """Why several processes cannot train together, such as "learns from one replay"; None: they can."""
    weight_copies: ClassVar[int] = 3
    """Tensors of the size of the weights in a checkpoint: here the weights and two moments of the optimiser."""
    separate: bool = False
    """Whether the critic has an encoder and a memory of its own; a setting of algorithms that offer it."""
    saved: ClassVar[tuple[str, ...]] = ()
    """What a checkpoint holds under the same names, beside the optimiser."""
    noise_metric: ClassVar[str | None] = None
    """The NAME of the metric `explore/NAME` for the chance of a random action; None: it is not logged."""
    name: ClassVar[str]
    """The prefix of its metrics: the name of the class in small letters."""
    loop: type[Loop]
    """The loop that trains with it."""
    optim: torch.optim.Optimizer
    """Takes the gradient steps; set when training begins."""
    finite: Any
    """Takes the gradient steps and counts those skipped (`rlmem.algos.on_policy.Finite`); set when training begins."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__.lower()

    @property
    def rows(self) -> int | None:
        """Rows that the algorithm reads side by side; None: one for every environment."""
        return None

    def encoded(self, observation_space: Space) -> Space:
        """The space of what encoders read of a slot, given that of the environment's observations: by default, that."""
        return observation_space

    @abstractmethod
    def make_agent(self, trunks: Trunks, action_space: Space) -> Any:
        """The network that is trained.

        trunks: encoders and memories of actor and critic
        action_space: of one environment
        """

    @abstractmethod
    def outline(self, plan: Plan) -> Outline:
        """What the run would be, and why it cannot be."""

    @abstractmethod
    def explore(self, steps: int, total_steps: int) -> Exploration:
        """How the agent explores after `steps` of `total_steps` environment steps."""

    def prepare_evaluation(self, streams: Streams, device: torch.device) -> None:  # noqa: B027 - most need nothing
        """Load what `evaluate` needs, if no loop was made, which would have done so."""

    @abstractmethod
    def evaluate(self, agent: Any, env: Any, request: Request) -> Results:
        """Means over episodes of `agent` in `env` as `request` describes them: {policy: {metric: mean}}."""

    @abstractmethod
    def score(self, results: Results) -> float:
        """A single number for the results of an evaluation, larger for better."""

    def learnt(self) -> dict[str, Any]:
        """What was learnt beside the agent's weights and belongs to them, such as a target network."""
        return {}

    def load_learnt(self, state: dict[str, Any]) -> None:  # noqa: B027 - most have nothing beside the weights
        """Load what `learnt` of another run of the same algorithm returned."""

    def state_dict(self) -> dict[str, Any]:
        """All that exact resume needs, without the agent's weights."""
        finite = {"skipped": self.finite.skipped, "in_a_row": self.finite.in_a_row}
        own = {name: getattr(self, name) for name in self.saved}
        return {"optimiser": self.optim.state_dict(), "finite": finite} | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned. Raises ValueError if it does not fit."""
        self.optim.load_state_dict(state["optimiser"])
        for parameter, moments in self.optim.state.items():
            for name, value in moments.items():
                if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                    raise ValueError(f"{name} of the optimiser is {tuple(value.shape)}, not {tuple(parameter.shape)}")
        self.finite.skipped, self.finite.in_a_row = state["finite"]["skipped"], state["finite"]["in_a_row"]
        for name in self.saved:
            setattr(self, name, state[name])


class Algorithm(Learner):
    """Improves an agent by the episodes that it plays.

    To add one, derive from `OnPolicy` or `OffPolicy`, which fill in most of what is below, and name the class in a yaml
    of conf/algo.
    """

    acts = True
    learns_by_acting = True
    action_spaces: ClassVar[tuple[type[Space], ...]] = ()
    """The action spaces that the algorithm is defined for."""
    masks: ClassVar[bool] = False
    """True if its losses use action masks."""
    bounded_actions: ClassVar[bool] = False
    """True if continuous actions must lie between bounds."""
    resumes_environments = True
    """Whether checkpoints hold the states of environments, which must then offer `state()` and `restore()`."""

    auxiliary_loss: Callable[[Batch, Tensor], Tensor] | None = None
    """A method of this name adds a loss of its own, a scalar, to every gradient step. It reads the rows of a batch and
    the features [B, T, F] of the critic's trunk, through which its gradient flows."""

    def loss_beside(self, batch: Batch, features: Tensor) -> Tensor:
        """What `auxiliary_loss` returns. Raises UserError if that is no scalar."""
        assert self.auxiliary_loss is not None
        loss = self.auxiliary_loss(batch, features)
        if loss.dim():
            raise UserError(f"{type(self).__name__}.auxiliary_loss: expected a scalar, got {list(loss.shape)}")
        return loss

    def evaluate(self, agent: Any, env: Any, request: Request) -> Results:
        with one_thread():
            return {name: evaluate(agent, env, request, name == "greedy").summary() for name in ("greedy", "sampled")}

    def score(self, results: Results) -> float:
        """The mean return of greedy episodes."""
        return results["greedy"]["return_mean"]

    def outline(self, plan: Plan) -> Outline:
        """The problems with the environment; what learns from rollouts or a replay adds the rest."""
        of_env, of_algo = f"env={plan.choices['env']}", f"algo={plan.choices['algo']}"
        if not isinstance(plan.env, VectorEnv):
            return Outline(
                problems=[f"{of_env}: holds labelled sequences, in which {of_algo} cannot act; e.g. algo=classify"]
            )
        problems, methods = [], ("state", "restore") if self.resumes_environments else ()
        observation, action = plan.env.single_observation_space, plan.env.single_action_space
        if lacks := [f"{name}()" for name in methods if not callable(getattr(plan.env, name, None))]:
            problems.append(
                f"{of_env}: {type(plan.env.unwrapped).__name__} has no {' and no '.join(lacks)}, without which no "
                f"checkpoint of a run can be written or gone on from; e.g. a single Gymnasium environment by env=gym "
                f"env.id=..., or a class derived from BatchedEnv"
            )
        if not is_readable(observation):
            name, shown = _unreadable(observation)
            reason = f"no encoder reads {shown}; expected {READABLE}"
            example = f"encoder=dict encoder.exclude=[{name}]" if name else "env=repeat_previous"
            problems.append(f"{of_env}: {reason}; e.g. {example}")
        if not isinstance(action, self.action_spaces) or not is_flat(action):
            names = ", ".join(space.__name__ for space in self.action_spaces)
            reason = f"does not support action space {action} of {of_env}; supported: {names}, of one dimension"
            problems.append(f"{of_algo}: {reason}; e.g. {self._alternative(action)}")
        elif self.bounded_actions and isinstance(action, Box) and not action.is_bounded("both"):
            reason = f"acts between bounds, which action space {action} of {of_env} lacks"
            problems.append(f"{of_algo}: {reason}; e.g. algo=ppo")
        problems += [f"{of_algo}: {problem}" for problem in self._mask_problems(observation, action, of_env)]
        problems += self._critic_problems(observation, of_env)
        return Outline(problems=problems)

    def _alternative(self, action: Space) -> str:
        """Another algorithm for an action space, or another environment where no algorithm supports it."""
        if is_flat(action) and isinstance(action, Box | Discrete | MultiDiscrete):
            return f"algo={'sac' if isinstance(action, Box) else 'sacd'}"
        return f"env={'repeat_previous' if Discrete in self.action_spaces else 'pendulum'}"

    def _mask_problems(self, observation: Space, action: Space, of_env: str) -> list[str]:
        """Why the action masks of an environment cannot be followed."""
        mask = observation.spaces.get(ACTION_MASK) if isinstance(observation, Dict) else None
        if mask is None:
            return []
        if not isinstance(action, Discrete | MultiDiscrete):
            return [f"action masks are for Discrete and MultiDiscrete actions, not for {action} of {of_env}"]
        if mask.shape != (size := (sum(component_sizes(action)),)):
            return [f"the action mask of {of_env} has shape {mask.shape}; expected {size}, a value for every action"]
        if not self.masks:
            return [f"does not know action masks, which {of_env} gives; e.g. algo=ppo"]
        return []

    def _critic_problems(self, observation: Space, of_env: str) -> list[str]:
        """Why the critic cannot be another one than the actor's settings ask for."""
        asked = {key: getattr(self, key, None) for key in ("critic_observation", "critic_memory")}
        told = {key: f"[{','.join(value)}]" if isinstance(value, list) else value for key, value in asked.items()}
        keys = [f"algo.{key}={value}" for key, value in told.items() if value is not None]
        if keys and not self.separate:
            return [f"{' '.join(keys)}: actor and critic share an encoder and a memory; e.g. algo.separate=true"]
        if asked["critic_observation"] is not None and not is_tree(observation):
            return [f"{keys[0]}: observations of {of_env} have one part; e.g. env.privileged=true where it has that"]
        return []


class ScaledRewards(Algorithm):
    """An algorithm with a factor of the rewards, which it may choose itself: what it has learnt depends on it.

    scale: the factor; None: it has not been chosen yet
    """

    saved: ClassVar[tuple[str, ...]] = ("scale",)
    reward_scale: float | None
    scale: float | None

    def setup(self, agent: Any, generator: torch.Generator, on_nan: OnNan = "stop") -> None:
        super().setup(agent, generator, on_nan)  # type: ignore[misc] # of the class beside it
        self.scale = self.reward_scale

    def learnt(self) -> dict[str, Any]:
        """The factor if it was chosen."""
        return super().learnt() | ({"scale": self.scale} if self.reward_scale is None else {})

    def load_learnt(self, state: dict[str, Any]) -> None:
        super().load_learnt(state)
        if self.reward_scale is None:
            self.scale = state.get("scale", self.scale)


def _unreadable(space: Space) -> tuple[str, str]:
    """The path of the part of an observation space that no encoder reads, "" for the whole, and what to call it."""
    if isinstance(space, Dict):
        for name, leaf in space.items():
            if not is_readable(Dict({name: leaf})):
                return name, f"the part `{name}` of its observations, {leaf}"
    return "", f"observation space {space}"
