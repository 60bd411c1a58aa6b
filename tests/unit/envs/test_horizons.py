"""Correlation horizons: those that tasks declare are what their oracles need, and runs say what their rows hold."""

import numpy as np
import pytest
from rlmem_envs.core.known import Demand
from rlmem_envs.languages.tables import TABLES
from rlmem_envs.registration import TASKS, make, task_class

from rlmem.config.compose import load
from rlmem.run.env_table import rows
from rlmem.run.train import plan

CASES = {
    "RepeatFirst": {},
    "RepeatPrevious": {"k": 5},
    "Autoencode": {"num_cards": 12},
    "CountRecall": {"deck_type": "suits"},
    "HigherLower": {},
    "TwoStepCue": {"delay": 7},
    "MemoryChain": {"memory_length": 9, "num_bits": 2},
    "RegularLanguage": {"n": 9, "length": "fixed"},
    "TMaze": {"corridor_length": 9},
    "Copy": {"items": 3, "delay": 4, "rewrites": 2},
    "NBack": {"items": 2, "delay": 3, "rewrites": 4},
    "AssociativeRecall": {"items": 3, "delay": 2, "rewrites": 2},
    "Counting": {"items": 2, "delay": 3, "rewrites": 1, "most": 2},
    "MemoryDemand": {"items": 3, "delay": 2, "rewrites": 5},
    "EndlessTMaze": {"corridor_length": 6, "num_corridors": 3},
    "ColorCubes": {"size": 4, "num_cubes": 1, "num_targets": 1, "teleport": 0.0},
}
"""Every task that declares horizons, at a size at which a few hundred episodes meet all of them."""

ALSO = {
    "RegularLanguage": [
        {"language": name, "n": 9, "length": "fixed", "answer": answer}
        for name in TABLES
        for answer in ("end", "every")
    ],
    "TMaze": [{"corridor_length": 5, "oracle_length": 3}],
    "AssociativeRecall": [{"items": 1, "rewrites": 3, "delay": 2}],
    "MemoryDemand": [{"lags": [0, 2, 7], "rewrites": 4}],
}
PAIRS = 600
FIRST = "env=repeat_first"


DEMANDS = {task: CASES[task] for task in ("RepeatFirst", "RepeatPrevious", "TwoStepCue")}
DEMANDS["MemoryDemand"] = ALSO["MemoryDemand"][0]


def with_one_change(task, facts, rng):
    """Facts with one number changed for every environment, or two swapped where that alone keeps a fact possible."""
    other = {name: array.copy() for name, array in facts.items()}
    names = [name for name, fact in facts.items() if fact[0].size > (name in ("order", "queries"))]
    for i in range(PAIRS):
        name = names[rng.integers(len(names))]
        fact = other[name][i : i + 1].reshape(-1)  # a view
        if task == "HigherLower" or name in ("order", "queries", "places"):
            size = other[name].shape[-1]
            row = size * rng.integers(fact.size // size)
            pair = [0, size - 1] if rng.uniform() < 0.3 else rng.choice(size, 2, replace=False)
            fact[row + np.array(pair)] = fact[row + np.array(pair[::-1])]
        elif name == "cells":  # of the first cube
            fact[0] = rng.choice(np.setdiff1d(np.arange(16), fact))
        else:
            fact[0 if rng.uniform() < 0.1 else rng.integers(fact.size)] = rng.choice(np.unique(facts[name]))
    return other


def ages(task, given):
    """How far back the one observation lies in which two episodes differ, wherever their oracles act differently.

    Both take the first oracle's actions, so that nothing but what was hidden makes them differ.
    """
    one, other, rng = make(task, PAIRS, **given), make(task, PAIRS, **given), np.random.default_rng(1)
    one.reset(seed=1)
    facts = one._draw(one._all)
    a = one.reset(seed=1, options={"hidden": facts})[0]
    b = other.reset(seed=1, options={"hidden": with_one_change(task, facts, rng)})[0]
    apart, again, over = np.full(PAIRS, -1), np.zeros(PAIRS, bool), np.zeros(PAIRS, bool)
    found, t, repeats = [], 0, task == "MemoryChain"  # shows its bits in two slots
    while not over.all():
        differ = (a != b).reshape(PAIRS, -1).any(1) & ~over
        again |= differ & (apart >= 0) & (not repeats)
        apart = np.where(differ & ((apart < 0) | repeats), t, apart)
        actions, others = one.oracle(), other.oracle()
        asked = one.asked() if hasattr(one, "asked") else np.ones(PAIRS, bool)
        use = (actions != others) & asked & (apart >= 0) & ~again & ~over
        found += (t - apart[use]).tolist()
        a, _, end, cut, _ = one.step(actions)
        b, _, *ends = other.step(actions)
        over |= end | cut | ends[0] | ends[1]
        t += 1
    return [age for age in found if age > 0]


@pytest.mark.parametrize(
    ("task", "given"), [*CASES.items(), *((task, given) for task, more in ALSO.items() for given in more)]
)
def test_what_is_declared_is_what_the_oracle_needs(task, given):
    found, declared = ages(task, given), make(task, 1, **given).horizons()
    assert (min(found), max(found)) == declared


def recalls(env) -> bool:
    return env.horizons() not in (None, (0, 0))


def test_every_task_that_declares_horizons_is_tested():
    declaring = {task for task in TASKS if any(recalls(make(task, 1, level)) for level in task_class(task).levels)}
    assert declaring == set(CASES)
    assert {row.name: row.recall for row in rows() if row.name in ("tmaze_passive", "repeat_first", "battleship")} == {
        "tmaze_passive": "50",
        "repeat_first": "1-830",  # of its last level
        "battleship": "-",
    }


def test_a_time_limit_bounds_what_can_be_recalled():
    assert make("RepeatFirst", 1, max_episode_steps=10).horizons() == (1, 9)
    nothing = (0, 0)
    assert make("TwoStepCue", 1, delay=16, max_episode_steps=10).horizons() == nothing
    assert make("RepeatPrevious", 1, k=1).horizons() == nothing
    assert make("RepeatPrevious", 1, observe="full").horizons() == nothing
    assert [make("Pendulum", 1, observe=o).horizons() for o in ("full", "position")] == [nothing, None]
    for steps, expected in ((8, nothing), (9, (1, 8))):  # the first question is in slot 8
        assert make("MemoryDemand", 1, lags=[1, 8], max_episode_steps=steps).horizons() == expected
    for steps, expected in ((8, nothing), (9, (1, 8))):
        parity = make("RegularLanguage", 1, n=9, length="fixed", max_episode_steps=steps)
        assert parity.horizons() == expected
    assert make("TMaze", 1, corridor_length=5, oracle_length=3, max_episode_steps=11).horizons() == nothing


def test_who_does_not_know_where_a_corridor_ends_tries_its_turn_in_every_place():
    """A cue is as old as that takes, up to 2 L - 1 slots."""
    env, ages = make("EndlessTMaze", 100, corridor_length=4, num_corridors=3, lengths="uniform"), set()
    obs, age, cue, tried = env.reset(seed=0)[0], np.zeros(100, int), np.zeros(100, int), np.zeros(100, bool)
    for _ in range(60):
        new = obs[:, 1:].any(1)
        age, cue, tried = np.where(new, 0, age), np.where(new, 1 + obs[:, 2], cue).astype(int), tried | new
        action = np.where(tried, 0, cue)
        obs, reward, *_ = env.step(action)
        ages |= {*age[reward == 1].tolist()}
        assert (reward > -1).all()
        tried, age = action > 0, age + 1
    assert (min(ages), max(ages)) == env.horizons() == (1, 7)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["algo.rollout_slots=16"],
            "every recall lies within 3 slots, and a row holds 16: short-term memory is enough",
        ),
        (["algo.rollout_slots=3"], "recalls lie 3 slots back, and a row holds 3"),
        ([FIRST, "batching=segment", "batching.length=8"], "recalls lie 1 to 50 slots back, and a row holds 8"),
        (["batching.detach_every=2"], "recalls lie 3 slots back, and a row holds 2"),
        (["algo=dqn", "batching=segment", "batching.length=8"], "and a row holds 8: short-term memory is enough"),
        (["algo=classify", "env=copy", "algo.truncation=20"], "recalls lie 20 slots back, and a row holds 20"),
        (
            ["algo=classify", "env=copy", "algo.truncation=24", "env.evaluation={delay:30}"],
            "recalls lie 20 to 34 slots back, and a row holds 24",
        ),
        (["env=repeat_first", "env.observe=full"], None),
        (["env=memory_len", "wrapper=frame_stack"], None),
        (["env=battleship"], None),
    ],
)
def test_a_run_says_what_its_rows_hold(options, said):
    lines = plan(load(["total_steps=5000", "memory.hidden_size=8", *options])).splitlines()
    told = [line.removeprefix("  recall    ") for line in lines if line.startswith("  recall ")]
    assert told == [] if said is None else len(told) == 1 and told[0].endswith(said)


@pytest.mark.parametrize("task", DEMANDS)
def test_demand_and_horizons_agree(task):
    """Of the game, cut short, and as its twin, of which nothing is demanded."""
    whole = make(task, 1, **DEMANDS[task]).demand()
    for most in (None, 3, 5, 8, 10_000):
        env = make(task, 1, max_episode_steps=most, **DEMANDS[task])
        told = env.demand()
        assert len(told) == min(len(whole), most or len(whole))
        assert np.array_equal(told, whole[: len(told), : len(told)])
        t, i = np.nonzero(told)
        back = (t - i)[t > i]
        assert env.horizons() == ((back.min(), back.max()) if len(back) else (0, 0)), most
    twin = make(task, 1, observe="full", **DEMANDS[task])
    assert twin.demand() is None and twin.horizons() == (0, 0)


def test_a_demand_from_before_the_episode_is_an_error():
    with pytest.raises(AssertionError, match="before the episode"):
        Demand(slot=np.arange(4), back=np.array([2])).matrix(4)
