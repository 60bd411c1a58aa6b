"""Recordings that are no memory model: linear recurrences, returns, scores of many runs, and initial values."""

import re

import numpy as np
import pytest
import torch
from golden import Record
from torch.nn.functional import pad

from rlmem.evidence.metrics import reduced
from rlmem.evidence.statistics import iqm
from rlmem.losses.on_policy import discounted_return, gae, lambda_return, prefix_return, vtrace
from rlmem.memory.ffm import FFM
from rlmem.scan import linear_scan


def assert_near(ours, truth, tolerance, what):
    np.testing.assert_allclose(ours.detach().numpy(), truth.numpy(), rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("engine", ["loop", "chunked", "native"])
@pytest.mark.recorded("linrec")
def test_a_linear_recurrence_is_the_recorded_one(recording, engine, reverse):
    """In reverse, the recording is read from its end: the same numbers, slot for slot."""
    turned = lambda x: x.flip(1) if reverse else x  # noqa: E731
    inputs = {name: recording.arrays[name].clone().requires_grad_() for name in ("w.a", "w.b", "state0")}
    a, b, h0 = inputs.values()
    h = linear_scan(turned(a), turned(b), h0, turned(recording.arrays["start"]), engine, reverse)
    assert_near(turned(h), recording.arrays["y"], 1e-11, "y")
    assert_near(turned(h)[:, -1], recording.arrays["stateT"], 1e-11, "stateT")
    loss = (turned(h) * recording.arrays["r"].conj()).sum()
    (loss.real if loss.is_complex() else loss).backward()
    for name, x in inputs.items():
        truth = recording.arrays.get(f"g.{name.removeprefix('w.')}")
        if truth is not None:
            assert_near(x.grad / truth.abs().max(), truth / truth.abs().max(), 1e-10, f"g.{name}")


class Slots:
    """Transitions with a next value each, laid out by the slot rule: every cut adds a slot that holds that value."""

    def __init__(self, record: Record):
        x = record.arrays
        B, T = x["reward"].shape
        cut = x["terminated"] | x["truncated"]
        cut[:, -1] = True
        before = pad(cut.long().cumsum(1)[:, :-1], (1, 0))  # slots added before each transition
        self.slot = torch.arange(T) + before
        length = T + int(cut.sum(1).max())
        empty = torch.zeros(B, length, dtype=torch.float64)
        self.reward, self.value, self.log_ratio = (
            empty.scatter(1, self.slot, x[name]) for name in ("reward", "value", "log_ratio")
        )
        flags = torch.zeros(B, length, dtype=torch.bool)
        self.mask = flags.scatter(1, self.slot, True)
        self.terminated = flags.scatter(1, self.slot, x["terminated"])
        self.start = flags.scatter(1, self.slot, x["start"])
        row, t = cut.nonzero(as_tuple=True)
        self.value[row, self.slot[row, t] + 1] = x["next_value"][row, t]
        self.reward[~self.mask] = torch.nan  # must have no effect
        self.log_ratio[~self.mask] = torch.nan

    def per_transition(self, x):
        return x.gather(1, self.slot)


@pytest.mark.recorded("returns")
def test_returns_and_advantages_are_the_recorded_ones(recording):
    s, x = Slots(recording), recording.arrays
    gamma, lam, rho_bar, c_bar = (float(x[name]) for name in ("gamma", "lam", "rho_bar", "c_bar"))
    vs, advantage = vtrace(s.log_ratio, s.reward, s.value, s.terminated, s.mask, gamma, lam, rho_bar, c_bar)
    ours = {
        "return_nobootstrap": discounted_return(s.reward, s.terminated, s.mask, gamma),
        "return_bootstrap": discounted_return(s.reward, s.terminated, s.mask, gamma, s.value),
        "gae": gae(s.reward, s.value, s.terminated, s.mask, gamma, lam),
        "lambda_return": lambda_return(s.reward, s.value, s.terminated, s.mask, gamma, lam),
        "vtrace_vs": vs,
        "vtrace_pg_adv": advantage,
        "prefix_return": prefix_return(s.reward, s.start, gamma),
    }
    for name, value in ours.items():
        assert_near(s.per_transition(value), x[name], 1e-12, name)


@pytest.mark.recorded("metrics")
def test_scores_are_the_recorded_ones(recording):
    x = {name: array.numpy() for name, array in recording.arrays.items()}
    within = x["timesteps"] <= x["budget"]
    curves = x["episode_reward_mean"][..., within]
    points = [[list(zip(x["timesteps"][within], curve, strict=True)) for curve in trials] for trials in curves]
    runs = [[reduced("mmer", curve) for curve in trials] for trials in points]
    np.testing.assert_allclose(runs, x["mmer_run"], rtol=1e-12)
    np.testing.assert_allclose(iqm(x["iqm_scores"]), x["iqm"], rtol=1e-12)


@pytest.mark.recorded("init_tables", has="ffm_")
def test_ffm_starts_with_the_recorded_decays_and_frequencies(recording):
    names = {n: re.fullmatch(r"ffm_([em])\.m(\d+)_c(\d+)_maxperiod(\d+)\.(a|b)", n) for n in recording.arrays}
    torch.set_default_dtype(torch.float64)
    try:
        for name, match in names.items():
            if match:
                version, m, c, max_period, symbol = match.groups()
                sizes = {"trace_size": int(m), "context_size": int(c), "max_period": int(max_period)}
                memory = FFM(3, **sizes, version={"e": "original", "m": "memoroid"}[version])
                assert_near(memory.symbols()[symbol], recording.arrays[name], 1e-12, name)
    finally:
        torch.set_default_dtype(torch.float32)
