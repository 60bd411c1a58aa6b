"""Recording whole episodes of a player."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem.acting.guard import Guard
from rlmem.agents.actor_critic import Agent, Exploration
from rlmem.algos.supervised.dataset.file import Recording
from rlmem.core.errors import Fault
from rlmem.core.spaces import no_action, to_env
from rlmem.core.types import Inputs

Player = Callable[[NDArray[Any], NDArray[np.float32], NDArray[np.bool_]], NDArray[Any]]
"""Maps observations [N, D], rewards [N] of the slots before, and episode starts [N] to actions [N]."""


def agent_player(
    agent: Agent, env: VectorEnv, seen: list[int], generator: torch.Generator | None, exploration: Exploration
) -> Player:
    """A player that acts as an agent, and keeps the state of its memory.

    env: the environments that it plays
    seen: indices of the numbers of an observation that it sees
    generator: draws its actions; None: it plays greedily
    exploration: how far it explores where actions are drawn
    """
    convert, state = to_env(env.single_action_space), agent.initial_state(env.num_envs)
    action = no_action(env.single_action_space, env.num_envs)

    def act(obs: NDArray[Any], reward: NDArray[np.float32], start: NDArray[np.bool_]) -> NDArray[Any]:
        nonlocal action, state
        shown = torch.from_numpy(np.ascontiguousarray(obs[:, seen]))
        before = torch.from_numpy(np.where(start, np.float32(0), reward))
        inputs = Inputs(shown, action, before, torch.from_numpy(start))
        action, _, state = agent.act(inputs, state, generator, exploration)
        return convert(action.numpy())

    return act


def uniform(space: Space, num_envs: int, rng: np.random.Generator) -> Player:
    """A player that draws its actions uniformly."""
    if isinstance(space, spaces.Discrete):
        return lambda *slot: space.start + rng.integers(space.n, size=num_envs)
    assert isinstance(space, spaces.Box)
    convert = to_env(space)
    return lambda *slot: convert(rng.uniform(-1, 1, (num_envs, *space.shape)))


def play(env: VectorEnv, player: Player, episodes: int, seed: int, max_steps: int | None = None) -> Recording:
    """Record whole episodes. Environments share them equally, so that short episodes are not more frequent.

    max_steps: longest episode, in steps; None: any length

    Raises Fault if an environment breaks its interface, or if an episode takes more than `max_steps` steps.
    """
    N, guard = env.num_envs, Guard(env)
    left = episodes // N + (np.arange(N) < episodes % N)
    lengths, steps = np.zeros(N, np.int64), 0
    obs = guard.reset(seed)
    start, final, reward = np.ones(N, bool), np.zeros(N, bool), np.zeros(N, np.float32)
    slots: list[tuple[NDArray[Any], ...]] = []
    while left.any():
        counted = ~final & (left > 0)
        action = player(obs, reward, start)
        following, reward, terminated, truncated, _ = guard.step(action, final, steps, lengths)
        ended = (terminated | truncated) & ~final
        slots.append((obs, action.reshape(N, -1), reward, terminated, truncated & ~terminated, counted))
        left -= counted & ended
        lengths, steps = np.where(ended | final, 0, lengths + 1), steps + int(counted.sum())
        if max_steps is not None and (endless := (lengths >= max_steps) & (left > 0)).any():
            fault = f"its episode has not ended after {max_steps:,} steps, and a data set holds whole ones"
            raise Fault(f"step {steps}: environment {endless.argmax()}: {fault}; e.g. an environment with a time limit")
        obs, start, final = following, final, ended
    *fields, counted = (np.stack(part, 1) for part in zip(*slots, strict=True))  # [N, T, ...]
    observations, actions, rewards, terminals, timeouts = (field[counted] for field in fields)
    return Recording(observations.astype(np.float32), actions.astype(np.float32), rewards, terminals, timeouts)
