"""A real Gymnasium environment whose every number is known in advance."""

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces


class Scripted(gym.Env):
    """Episodes of given lengths in turn; obs is [episode, step], the reward of step s is s + 1 (+ the action / 10).

    A negative length ends by truncation, a positive one by termination.
    """

    def __init__(self, lengths=(3, -2), first=0):
        self.lengths, self.episode = lengths, first - 1
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.step_number = 0
        return self._obs(), {}

    def step(self, action):
        length = self.lengths[self.episode % len(self.lengths)]
        assert self.step_number < abs(length), "stepped past the end"
        self.step_number += 1
        ended = self.step_number == abs(length)
        return self._obs(), self.step_number + action / 10, ended and length > 0, ended and length < 0, {}

    def _obs(self):
        return np.array([self.episode, self.step_number], np.float32)


class Counter:
    """An agent whose action is known: its state counts the slots read since the last start, modulo 4."""

    def initial_state(self, n):
        return torch.zeros(n, 1)

    def act(self, inputs, state, generator, exploration):
        count = torch.where(inputs.start[:, None], 0, state) + 1
        action = count[:, 0].long() % 4
        return action, -count[:, 0], count
