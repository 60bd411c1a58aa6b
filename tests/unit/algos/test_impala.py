"""IMPALA in one process: its loss is V-trace's, slot by slot, and runs resume exactly. With actors: test_actors."""

import math
from importlib import util
from itertools import product

import pytest
import torch
from helpers import make_memory, make_trunks
from rlmem_envs import popgym

from rlmem.acting.collector import Collector
from rlmem.agents.trunk import Trunk
from rlmem.algos.impala import Impala
from rlmem.batching import Segment, Tape
from rlmem.config.compose import load
from rlmem.errors import UserError
from rlmem.losses.on_policy import discounted_return
from rlmem.nets.encoder import Encoder
from rlmem.run.assemble import assemble
from rlmem.seeding import Streams

SCHEMES = {"tape": Tape(), "detached": Tape(detach_every=4), "segment": Segment(None), "segment-5": Segment(5)}
BOUNDS = [{}, {"rho_bar": 0.8, "c_bar": 1.4, "trace_lambda": 0.6, "reduction": "mean"}, {"clip": 0.3}]
ENVS = {"discrete": "RepeatPrevious", "multidiscrete": "Battleship", "continuous": "PositionOnlyPendulum"}
FAST = {("discrete", "tape"), ("continuous", "detached"), ("multidiscrete", "segment"), ("discrete", "segment-5")}
CELLS = [pytest.param(*cell, marks=[] if cell in FAST else [pytest.mark.slow]) for cell in product(ENVS, SCHEMES)]
"""Every scheme and every kind of action once; the other pairs are slow."""


def setup(env="discrete", memory="gru", **hyperparameters):
    """IMPALA with a small agent, and what collects for it."""
    games, streams = popgym.make(ENVS[env], "easy", 5), Streams(0)
    algo = Impala(**({"rollout_slots": 60, "max_grad_norm": None} | hyperparameters))
    with streams.module_init("init"):

        def make_trunk():
            encoder = Encoder(games.single_observation_space, games.single_action_space, prev_reward=True)
            return Trunk(encoder, make_memory(memory, encoder.output_size, torch.get_default_dtype(), hidden_size=8))

        agent = algo.make_agent(make_trunks(make_trunk, algo.separate), games.single_action_space)
    algo.setup(agent, streams.torch("rows"))
    collector = Collector(games, agent, streams.int("env"), streams.torch("act"), torch.device("cpu"))
    return algo, collector


def collect(algo, collector, batching, budget=10**9):
    return collector.collect(algo.rollout_slots, budget, state_slots=batching.state_slots(replay=False))[0]


def loss_of(algo, rollout, batching):
    rows = batching.rows(rollout.streams)
    batch = rows.batch(rollout)
    return algo.loss(rollout.streams, rows, batch, *algo.agent.trunks.read(batch))


def loss_by_loops(algo, rollout):
    """IMPALA's loss as the paper writes it (eq. 1 and section 4.2), one slot after another."""
    batch = Tape().rows(rollout.streams).batch(rollout)
    parameters, value = algo.agent.unroll(batch)
    policy = algo.agent.policy.distribution(parameters)
    log_prob, entropy = policy.log_prob(batch.action), policy.entropy()
    before = log_prob.detach() if algo.clip is None else batch.behaviour["before"]
    ratio = torch.exp(before - batch.behaviour["log_prob"])
    v = value.detach()
    loss, count = 0.0, 0
    for b in range(v.shape[0]):
        vs_next, T = None, v.shape[1]
        for t in reversed(range(T)):
            if not batch.mask[b, t]:
                vs_next = v[b, t]
                continue
            rho, c = (min(bound, float(ratio[b, t])) for bound in (algo.rho_bar, algo.c_bar))
            goes_on = 0.0 if batch.terminated[b, t] else algo.gamma
            delta = rho * (batch.reward[b, t] + goes_on * v[b, t + 1] - v[b, t])
            vs = v[b, t] + delta + goes_on * algo.trace_lambda * c * (vs_next - v[b, t + 1])
            advantage = rho * (batch.reward[b, t] + goes_on * vs_next - v[b, t])
            if algo.clip is None:
                loss = loss - advantage * log_prob[b, t]
            else:
                u = torch.exp(log_prob[b, t] - before[b, t])
                loss = loss - min(u * advantage, u.clamp(1 - algo.clip, 1 + algo.clip) * advantage)
            loss = loss - algo.entropy_coef * entropy[b, t]
            loss = loss + algo.value_coef * (vs - value[b, t]) ** 2 / 2
            vs_next, count = vs, count + 1
    return loss if algo.reduction == "sum" else loss / count


def off_policy(rollout):
    """As if a policy had acted whose log-probabilities differ from those recorded, and a step had been taken since."""
    recorded = rollout.streams.behaviour["log_prob"].double()
    noise = torch.randn(2, *recorded.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rollout.streams.behaviour |= {"log_prob": recorded + 0.7 * noise[0], "before": recorded + 0.3 * noise[1]}
    return rollout


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_loss_off_policy_is_the_papers_slot_by_slot(float64, scheme, bounds):
    algo, collector = setup(gamma=0.8, entropy_coef=0.03, rollout_slots=120, **bounds)
    rollout = off_policy(collect(algo, collector, SCHEMES[scheme], budget=503))
    assert rollout.streams.start[:, 1:].any() and rollout.streams.terminated.any()
    loss, metrics = loss_of(algo, rollout, SCHEMES[scheme])
    torch.testing.assert_close(loss, loss_by_loops(algo, rollout), rtol=1e-6, atol=1e-9)  # rewards are float32
    assert 0.2 < metrics["rho_mean"] < 0.95


def test_without_lag_targets_are_n_step_returns_to_the_end_of_the_rollout(float64):
    algo, collector = setup(gamma=0.9)
    rollout = collect(algo, collector, Tape())
    streams, rows = rollout.streams, Tape().rows(rollout.streams)
    batch = rows.batch(rollout)
    parameters, value = algo.agent.unroll(batch)
    policy = algo.agent.policy.distribution(parameters)
    target = discounted_return(streams.reward.double(), streams.terminated, streams.mask, 0.9, value.detach())
    error = (target - value)[streams.mask]
    policy_loss = -(error.detach() * policy.log_prob(batch.action)[streams.mask]).mean()
    _, metrics = algo.loss(streams, rows, batch, *algo.agent.trunks.read(batch))
    torch.testing.assert_close(metrics["policy_loss"], policy_loss, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(metrics["value_loss"], error.square().mean() / 2, rtol=1e-6, atol=1e-9)
    assert metrics["ratio_max_dev"] < 1e-12 and metrics["rho_mean"] == pytest.approx(1)


@pytest.mark.parametrize(("env", "scheme"), CELLS)
def test_training_reads_what_acting_read(env, scheme):
    algo, collector = setup(env, "ffm", optimiser="adam", eps=1e-8, lr=1e-3)
    for number in range(3):
        rollout = collect(algo, collector, SCHEMES[scheme])
        metrics = algo.update(rollout, SCHEMES[scheme], 0.0)
        assert metrics["impala/ratio_max_dev"] <= 1e-5 and metrics["impala/lag"] == 0, number
    again = algo.update(rollout, SCHEMES[scheme], 0.0)
    assert again["impala/ratio_max_dev"] > 1e-4, "the weights have moved since"
    rollout.lag = 1
    assert "impala/ratio_max_dev" not in algo.update(rollout, SCHEMES[scheme], 0.0)


def test_a_sum_is_the_mean_times_the_slots_that_count():
    algo, collector = setup()
    rollout = collect(algo, collector, Tape(), budget=250)
    total, _ = loss_of(algo, rollout, Tape())
    algo.reduction = "mean"
    mean, _ = loss_of(algo, rollout, Tape())
    assert float(total.detach()) == pytest.approx(250 * float(mean.detach()))


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


def test_epochs_are_steps_on_one_rollout_that_v_trace_corrects():
    weights, metrics = [], []
    for epochs in (3, 1):
        algo, collector = setup(epochs=epochs, lr=0.01, eps=1e-3)
        rollout = collect(algo, collector, Tape())
        metrics.append([algo.update(rollout, Tape(), 0.0) for _ in range(3 // epochs)])
        weights.append([p.detach().clone() for p in algo.agent.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    (together,), single = metrics
    assert single[0]["impala/rho_mean"] == pytest.approx(1) and single[2]["impala/rho_mean"] < 1
    for name in ("policy_loss", "value_loss", "rho_mean", "grad_norm"):
        assert together[f"impala/{name}"] == pytest.approx(sum(m[f"impala/{name}"] for m in single) / 3, rel=1e-5)
    assert together["impala/ratio_max_dev"] == single[0]["impala/ratio_max_dev"] <= 1e-5


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
    monkeypatch.setattr("rlmem.acting.cluster.find_spec", lambda name: None if name == "ray" else find_spec(name))
    with pytest.raises(UserError) as refusal:
        assemble(asked)
    ray, devices = refusal.value.problems
    assert ray == "algo.actors=2: needs Ray, which is not installed; e.g. pip install '.[ray]' in a clone of rlmem"
    assert "trainer.devices=2" in devices
