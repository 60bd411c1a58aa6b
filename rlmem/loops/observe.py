"""What training adds to the statistics by which agents normalise observations."""

import torch

from rlmem.agents.actor_critic import Network
from rlmem.types import Batch, processes


@torch.no_grad()
def observe(streams: Batch, *networks: Network) -> None:
    """Add the observations of a rollout, those of all processes, to the running statistics of `networks`.

    Called between rollouts, never between acting on a slot and learning from it on-policy. Networks without such
    statistics stay as they are. The first observation of every episode counts, and the one that follows each counted
    action: n + 1 for an episode of n actions, wherever rollouts cut it, since a bootstrap slot's observation counts
    here and not as slot 0 of the next rollout.

    streams: the streams [N, T+1] of a rollout
    networks: an agent, and its target network if there is one; all have seen the same observations so far
    """
    norms = [norm for network in networks for norm in network.normalisers()]
    if not norms:
        return
    seen = streams.mask & streams.start
    seen[:, 1:] |= streams.mask[:, :-1]
    weight = seen.double()[..., None]  # weights: selecting would make CUDA wait
    summed = processes().summed
    count = summed(weight.sum())
    for leaf in dict.fromkeys(norm.leaf for norm in norms):
        obs = (streams.obs if leaf is None else streams.obs[leaf]).double()
        mean = summed((weight * obs).sum((0, 1))) / count.clamp(min=1)
        variance = summed((weight * (obs - mean).square()).sum((0, 1))) / count.clamp(min=1)
        for norm in norms:
            if norm.leaf == leaf:
                norm.add(count, mean, variance)
