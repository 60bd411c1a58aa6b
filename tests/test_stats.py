"""Scores of many runs, by hand."""

import numpy as np
import pytest

from rlmem.stats import iqm, iqm_per_task, mmer, normalised, summary


def test_mmer_is_the_largest_value_within_the_budget():
    curves = [[-1.0, 0.5, 0.2, 0.9], [np.nan, -0.5, -0.7, 0.0]]
    assert mmer(curves).tolist() == [0.9, 0.0]
    assert mmer(curves, timesteps=[10, 20, 30, 40], budget=30).tolist() == [0.5, -0.5]
    with pytest.raises(ValueError, match="no iteration within the budget of 5 steps"):
        mmer(curves, timesteps=[10, 20, 30, 40], budget=5)
    with pytest.raises(ValueError, match="needs the timesteps"):
        mmer(curves, budget=30)


def test_environments_count_the_same_and_the_spread_is_over_trials():
    scores = summary([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    assert scores.env.tolist() == [1.0, 0.0]
    assert scores.model == 0.5
    assert scores.trial.tolist() == [0.0, 0.5, 1.0]
    assert scores.trial_std == pytest.approx(0.5)
    assert np.isnan(summary([[1.0], [2.0]]).trial_std)
    assert normalised([-1, 0, 1]).tolist() == [0.0, 0.5, 1.0]


def test_the_interquartile_mean_drops_a_quarter_on_each_side():
    scores = np.array([[100.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, -100.0], [4.0, 7.0]])
    assert iqm_per_task(scores).tolist() == [3.0, 2.0]
    assert iqm(scores) == pytest.approx((1 + 2 + 2 + 3 + 3 + 4) / 6)
