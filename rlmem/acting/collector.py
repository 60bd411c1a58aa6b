"""Acting in a vector of environments, and writing down what happened under the slot rule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

from rlmem.acting.guard import Guard
from rlmem.agents.actor_critic import ON_POLICY, Agent, Exploration
from rlmem.batching import Rollout, StateSlots
from rlmem.core.errors import Fault
from rlmem.core.spaces import no_action, to_env
from rlmem.core.types import Batch, Inputs, State, each_leaf, to_device, with_host
from rlmem.scan.native import constant_weights


@contextmanager
def one_thread() -> Iterator[None]:
    """Run with one thread inside: acting on a few rows is slower with several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


FIRST_REPORT = 10.0
"""Seconds until the progress of something that may take long is reported for the first time."""

SEVERAL = 8
"""Slots from which on laying out the weights for acting pays."""

ARRAYS = ("obs", "start", "final", "prev_reward", "episode_return", "episode_length", "age")
"""The arrays of a collector that continue its streams."""


class Patience:
    """Says when to report progress: after FIRST_REPORT seconds, and again whenever the time waited has doubled."""

    def __init__(self) -> None:
        self.began, self.pause = monotonic(), FIRST_REPORT

    def is_due(self) -> bool:
        if monotonic() - self.began < self.pause:
            return False
        self.pause *= 2
        return True


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
        """The episode's row of episodes.jsonl, in which an unknown `success` is left out."""
        return {name.removeprefix("episode_"): value for name, value in asdict(self).items() if value is not None}


Slot = dict[str, Any]
"""One slot of N environments: the fields of `rlmem.core.types.Batch` by their names, [N, ...] each, and log_prob.

Observations of several parts are their leaves by their paths, [N, ...] each. A slot without an action has `mask` false,
and zeros or the previous action in the fields of the action.
"""


@dataclass
class SlotBuffer:
    """Slots in order of time, stacked to [N, T+1, ...] at the end; `state0` is the memory's state before them."""

    state0: State
    slots: list[Slot] = field(default_factory=list)
    kept: list[tuple[int, Tensor, State]] = field(default_factory=list)
    """States for rows that begin inside the rollout: a slot, environments [K], and their states before it [K, ...]."""

    def rollout(self, cut: bool) -> Rollout:
        """All that was collected; `cut` is that of `Rollout`."""
        device = self.slots[0]["action"].device
        stacked: dict[str, Any] = {}
        for name in self.slots[0]:
            values = [slot[name] for slot in self.slots]
            if isinstance(values[0], dict):
                leaves = {leaf: np.stack([value[leaf] for value in values], 1) for leaf in values[0]}
                stacked[name] = each_leaf(lambda array: with_host(array, device), leaves)
                continue
            tensors = isinstance(values[0], Tensor)
            stacked[name] = torch.stack(values, 1) if tensors else with_host(np.stack(values, 1), device)
        streams = Batch(state0=self.state0, behaviour={"log_prob": stacked.pop("log_prob")}, **stacked)
        if not self.kept:
            return Rollout(streams, cut=cut)
        index = torch.zeros(streams.shape, dtype=torch.long, device=device)
        position = streams.shape[0]
        for slot, env, _ in self.kept:
            index[env, slot] = torch.arange(position, position + len(env), device=device)
            position += len(env)
        states = tree_map(lambda *parts: torch.cat(parts), *[state for _, _, state in self.kept])
        return Rollout(streams, states, index, cut=cut)


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
        self, env: VectorEnv, agent: Agent, seed: int, generator: torch.Generator | None, device: torch.device
    ):
        self.env, self.agent, self.generator, self.device = env, agent, generator, device
        self.guard = Guard(env)
        self.say: Callable[[str], None] = lambda line: None
        self.to_env = to_env(env.single_action_space)
        self.seconds = {"env": 0.0, "act": 0.0}
        self.steps = 0
        self.restart(seed)
        self.prev_action = no_action(env.single_action_space, env.num_envs).to(device)
        self.episode_draw = torch.zeros(env.num_envs, device=device)  # on [0, 1), for exploration by episodes
        self.state = agent.initial_state(env.num_envs)

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
        if self.guard.masks_ignored:
            self.guard.masks_ignored = False
            self.say(f"step {self.steps}: info holds action masks, which are not followed; e.g. env.action_masks=true")
        record, patience = SlotBuffer(tree_map(Tensor.clone, self.state)), Patience()
        episodes: list[Episode] = []
        finished = np.zeros(self.env.num_envs, bool)
        stream_age = np.zeros_like(self.age)  # slots since the rollout or the episode began
        began, dropped = self.steps, False
        with constant_weights(self.agent) if slots >= SEVERAL else nullcontext():
            while True:
                t, counted = len(record.slots), self.steps - began
                done = finished.all() if complete_episodes else t >= slots and counted > 0
                if done or counted >= budget or t == most_slots:
                    nothing, log_prob = np.zeros_like(self.start), torch.zeros(len(self.start), device=self.device)
                    no_reward = np.zeros_like(self.prev_reward)
                    record.slots.append(self._slot(self.prev_action, log_prob, no_reward, nothing, nothing))
                    return record.rollout(cut=complete_episodes and bool(dropped or not done)), episodes
                if state_slots is not None:
                    stream_age[self.start] = 0
                    age = self.age if state_slots.of == "episode" else stream_age
                    begins = (age > 0) & ((age + state_slots.shift) % state_slots.every == 0)
                    if begins.any():
                        here = to_device(np.flatnonzero(begins), self.device)
                        record.kept.append((t, here, tree_map(lambda leaf, here=here: leaf[here], self.state)))
                    stream_age += 1
                acting, remaining = ~self.final & ~finished, budget - counted
                acted = acting if remaining >= acting.size else acting & (np.cumsum(acting) <= remaining)
                dropped = acted is not acting and bool((acting != acted).any())
                episodes += self._step(record, acted, exploration)
                if complete_episodes and t + 1 >= slots:
                    finished |= self.final
                    if patience.is_due():
                        left, longest = np.count_nonzero(~finished), self.episode_length.max()
                        waiting = f"{left} complete episodes are waited for; the longest has {longest:,} steps so far"
                        self.say(f"step {self.steps}: {waiting}")

    @property
    def remark(self) -> str:
        """`Guard.remark` of the environments."""
        return self.guard.remark

    def restart(self, seed: int | None = None) -> None:
        """Reset every environment; running episodes are dropped."""
        N = self.env.num_envs
        self.obs = self.guard.reset(seed, self.steps)
        self.start = np.ones(N, bool)
        self.final = np.zeros(N, bool)  # this slot holds an episode's last observation
        self.prev_reward = np.zeros(N, np.float32)
        self.episode_return = np.zeros(N)
        self.episode_length = np.zeros(N, np.int64)
        self.age = np.zeros(N, np.int64)  # slots since the episode began

    def _slot(self, action: Tensor, log_prob: Tensor, reward: np.ndarray, terminated: np.ndarray, mask: Any) -> Slot:
        """The present slot with what happens in it."""
        slot = {"obs": self.obs, "prev_action": self.prev_action, "prev_reward": self.prev_reward, "start": self.start}
        slot.update(action=action, log_prob=log_prob, reward=reward, terminated=terminated, mask=mask)
        return slot

    def _step(self, record: SlotBuffer, acted: np.ndarray, exploration: Exploration) -> list[Episode]:
        """Act once in every environment, where `acted` [N] counts. Returns the episodes that ended."""
        here = lambda array: to_device(array, self.device)  # noqa: E731
        inputs = Inputs(each_leaf(here, self.obs), self.prev_action, here(self.prev_reward), here(self.start))
        began = perf_counter()
        if exploration.by_episode and self.generator is not None:
            exploration = exploration.drawn(self.episode_draw, self.start, self.generator)
            assert exploration.episode_draw is not None
            self.episode_draw = exploration.episode_draw
        action, log_prob, self.state = self.agent.act(inputs, self.state, self.generator, exploration)
        try:
            env_action = self.to_env(action.cpu().numpy())
        except Fault as fault:
            raise Fault(f"step {self.steps}: {fault}{self.remark and '; '}{self.remark}") from fault
        acting_done = perf_counter()
        following, reward, terminated, truncated, info = self.guard.step(
            env_action, self.final, self.steps, self.episode_length
        )
        self.seconds["act"] += acting_done - began
        self.seconds["env"] += perf_counter() - acting_done
        record.slots.append(self._slot(action, log_prob, reward, terminated, acted))
        np.add(self.episode_return, reward, out=self.episode_return, where=acted)
        self.episode_length += acted
        ended = terminated | truncated
        success, known = info.get("success"), info.get("_success", acted)
        episodes = [
            Episode(
                self.steps + int(acted[: i + 1].sum()),
                i,
                float(self.episode_return[i]),
                int(self.episode_length[i]),
                bool(terminated[i]),
                bool(truncated[i]),
                bool(success[i]) if success is not None and known[i] else None,
            )
            for i in np.flatnonzero(acted & ended).tolist()
        ]
        self.steps += int(acted.sum())
        self.episode_return[ended] = 0
        self.episode_length[ended] = 0
        self.start, self.final = self.final, ended & ~self.final
        self.age = np.where(self.start, 0, self.age + 1)
        self.obs, self.prev_action = following, action
        self.prev_reward = np.where(self.start, np.float32(0), reward)
        return episodes

    def state_dict(self) -> dict[str, Any]:
        """Everything that continues the streams exactly; the environment must offer `state()`."""
        return {
            **{name: each_leaf(lambda array: torch.from_numpy(array.copy()), getattr(self, name)) for name in ARRAYS},
            "prev_action": self.prev_action,
            "episode_draw": self.episode_draw,
            "state": self.state,
            "steps": self.steps,
            "generator": None if self.generator is None else self.generator.get_state(),
            "device": self.device.type,
            "env": tree_map_only(np.ndarray, torch.from_numpy, self.guard.call(self.env.state)),  # type: ignore[attr-defined]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned. Raises ValueError if it is of other environments or memories."""
        own = {name: each_leaf(torch.from_numpy, getattr(self, name)) for name in ARRAYS}
        for name, value in {**own, "prev_action": self.prev_action, "state": self.state}.items():
            _require_alike(value, state[name], name)
        for name in ARRAYS:
            setattr(self, name, each_leaf(lambda leaf: leaf.cpu().numpy().copy(), state[name]))
        self.prev_action = state["prev_action"].to(self.device)
        self.episode_draw = state["episode_draw"].to(self.device)
        self.state = tree_map(lambda s: s.to(self.device), state["state"])
        self.guard.steps = self.steps = state["steps"]
        if self.generator is not None and state["device"] == self.device.type:  # else not its kind of state
            self.generator.set_state(state["generator"].cpu())
        env_state = tree_map_only(Tensor, lambda leaf: leaf.cpu().numpy(), state["env"])
        unfit = (LookupError, TypeError, ValueError, AttributeError)  # of a state that another version wrote
        self.guard.call(lambda: self.env.restore(env_state), unfit)  # type: ignore[attr-defined]


def _require_alike(own: Any, saved: Any, name: str) -> None:
    """Raise ValueError unless the tensors that a checkpoint holds have the places, sizes and types of this run's `own`.

    A right checksum does not say that contents fit; what does not would fail much later, or not at all.
    """
    (ours, structure), (theirs, other) = tree_flatten(own), tree_flatten(saved)
    if structure != other:
        raise ValueError(f"{name} has other parts")
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
            stored_form = f"{tuple(b.shape)} of {b.dtype}" if isinstance(b, Tensor) else type(b).__name__
            raise ValueError(f"{name} is {stored_form}, not {tuple(a.shape)} of {a.dtype}")
