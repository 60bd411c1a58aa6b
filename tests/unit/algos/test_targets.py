"""Targets of the off-policy algorithms against an oracle that steps through the environments' own records.

The oracle shares nothing with what it checks but the networks' one-slot `Trunk.step` and the heads: it looks up which
slot of which recorded episode a batch shows, walks there from the beginning of the episode or of the row, slot by
slot, and adds up rewards in a loop.
"""

from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
import torch
from replayed import disturb, generator, live, make_algo
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from rlmem.batching import Segment, Tape
from rlmem.core.types import Inputs

LENGTHS = [[7, -5, 11, -9], [-6, 3, 10]]
"""Of the episodes in two environments; a negative one ends by truncation."""
DOUBLE, BATCH = torch.float64, 58


@dataclass
class Piece:
    """Consecutive slots first ... last of one recorded episode, in slots column ... of a row; `last` gives a value."""

    row: int
    column: int
    episode: object
    first: int
    last: int


def pieces_of(batch, envs):
    """What a batch shows, found by its observations."""
    lived = [episode for env in envs for episode in env.episodes]
    where = {obs.tobytes(): (episode, slot) for episode in lived for slot, obs in enumerate(episode.obs)}
    found = []
    for row in range(batch.shape[0]):
        before = None
        for column in range(batch.shape[1]):
            shown = batch.obs[row, column].numpy().astype(np.float32)
            if not shown.any():  # padding
                break
            episode, slot = where[shown.tobytes()]
            if before is not None and before.episode is episode and slot == before.last + 1:
                before.last = slot
            else:
                before = Piece(row, column, episode, slot, slot)
                found.append(before)
    return found


def slot_inputs(episode, slot):
    """A recorded slot as an agent reads it, [1, ...]."""
    action = torch.from_numpy(episode.action[max(slot - 1, 0)])[None]
    reward = torch.tensor([episode.reward[slot - 1] if slot else 0.0])
    return Inputs(torch.from_numpy(episode.obs[slot])[None], action, reward, torch.tensor([slot == 0]))


def walk(trunk, state, episode, slots):
    """Features after each of these slots, and the state behind them."""
    features = {}
    for slot in slots:
        features[slot], state = trunk.step(slot_inputs(episode, slot), state)
    return features, state


@dataclass
class Oracle:
    """algo: as it is;  acted: its agent as it was while acting;  batching: how `batch` was drawn;  noise: of actions"""

    algo: object
    acted: object
    batching: object
    batch: object
    envs: list
    noise: torch.Tensor

    def features(self, agent, which, piece):
        """Of the slots of a piece, {slot: [1, F]}, as a network reads them; which: actor or critic."""
        trunk = getattr(agent.trunks, which)
        init_state = getattr(self.batching, "init_state", "zero")
        burn_in = getattr(self.batching, "burn_in", 0)
        begin = 0 if init_state == "recompute" else max(piece.first - burn_in, 0)
        state = trunk.initial_state(1)
        if init_state == "stored":
            acting = getattr(self.acted.trunks, which)
            _, state = walk(acting, acting.initial_state(1), piece.episode, range(begin))
        features, _ = walk(trunk, state, piece.episode, range(begin, piece.last + 1))
        return {slot: feature for slot, feature in features.items() if slot >= piece.first}

    def value(self, piece):
        """v of the slots of a piece."""
        value = getattr(self, f"value_{self.algo.name}")(piece)
        return {slot: v.item() for slot, v in value.items()}

    def value_dqn(self, piece):
        algo, trunks = self.algo, {}
        for name, agent in (("online", algo.agent), ("target", algo.target)):
            if algo.target_memory == "fresh_next_obs":
                trunk = agent.trunks.critic
                slots = range(piece.first + 1, piece.last + 1)
                trunks[name], _ = walk(trunk, trunk.initial_state(1), piece.episode, slots)
            else:
                trunks[name] = self.features(agent, "critic", piece)
        value = {}
        for slot, feature in trunks["target"].items():
            q = algo.target.q(feature)[0]
            value[slot] = q[algo.agent.q(trunks["online"][slot])[0].argmax()] if algo.double else q.max()
        return value

    def value_sac(self, piece):
        algo = self.algo
        alpha = algo.agent.log_temperature.exp().item()
        actor = self.features(algo.agent, "actor", piece)
        judge = self.features(algo.target if algo.target_memory == "own" else algo.agent, "critic", piece)
        value = {}
        for slot, feature in actor.items():
            mean, log_std = algo.agent.policy.out(algo.agent.policy.trunk(feature)).chunk(2, -1)
            policy = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform())
            action = torch.tanh(mean + log_std.exp() * self.noise[piece.row, piece.column + slot - piece.first])
            log_prob = policy.log_prob(action).sum()
            q = [head(torch.cat([judge[slot], action], -1)) for head in algo.target.q.heads]
            value[slot] = min(q) - alpha * log_prob
        return value

    @cached_property
    def values(self):
        """(piece, v of its slots) of everything that the batch shows."""
        return [(piece, self.value(piece)) for piece in pieces_of(self.batch, self.envs)]

    def targets(self):
        """{(row, column): y} of the slots that count, and how many targets ended in which way."""
        n, gamma = self.algo.n_step, self.algo.gamma
        found, ends = {}, Counter()
        for piece, value in self.values:
            episode, length = piece.episode, len(piece.episode.action)
            for slot in range(piece.first, piece.last):
                at, target, end = slot, 0.0, None
                while end is None:
                    target += gamma ** (at - slot) * episode.reward[at]
                    at += 1
                    if at == length and episode.terminated:
                        end = "terminated"
                    elif at in (piece.last, slot + n):
                        target += gamma ** (at - slot) * value[at]
                        end = "truncated" if at == length else "cut" if at < slot + n else "n rewards"
                ends[end] += 1
                found[piece.row, piece.column + slot - piece.first] = target
        return found, ends


def targets_of(algo, batch, seed):
    """The targets that `algo` learns from, [B, T]; zero where the agent did not act."""
    seen, returns = [], algo.returns
    algo.returns = lambda *given: seen.append(returns(*given)) or seen[-1]
    algo.generator = generator(seed)
    algo.loss(batch)
    algo.returns = returns
    return seen[0].new_zeros(batch.shape).masked_scatter(batch.mask, seen[0])


SCHEMES = {
    "tape": Tape(),
    "tapes": Tape(rows=3),
    "episodes": Segment(),
    "zero": Segment(4, init_state="zero"),
    "stored": Segment(4),
    "recompute": Segment(3, init_state="recompute"),
    "burn-in": Segment(3, burn_in=2, overlap=1),
    "burn-in-zero": Segment(4, burn_in=5, init_state="zero"),
}
SHARED_ONLINE = (("separate", False), ("target_memory", "online"))
CASES = [
    ("dqn", ()),
    ("dqn", (("double", False), ("dueling", False))),
    ("dqn", (("target_memory", "fresh_next_obs"), ("shortcut_size", 4))),
    ("sac", ()),
    ("sac", SHARED_ONLINE),
]
"""An algorithm, and settings other than its defaults."""


def named(value):
    return value if isinstance(value, str) else "-".join(f"{key}={setting}" for key, setting in value)


@cache
@torch.no_grad()
def drawn(name, form, scheme, memory="gru"):
    """An algorithm, a batch of what it lived with the parameters that it had then, and the oracle of that batch."""
    batching = SCHEMES[scheme]
    algo = make_algo(name, memory, DOUBLE, **dict(form))
    replay, envs = live(algo, LENGTHS, batching)
    acted = deepcopy(algo.agent)
    disturb(algo.agent, 7)
    batch = replay.sample(batching, BATCH, generator(6)).batch
    noise = torch.empty(*batch.shape, 2, dtype=DOUBLE).normal_(generator=generator(6))
    return algo, batch, Oracle(algo, acted, batching, batch, envs, noise)


@torch.no_grad()
def worst(algo, batch, expected):
    """The largest difference from the oracle's targets."""
    target = targets_of(algo, batch, 6)
    return max(abs(target[at].item() - y) for at, y in expected.items())


def some(schemes: Iterable[str]) -> list[Any]:
    """Cases under `schemes`: the usual DQN under each, the others under one of them in turn; the rest is slow."""
    schemes = list(schemes)
    return [
        pytest.param(*case, scheme, marks=[] if k == 0 or schemes[k % len(schemes)] == scheme else [pytest.mark.slow])
        for k, case in enumerate(CASES)
        for scheme in schemes
    ]


@pytest.mark.parametrize(("name", "form", "scheme"), some(SCHEMES), ids=named)
def test_targets_are_those_of_an_oracle_that_steps_through_the_records(name, form, scheme):
    algo, batch, oracle = drawn(name, form, scheme)
    met = Counter()
    for algo.n_step in (1, 3, 5):
        expected, ends = oracle.targets()
        met += ends
        assert sorted(expected) == [tuple(at) for at in batch.mask.nonzero().tolist()]
        assert worst(algo, batch, expected) < 1e-6, f"n_step={algo.n_step}"
    kinds = {"n rewards", "terminated", "truncated"} | (set() if scheme == "episodes" else {"cut"})
    assert kinds <= met.keys(), f"a batch in which too little happens: {met}"
    if isinstance(oracle.batching, Segment) and oracle.batching.length:
        assert any(piece.first for piece, _ in oracle.values), "no row begins inside an episode"


@pytest.mark.parametrize(
    "memory", ["gpt", "lru", *(pytest.param(m, marks=pytest.mark.slow) for m in ("ffm", "mlstm", "stack"))]
)
@pytest.mark.parametrize("scheme", ["tape", "burn-in"])
def test_targets_of_other_memories(memory, scheme):
    algo, batch, oracle = drawn("dqn", (), scheme, memory)
    for algo.n_step in (1, 3):
        assert worst(algo, batch, oracle.targets()[0]) < 1e-6
