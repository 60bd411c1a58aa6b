"""Acting in a vector of environments, and writing down what happened under the slot rule."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.acting.guard import Guard
from rlmem.acting.patience import Patience
from rlmem.acting.slots import Slot, Slots
from rlmem.agents.exploration import ON_POLICY, Exploration
from rlmem.agents.state_dicts import require_alike
from rlmem.batching import Rollout, StateSlots
from rlmem.spaces import to_env
from rlmem.types import Inputs, State


class Actor(Protocol):
    """What acting needs of an agent; see `rlmem.agents.base.Agent`."""

    def initial_state(self, batch_size: int) -> State: ...

    def act(
        self, inputs: Inputs, state: State, generator: Any, exploration: Exploration, /
    ) -> tuple[Tensor, Tensor, State]: ...


@dataclass
class Episode:
    """A finished episode.

    step: environment steps that had been counted when it ended
    env: the index of its environment
    episode_return: the sum of its rewards
    length: how many actions it took
    terminated: whether the environment ended it
    truncated: whether a time limit ended it
    success: whether it was won, where the environment says so (`info["success"]`)
    """

    step: int
    env: int
    episode_return: float
    length: int
    terminated: bool
    truncated: bool
    success: bool | None = None

    def row(self) -> dict[str, Any]:
        """The episode's row of episodes.jsonl."""
        row = asdict(self)
        if self.success is None:
            del row["success"]
        return {"step": row.pop("step"), "env": row.pop("env"), "return": row.pop("episode_return"), **row}


class Collector:
    """Steps N environments with an agent: one continuous stream of slots per environment.

    The vector environment must reset itself with NEXT_STEP autoreset (Gymnasium's default): the step after an
    episode's end ignores the action and returns the first observation of the next. That step is the slot of the
    final observation; it is not an environment step and is not counted.

    env: the vector of environments
    agent: acts in them
    seed: seeds the environments
    generator: draws the actions; None: the agent acts greedily
    device: the agent's
    say: called, now and then, with a line on what a rollout waits for
    steps: environment steps so far
    seconds: time spent in the environments ("env") and in the agent ("act")
    """

    def __init__(
        self, env: VectorEnv, agent: Actor, seed: int, generator: torch.Generator | None, device: torch.device
    ):
        self.env, self.agent, self.generator, self.device = env, agent, generator, device
        self.guard = Guard(env)
        self.say: Callable[[str], None] = lambda line: None
        self.to_env = to_env(env.single_action_space)
        self.seconds = {"env": 0.0, "act": 0.0}
        self.steps = 0
        N = env.num_envs
        self.obs = self.guard.reset(seed)
        self.start = np.ones(N, bool)
        self.final = np.zeros(N, bool)  # this slot holds an episode's last observation
        action = np.zeros_like(env.action_space.sample())
        self.prev_action = torch.from_numpy(action).to(device)
        self.prev_reward = np.zeros(N, np.float32)
        self.episode_return = np.zeros(N)
        self.episode_length = np.zeros(N, np.int64)
        self.age = np.zeros(N, np.int64)  # slots since the episode began
        self.episode_draw = torch.zeros(N, device=device)  # on [0, 1), for exploration by episodes
        self.state = agent.initial_state(N)

    def collect(
        self,
        slots: int,
        budget: int,
        complete_episodes: bool = False,
        state_slots: StateSlots | None = None,
        most_slots: int | None = None,
        exploration: Exploration = ON_POLICY,
    ) -> tuple[Rollout, list[Episode]]:
        """Collect slots and a bootstrap slot from every environment; the rollout, and the episodes that ended in it.

        slots: slots per environment; more if nothing acted in them, since all held final observations
        budget: the most environment steps to take
        complete_episodes: begin with a reset everywhere, and go on in every environment until the episode that is
            running after `slots` slots has ended; what environments do beyond that is not counted
        state_slots: the slots before which to keep the memory's state, for rows that will begin there
        most_slots: slots after which the rollout ends, even if `complete_episodes` still waits
        exploration: how the agent explores

        With a budget that ends within a step of the vector, the surplus environments' transitions are left out of
        the rollout and of every count.
        """
        if complete_episodes:
            self.restart()
        record, patience = Slots(tree_map(Tensor.clone, self.state)), Patience()
        episodes: list[Episode] = []
        finished = np.zeros(self.env.num_envs, bool)
        stream_age = np.zeros_like(self.age)  # slots since the rollout or the episode began
        counted, dropped = 0, False
        for t in count():
            out_of_budget = counted >= budget or t == most_slots
            done = finished.all() if complete_episodes else t >= slots and counted > 0
            inputs = self._inputs()
            if done or out_of_budget:
                record.slots.append(self._bootstrap())
                rollout = record.rollout()
                rollout.cut = complete_episodes and (dropped or not done)
                return rollout, episodes
            stream_age[self.start] = 0
            if state_slots is not None:
                age = self.age if state_slots.of == "episode" else stream_age
                self._keep_states(record, t, (age > 0) & ((age + state_slots.shift) % state_slots.every == 0))
            stream_age += 1
            acting = ~self.final & ~finished
            acted = self._counting(acting, budget - counted)
            dropped = bool((acting != acted).any())
            counted += int(acted.sum())
            self._step(record, inputs, acted, episodes, exploration)
            if complete_episodes and t + 1 >= slots:
                finished |= self.final
                if patience.is_due():
                    left, longest = np.count_nonzero(~finished), self.episode_length.max()
                    what = f"{left} complete episodes are waited for; the longest has {longest:,} steps so far"
                    self.say(f"step {self.steps}: {what}")
        raise AssertionError("unreachable")

    def restart(self) -> None:
        """Reset every environment; running episodes are dropped."""
        self.obs = self.guard.reset(steps=self.steps)
        self.start[:] = True
        self.final[:] = False
        self.episode_return[:] = 0
        self.episode_length[:] = 0
        self.age[:] = 0
        self.prev_reward[:] = 0

    def _inputs(self) -> Inputs:
        to = lambda array: torch.from_numpy(array).to(self.device)  # noqa: E731
        return Inputs(to(self.obs), self.prev_action, to(self.prev_reward), to(self.start))

    def _keep_states(self, record: Slots, t: int, where: np.ndarray) -> None:
        rows = np.flatnonzero(where)
        if len(rows):
            record.keep_state(t, torch.from_numpy(rows).to(self.device), self.state)

    @staticmethod
    def _counting(acted: np.ndarray, budget: int) -> np.ndarray:
        """The first `budget` of the environments that acted."""
        return acted & (np.cumsum(acted) <= budget)

    def _bootstrap(self) -> Slot:
        """The last slot of a rollout, in which nothing acts."""
        nothing, action = np.zeros_like(self.start), self.prev_action
        log_prob, reward = torch.zeros(len(self.start), device=action.device), np.zeros_like(self.prev_reward)
        return Slot(self.obs, action, self.prev_reward, self.start, action, log_prob, reward, nothing, nothing)

    def _step(
        self, record: Slots, inputs: Inputs, acted: np.ndarray, episodes: list[Episode], exploration: Exploration
    ) -> None:
        began = perf_counter()
        exploration = self._with_draws(exploration)
        action, log_prob, self.state = self.agent.act(inputs, self.state, self.generator, exploration)
        env_action = self.to_env(action.cpu().numpy())
        acting_done = perf_counter()
        obs, reward, terminated, truncated, info = self.guard.step(
            env_action, self.final, self.steps, self.episode_length
        )
        self.seconds["act"] += acting_done - began
        self.seconds["env"] += perf_counter() - acting_done
        before, start = self.prev_action, self.start
        slot = Slot(self.obs, before, self.prev_reward, start, action, log_prob, reward, terminated, mask=acted)
        record.slots.append(slot)
        self._count(acted, reward, terminated, truncated, info, episodes)
        self.start, self.final = self.final, (terminated | truncated) & ~self.final
        self.age = np.where(self.start, 0, self.age + 1)
        self.obs, self.prev_action = obs, action
        self.prev_reward = np.where(self.start, np.float32(0), reward)

    def _with_draws(self, exploration: Exploration) -> Exploration:
        """`exploration` with a draw for each running episode, if it is by episodes."""
        if self.generator is None or not exploration.by_episode:
            return exploration
        if self.start.any():
            drawn = torch.rand(len(self.start), generator=self.generator, device=self.device)
            begins = torch.from_numpy(self.start).to(self.device)
            self.episode_draw = torch.where(begins, drawn, self.episode_draw)
        return replace(exploration, episode_draw=self.episode_draw)

    def _count(
        self,
        acted: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
        episodes: list[Episode],
    ) -> None:
        self.episode_return[acted] += reward[acted]
        self.episode_length += acted
        before = self.steps
        self.steps += int(acted.sum())
        for i in np.flatnonzero(acted & (terminated | truncated)):
            step = before + int(acted[: i + 1].sum())
            episodes.append(
                Episode(
                    step,
                    int(i),
                    float(self.episode_return[i]),
                    int(self.episode_length[i]),
                    bool(terminated[i]),
                    bool(truncated[i]),
                    bool(info["success"][i]) if "success" in info and info.get("_success", acted)[i] else None,
                )
            )
        ended = terminated | truncated
        self.episode_return[ended] = 0
        self.episode_length[ended] = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything that continues the streams exactly; the environment must offer `state()`."""
        arrays = {name: torch.from_numpy(np.asarray(getattr(self, name)).copy()) for name in _ARRAYS}
        return {
            **arrays,
            "prev_action": self.prev_action,
            "episode_draw": self.episode_draw,
            "state": self.state,
            "steps": self.steps,
            "generator": None if self.generator is None else self.generator.get_state(),
            "device": self.device.type,
            "env": tree_map(_to_tensor, self.guard.call(self.env.state)),  # type: ignore[attr-defined]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned. Raises ValueError if it is of other environments or memories."""
        own = {name: torch.from_numpy(getattr(self, name)) for name in _ARRAYS}
        for name, value in {**own, "prev_action": self.prev_action, "state": self.state}.items():
            require_alike(value, state[name], name)
        for name in _ARRAYS:
            setattr(self, name, state[name].cpu().numpy().copy())
        self.prev_action = state["prev_action"].to(self.device)
        self.episode_draw = state["episode_draw"].to(self.device)
        self.state = tree_map(lambda s: s.to(self.device), state["state"])
        self.steps = state["steps"]
        if self.generator is not None and state["device"] == self.device.type:  # else not its kind of state
            self.generator.set_state(state["generator"].cpu())
        self.guard.steps = self.steps
        self.env.restore(tree_map(_to_array, state["env"]))  # type: ignore[attr-defined]


def _to_tensor(leaf: Any) -> Any:
    return torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf


def _to_array(leaf: Any) -> Any:
    return leaf.cpu().numpy() if isinstance(leaf, Tensor) else leaf


_ARRAYS = ("obs", "start", "final", "prev_reward", "episode_return", "episode_length", "age")
