"""Recordings that are no memory model: scores of many runs, and initial values."""

import re

import numpy as np
import pytest
import torch

from rlmem.evidence.metrics import reduced
from rlmem.evidence.statistics import iqm
from rlmem.memory.ffm import FFM


def assert_near(ours, truth, tolerance, what):
    np.testing.assert_allclose(ours.detach().numpy(), truth.numpy(), rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.recorded("metrics")
def test_scores_are_the_recorded_ones(recording):
    x = {name: array.numpy() for name, array in recording.arrays.items()}
    within = x["timesteps"] <= x["budget"]
    curves = x["episode_reward_mean"][..., within]
    points = [[list(zip(x["timesteps"][within], curve, strict=True)) for curve in trials] for trials in curves]
    runs = [[reduced("mmer", curve) for curve in trials] for trials in points]
    np.testing.assert_allclose(runs, x["mmer_run"], rtol=1e-12)
    np.testing.assert_allclose(iqm(x["iqm_scores"]), x["iqm"], rtol=1e-12)


@pytest.mark.recorded("init_tables")
def test_ffm_starts_with_the_recorded_decays_and_frequencies(recording):
    names = {n: re.fullmatch(r"ffm_([em])\.m(\d+)_c(\d+)_maxperiod(\d+)\.(a|b)", n) for n in recording.arrays}
    assert any(names.values())
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
