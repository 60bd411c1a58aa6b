"""Twin Delayed DDPG over memory agents."""

from dataclasses import dataclass
from typing import Literal

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.agents.actor_critic import Exploration
from rlmem.agents.off_policy import DeterministicAgent
from rlmem.agents.trunk import Trunks
from rlmem.algos.off_policy import Metrics, Slots
from rlmem.algos.sac import OffPolicyActorCritic, frozen
from rlmem.core.types import Batch, NonNegativeFloat, PositiveInt


@dataclass(kw_only=True)
class TD3(OffPolicyActorCritic):
    """Twin Delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477): clipped double Q-learning with smoothed targets.

        v_t = min_i Q_i'(s_t, pi'(s_t) + clip(noise)),   actor's loss = -Q_1(s_t, pi(s_t))

    target_every: updates between moves of the target network
    policy_delay: updates of the critic per update of the actor; the paper takes it to be equal to `target_every`.
        Memory-RL and POMDP-Baselines delay neither: 1 and 1
    actor_objective: first: maximise Q_1; min: the lesser of the twins (Lu et al. 2024, arXiv:2405.17358, code)
    action_l2: weight of the squared action in the actor's loss (Andrychowicz et al. 2017, arXiv:1707.01495, app. A);
        it keeps the policy from saturating on a critic that does not yet tell actions apart
    exploration_noise: standard deviation of the noise of acting, for actions in [-1, 1]
    target_noise: standard deviation of the noise of the target's actions
    target_noise_clip: bound of the noise of the target's actions
    """

    target_every: PositiveInt = 2
    policy_delay: PositiveInt = 2
    actor_objective: Literal["first", "min"] = "first"
    action_l2: NonNegativeFloat = 0.01
    exploration_noise: NonNegativeFloat = 0.1
    target_noise: NonNegativeFloat = 0.2
    target_noise_clip: NonNegativeFloat = 0.5

    action_spaces = (spaces.Box,)

    def make_agent(self, trunks: Trunks, action_space: Space) -> DeterministicAgent:
        return DeterministicAgent(trunks, action_space, self.head_layers)

    def explore(self, steps: int, total_steps: int) -> Exploration:
        return Exploration(random=steps < self.random_steps, noise=self.exploration_noise)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        slots = Slots(batch)
        actor, critic = self.agent.trunks.features(batch)
        seen = self.seen(actor, critic, slots)
        target = self.returns(batch, slots, self._value(batch, slots))
        loss, metrics, td_error = self.critic_loss(self.agent.q(seen.critic, slots.of(batch.action)), target, slots)
        if (self.updates + 1) % self.policy_delay == 0:  # counting this update, as `target_every` does
            action = self.agent.policy(seen.policy)
            with frozen(self.q_parameters):
                q = self.agent.q(seen.judge, action)
            objective = q[0] if self.actor_objective == "first" else q.amin(0)
            actor_loss = slots.mean(self.action_l2 * action.square().sum(-1) - objective)
            metrics["actor_loss"] = actor_loss.detach()
            loss = loss + actor_loss
        return loss, metrics, td_error

    @torch.no_grad()
    def _value(self, batch: Batch, slots: Slots) -> Tensor:
        """v [n] of the slots behind the acted ones, by the target network."""
        actor, critic = (features.at(slots.after) for features in self.target.trunks.features(batch))
        action = self.target.policy(actor)
        draws = action.new_empty(batch.reward.numel(), self.agent.action_size).normal_(generator=self.generator)
        noise = (self.target_noise * draws[slots.after]).clamp(-self.target_noise_clip, self.target_noise_clip)
        return self.target.q(critic, (action + noise).clamp(-1, 1)).amin(0)
