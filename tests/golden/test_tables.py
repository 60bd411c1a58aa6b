"""Recordings that are no memory model: linear recurrences, returns, scores of many runs, initial values.

A file of any folder (`--golden-memory DIR`) is checked by its kind, meta["model"]; without one, by its name.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from golden import FOLDER, Record, recordings
from torch.nn.functional import pad

from rlmem.core.errors import UserError
from rlmem.evidence.metrics import reduced
from rlmem.evidence.statistics import iqm
from rlmem.losses.on_policy import discounted_return, gae, lambda_return, prefix_return, vtrace
from rlmem.memory.ffm import FFM
from rlmem.scan import chosen_engine, linear_scan

KINDS = ("linrec", "returns", "metrics", "init_tables")
ENGINES = ("loop", "chunked", "native")


def kind_of(record: Record) -> str:
    named = next((kind for kind in KINDS if record.name.startswith(kind)), "")
    return record.meta.get("model", named)


def pytest_generate_tests(metafunc):
    for kind in set(KINDS) & set(metafunc.fixturenames):
        folders = [FOLDER, *map(Path, metafunc.config.getoption("golden_memory"))]
        records = [record for folder in folders for record in recordings(folder)]
        metafunc.parametrize(kind, [r for r in records if kind_of(r) == kind], ids=lambda r: r.name)


def assert_near(ours, truth, tolerance, what):
    np.testing.assert_allclose(ours.detach().numpy(), truth.numpy(), rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_linear_recurrence_is_the_recorded_one(linrec, engine, reverse):
    """In reverse, the recording is read from its end: the same numbers, slot for slot."""
    try:
        chosen_engine(engine)
    except UserError as error:
        pytest.skip(str(error))
    turned = lambda x: x.flip(1) if reverse else x  # noqa: E731
    inputs = {name: linrec.arrays[name].clone().requires_grad_() for name in ("w.a", "w.b", "state0")}
    a, b, h0 = inputs.values()
    h = linear_scan(turned(a), turned(b), h0, turned(linrec.arrays["start"]), engine, reverse)
    assert_near(turned(h), linrec.arrays["y"], 1e-11, "y")
    assert_near(turned(h)[:, -1], linrec.arrays["stateT"], 1e-11, "stateT")
    loss = (turned(h) * linrec.arrays["r"].conj()).sum()
    (loss.real if loss.is_complex() else loss).backward()
    for name, x in inputs.items():
        truth = linrec.arrays.get(f"g.{name.removeprefix('w.')}")
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


def test_returns_and_advantages_are_the_recorded_ones(returns):
    s, x = Slots(returns), returns.arrays
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


def test_scores_are_the_recorded_ones(metrics):
    x = {name: array.numpy() for name, array in metrics.arrays.items()}
    within = x["timesteps"] <= x["budget"]
    curves = x["episode_reward_mean"][..., within]
    points = [[list(zip(x["timesteps"][within], curve, strict=True)) for curve in trials] for trials in curves]
    runs = [[reduced("mmer", curve) for curve in trials] for trials in points]
    np.testing.assert_allclose(runs, x["mmer_run"], rtol=1e-12)
    np.testing.assert_allclose(iqm(x["iqm_scores"]), x["iqm"], rtol=1e-12)


def test_ffm_starts_with_the_recorded_decays_and_frequencies(init_tables):
    names = {n: re.fullmatch(r"ffm_([em])\.m(\d+)_c(\d+)_maxperiod(\d+)\.(a|b)", n) for n in init_tables.arrays}
    assert any(names.values())
    torch.set_default_dtype(torch.float64)
    try:
        for name, match in names.items():
            if match:
                version, m, c, max_period, symbol = match.groups()
                sizes = {"trace_size": int(m), "context_size": int(c), "max_period": int(max_period)}
                memory = FFM(3, **sizes, version={"e": "original", "m": "memoroid"}[version])
                assert_near(memory.symbols()[symbol], init_tables.arrays[name], 1e-12, name)
    finally:
        torch.set_default_dtype(torch.float32)
