"""What networks read of replayed slots, of which targets are made, is what they read in the environments' own records.

The oracle shares nothing with what it checks but the networks' one-slot `Trunk.step`: it looks up which slot of which
recorded episode a batch shows, and walks there from the beginning of the episode or of the row, slot by slot.
test_one_update.py holds targets to their sums over such features.
"""

from copy import deepcopy
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from helpers import fast_only
from replayed import LENGTHS, disturb, generator, live, make_algo

from rlmem.batching import Segment, Tape
from rlmem.core.types import Inputs


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


def features_of(trunk, acting, batching, piece):
    """Of the slots of a piece, {slot: [1, F]}; acting: the trunk as it was while acting."""
    init_state = getattr(batching, "init_state", "zero")
    burn_in = getattr(batching, "burn_in", 0)
    begin = 0 if init_state == "recompute" else max(piece.first - burn_in, 0)
    state = trunk.initial_state(1)
    if init_state == "stored":
        _, state = walk(acting, acting.initial_state(1), piece.episode, range(begin))
    features, _ = walk(trunk, state, piece.episode, range(begin, piece.last + 1))
    return {slot: feature for slot, feature in features.items() if slot >= piece.first}


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
MEMORIES = ("gru", "gpt", "lru", "ffm", "mlstm", "stack")
FAST = [*product(("gru",), ("tape", "stored", "burn-in")), *product(("gpt", "lru"), ("tape",))]


@pytest.mark.parametrize(("memory", "scheme"), fast_only(FAST, product(MEMORIES, SCHEMES)))
@torch.no_grad()
def test_features_are_those_of_walking_through_the_records(memory, scheme):
    batching, algo = SCHEMES[scheme], make_algo("sac", memory, torch.float64)
    replay, envs = live(algo, LENGTHS, batching)
    acted = deepcopy(algo.agent)
    disturb(algo.agent, 7)
    batch = replay.sample(batching, 58, generator(6)).batch
    pieces, seen = pieces_of(batch, envs), torch.zeros_like(batch.mask)
    for which, found in zip(("actor", "critic"), algo.agent.trunks.read(batch), strict=True):
        for piece in pieces:
            trunks = (getattr(agent.trunks, which) for agent in (algo.agent, acted))
            for slot, feature in features_of(*trunks, batching, piece).items():
                at = piece.row, piece.column + slot - piece.first
                torch.testing.assert_close(found[at], feature[0], rtol=0, atol=1e-6)
                seen[at] = True
    assert (batch.mask <= seen).all()
    if isinstance(batching, Segment) and batching.length:
        assert any(piece.first for piece in pieces), "no row begins inside an episode"
