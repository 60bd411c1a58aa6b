"""bsuite's memory chains: the rules slot by slot, and the package itself on the same bits."""

import numpy as np
import pytest
from rlmem_envs.diagnostics.memory_chain import MemoryChain


def test_bits_are_shown_twice_and_one_is_asked_for_at_the_end():
    env = MemoryChain(2, memory_length=3, num_bits=2)
    obs, _ = env.reset(seed=0, options={"hidden": {"bits": [[0, 1], [1, 1]], "query": [1, 0]}})
    seen, pay = [obs], []
    for _ in range(4):
        obs, reward, terminated, _, _ = env.step(np.array([1, 0]))
        seen.append(obs)
        pay.append(reward.tolist())
    third = 2 / 3
    expected = [[1, 0, -1, 1], [1, 0, -1, 1], [third, 0, 0, 0], [1 / 3, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(np.array(seen)[:, 0], expected, rtol=1e-6)
    assert np.array(seen)[3, 1, 1] == 0 and terminated.all()
    assert pay == [[0, 0], [0, 0], [0, 0], [1, -1]]


@pytest.mark.parametrize(("length", "bits"), [(1, 1), (2, 1), (7, 1), (2, 5), (2, 10), (30, 3)])
def test_the_package_plays_the_same(length, bits):
    chain = pytest.importorskip(
        "bsuite.environments.memory_chain", reason="bsuite is not installed: pip install bsuite"
    )
    theirs, rng = chain.MemoryChain(length, bits, seed=1), np.random.default_rng(0)
    for _ in range(20):
        first = theirs.reset()
        hidden = {"bits": theirs._context[None], "query": [theirs._query]}
        env = MemoryChain(1, memory_length=length, num_bits=bits)
        obs, _ = env.reset(seed=0, options={"hidden": hidden})
        np.testing.assert_array_equal(obs, first.observation)
        over = False
        while not over:
            action = int(rng.integers(2))
            step = theirs.step(action)
            obs, reward, terminated, _, _ = env.step(np.array([action]))
            over = bool(terminated[0])
            np.testing.assert_allclose(obs, step.observation, rtol=1e-6)
            assert (reward[0], over) == (step.reward, step.last())
