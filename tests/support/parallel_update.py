"""One update from a rollout, by one process or by two that hold a part of it each; see test_distributed.py.

`python parallel_update.py FOLDER RANK` is one of the two: it writes FOLDER/RANK.pt, {case: (weights, metrics)}.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from helpers import make_memory, make_trunks
from rlmem_envs import popgym

from rlmem.acting.collector import Collector
from rlmem.agents.encoder import Encoder
from rlmem.agents.trunk import Trunk
from rlmem.algos.impala import Impala
from rlmem.algos.ppo import PPO
from rlmem.batching import Rollout, Segment, Tape
from rlmem.core.parallel import Place, joined
from rlmem.core.seeding import Streams
from rlmem.core.types import Batch
from rlmem.loops.parts import observe

CPU = torch.device("cpu")
MINE = 2
"""Environments of the first process; the second one has the other four."""

ONE_PART = {"num_minibatches": 1, "epochs": 2}
CASES = {
    "ppo, tape": (PPO, Tape(), ONE_PART),
    "ppo, segments": (PPO, Segment(5), ONE_PART | {"kl_coef": 0.2, "kl_target": 1e-9, "max_grad_norm": 0.01}),
    "ppo, moments of the whole": (PPO, Segment(), ONE_PART | {"normalize_advantage": "batch"}),
    "impala, tape": (Impala, Tape(), {"reduction": "sum"}),
    "impala, segments": (Impala, Segment(5), {"reduction": "mean", "optimiser": "adam"}),
    "nothing left for the first": (PPO, Segment(5), ONE_PART),
    "normalised observations": (PPO, Tape(), ONE_PART),
}
"""Where one process makes the same steps."""

PARTS = {"ppo, parts": (PPO, Segment(5), {"num_minibatches": 40, "epochs": 2})}
"""Where it does not, since every process shuffles its own rows: at most as many parts as the first one has rows."""


def prepared(case: str):
    """Algorithm, batching and rollout of a case, the same in every process; streams end at different slots."""
    kind, batching, how = (CASES | PARTS)[case]
    normalised = case.startswith("normalised")
    env = popgym.make("PositionOnlyCartPole" if normalised else "CountRecall", "easy", 6)
    streams = Streams(0)
    algo = kind(rollout_slots=30, lr=0.01, **how)
    with streams.module_init("init"):

        def make_trunk() -> Trunk:
            spaces = env.single_observation_space, env.single_action_space
            encoder = Encoder(*spaces, prev_reward=True, normalise_obs=normalised)
            return Trunk(encoder, make_memory("ffm", encoder.output_size))

        agent = algo.make_agent(make_trunks(make_trunk, algo.separate), env.single_action_space).double()
    algo.setup(agent, streams.torch("rows"))
    collector = Collector(env, agent, streams.int("env"), streams.torch("act"), CPU)
    rollout = collector.collect(30, 10**9, state_slots=batching.state_slots(replay=False))[0]
    rollout.streams = rollout.streams.map(lambda x: x.double() if x.is_floating_point() else x)
    for env_index, end in enumerate([0, 0] if case.startswith("nothing") else [7, 12, 30, 21]):
        rollout.streams.mask[env_index, end:] = False
    return algo, batching, rollout


def share(rollout: Rollout, rank: int) -> Rollout:
    """The part of a process; of a process in which nothing acted, the bootstrap slot alone."""
    N = len(rollout.streams.mask)
    rows = torch.arange(N)[:MINE] if rank == 0 else torch.arange(N)[MINE:]
    streams = rollout.streams.rows(rows)
    if not streams.mask.any():
        state0 = streams.state0
        streams = Batch(**{**vars(streams.map(lambda x: x[:, :1])), "state0": state0})
    if rollout.state_index is None:
        return Rollout(streams)
    index = rollout.state_index[rows]
    return Rollout(streams, rollout.states, torch.where(index >= N, index - N + len(rows), 0))


def updated(case: str, rank: int | None = None):
    """(weights, metrics) after one update from the whole rollout, or from the part of a process."""
    algo, batching, rollout = prepared(case)
    rollout = rollout if rank is None else share(rollout, rank)
    metrics = algo.update(rollout, batching, 0.5)
    observe(rollout.streams, algo.agent)
    return algo.agent.state_dict(), metrics


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    with joined(Place(rank, 2, rank), CPU, dist.FileStore(str(folder / "store"), 2)):
        torch.save({case: updated(case, rank) for case in CASES | PARTS}, folder / f"{rank}.pt")
