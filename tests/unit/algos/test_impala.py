"""IMPALA in one process: its loss is V-trace's, slot by slot, and runs resume exactly. With actors: test_actors."""

import math
from importlib import util

import pytest
import torch
from learnt import make_on_policy

from rlmem.algos.impala import Impala
from rlmem.batching import Segment, Tape
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.run.assemble import assemble


def setup(**hyperparameters):
    """IMPALA with a small agent, and what collects for it."""
    return make_on_policy(Impala, "gru", **{"rollout_slots": 60, "max_grad_norm": None} | hyperparameters)


def collect(algo, collector, batching, budget=10**9):
    return collector.collect(algo.rollout_slots, budget, state_slots=batching.state_slots(replay=False))[0]


def test_training_reads_what_acting_read():
    algo, collector = setup(optimiser="adam", eps=1e-8, lr=1e-3)
    for number in range(3):
        rollout = collect(algo, collector, Segment(5))
        metrics = algo.update(rollout, Segment(5), 0.0)
        assert metrics["impala/ratio_max_dev"] <= 1e-5 and metrics["impala/lag"] == 0, number
    again = algo.update(rollout, Segment(5), 0.0)
    assert again["impala/ratio_max_dev"] > 1e-4, "the weights have moved since"
    rollout.lag = 1
    assert "impala/ratio_max_dev" not in algo.update(rollout, Segment(5), 0.0)


@pytest.mark.parametrize("optimiser", ["rmsprop", "adam"])
def test_one_step_per_rollout_at_an_annealed_rate(optimiser):
    algo, collector = setup(optimiser=optimiser, lr=0.01, eps=1e-8, decay=0.99, max_grad_norm=1e-3)
    before = [p.detach().clone() for p in algo.agent.parameters()]
    rollout = collect(algo, collector, Tape())
    metrics = algo.update(rollout, Tape(), 0.75)
    assert metrics["impala/lr"] == pytest.approx(0.0025)
    assert metrics["impala/grad_norm"] > 1e-3, "the norm is the one before clipping"
    moved = max(
        float((new - old).abs().max().detach()) for new, old in zip(algo.agent.parameters(), before, strict=True)
    )
    first = 1 if optimiser == "adam" else 1 / math.sqrt(1 - 0.99)  # both divide the first gradient by its own size
    assert moved == pytest.approx(0.0025 * first, rel=1e-2)


def test_a_loss_that_is_not_finite_takes_no_step():
    algo, collector = setup()
    rollout = collect(algo, collector, Tape())
    rollout.streams.reward[0, 3] = torch.nan
    before = [p.detach().clone() for p in algo.agent.parameters()]
    with pytest.raises(FloatingPointError, match="no step was taken"):
        algo.update(rollout, Tape(), 0.0)
    algo.finite.on_nan = "skip"
    metrics = algo.update(rollout, Tape(), 0.0)
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(torch.equal(a, b) for a, b in zip(before, algo.agent.parameters(), strict=True))


def test_actors_without_ray_and_beside_other_learners_are_refused(monkeypatch):
    asked = load(["algo=impala", "algo.actors=2", "trainer.devices=2"])
    find_spec = util.find_spec
    monkeypatch.setattr("rlmem.acting.actors.find_spec", lambda name: None if name == "ray" else find_spec(name))
    with pytest.raises(UserError) as refusal:
        assemble(asked)
    ray, devices = refusal.value.problems
    assert ray == "algo.actors=2: needs Ray, which is not installed; e.g. pip install '.[ray]' in a clone of rlmem"
    assert "trainer.devices=2" in devices
