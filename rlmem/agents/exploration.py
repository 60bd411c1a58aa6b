"""How an agent explores: a value that the algorithm chooses and passes to acting."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Exploration:
    """How far an agent departs from its policy while it samples actions. A greedy agent ignores it.

    random: act uniformly at random, in the range of the policy's actions
    noise: how far a policy that is not random by itself departs from its best action: DQN's epsilon, or the standard
        deviation of TD3's noise
    by_episode: one draw decides for all actions of an episode, instead of one draw for each action
    episode_draw: the draws of the running episodes, [N] on [0, 1), which the collector fills in; None: draw each time
    """

    random: bool = False
    noise: float = 0.0
    by_episode: bool = False
    episode_draw: Tensor | None = None


ON_POLICY = Exploration()
"""Actions are sampled from the policy as it is."""
