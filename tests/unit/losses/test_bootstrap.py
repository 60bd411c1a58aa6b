"""What values bootstrap from at the ends of episodes, with a memory: two mistakes that were made elsewhere.

pytorch/rl#3771: behind a truncation, values were those of the first observation after the reset, and the recurrent
network read on from there. pytorch/rl#4209: V-trace's advantage at a truncation took the target of the next episode.
Each is made here on purpose, as a mutant of the data or of the estimator. It must be told from the truth, which is
every episode by itself, and ours must equal the truth.
"""

from dataclasses import replace
from operator import itemgetter

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from helpers import make_memory, make_trunks
from scripted import Scripted

from rlmem.acting.collector import Collector
from rlmem.agents.trunk import Trunk
from rlmem.algos.impala import Impala
from rlmem.algos.ppo import PPO
from rlmem.batching import Segment, Tape
from rlmem.losses.off_policy import n_step_return
from rlmem.losses.on_policy import gae, lambda_return, vtrace
from rlmem.nets.encoder import Encoder

GAMMA, LAMBDA, N, RHO_BAR, C_BAR = 0.9, 0.8, 3, 0.9, 1.1
ESTIMATES = ("gae", "n_step", "lambda", "vtrace_target", "vtrace_advantage")


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def estimates(log_ratio, reward, value, terminated, mask, gamma=GAMMA):
    """Ours, of rows [B, T]."""
    given = reward, value, terminated, mask, gamma
    target, advantage = vtrace(log_ratio, *given, LAMBDA, RHO_BAR, C_BAR)
    found = gae(*given, LAMBDA), n_step_return(*given, N), lambda_return(*given, LAMBDA), target, advantage
    return dict(zip(ESTIMATES, found, strict=True))


def by_sums(log_ratio, reward, value, terminated):
    """The truth of one episode by itself: n actions, and the values of its n + 1 observations."""
    n, v = len(reward), np.append(value[:-1], 0 if terminated else value[-1])
    rho, c = (np.minimum(bound, np.exp(log_ratio)) for bound in (RHO_BAR, C_BAR))
    delta = reward + GAMMA * v[1:] - v[:-1]
    found = np.zeros((len(ESTIMATES), n))
    for t in range(n):
        advantage = sum((GAMMA * LAMBDA) ** (k - t) * delta[k] for k in range(t, n))
        last = min(t + N, n)
        n_step = sum(GAMMA ** (k - t) * reward[k] for k in range(t, last)) + GAMMA ** (last - t) * v[last]
        found[:3, t] = advantage, n_step, advantage + v[t]
    vs = np.array([
        v[t] + sum((GAMMA * LAMBDA) ** (k - t) * np.prod(c[t:k]) * rho[k] * delta[k] for k in range(t, n))
        for t in range(n)
    ])  # fmt: skip
    found[3] = vs
    found[4] = rho * (reward + GAMMA * np.append(vs[1:], v[-1]) - v[:-1])
    return dict(zip(ESTIMATES, found, strict=True))


class Case:
    """A rollout of two environments with episodes of all kinds, read by a critic with a GRU."""

    def __init__(self, algo=None, batching=None, late=False):
        self.late = late
        env = SyncVectorEnv([lambda: Scripted((-2, 3, -4)), lambda: Scripted((-5, -1, 2))])
        torch.manual_seed(0)

        def make_trunk():
            encoder = Encoder(env.single_observation_space, env.single_action_space, hidden_size=8)
            return Trunk(encoder, make_memory("gru", encoder.output_size, torch.float64, hidden_size=8))

        self.algo = algo or Impala(gamma=GAMMA)
        self.agent = self.algo.make_agent(make_trunks(make_trunk, self.algo.separate), env.single_action_space)
        for weight in self.agent.parameters():  # values of different observations differ much
            weight.data = torch.randn_like(weight) / weight.shape[-1] ** 0.5
        collector = Collector(env, self.agent, 0, torch.Generator().manual_seed(0), torch.device("cpu"))
        slots = batching and batching.state_slots(replay=False)
        self.rollout, _ = collector.collect(40, 10**9, state_slots=slots)
        self.streams = self.rollout.streams
        self.log_ratio = 0.5 * torch.randn(self.streams.shape, generator=torch.Generator().manual_seed(1))
        self.reward = self.streams.reward.double()
        self.value = self.read(self.streams)

    def read(self, batch):
        return self.agent.unroll(replace(batch, state0=None))[1].detach()

    def ours(self, value=None, columns=slice(None)):
        parts = self.log_ratio, self.reward, self.value if value is None else value
        parts = *parts, self.streams.terminated, self.streams.mask
        return estimates(*(part[:, columns] for part in parts))

    def episodes(self):
        """Row, first slot and slot behind the last action of every episode, or piece of one at the rollout's end."""
        start, mask = self.streams.start.numpy(), self.streams.mask.numpy()
        for row in range(len(start)):
            for first in np.flatnonzero(start[row]):
                n = int(np.argmin(mask[row, first:]))
                if n:
                    yield row, first, first + n

    def truth(self):
        """Every episode read and estimated by itself, [B, T]; NaN where nothing acted."""
        found = {name: np.full(self.streams.shape, np.nan) for name in ESTIMATES}
        for row, first, last in self.episodes():
            here = slice(row, row + 1), slice(first, last + 1)
            value = self.read(self.streams.map(itemgetter(here)))[0].numpy()
            ended = bool(self.streams.terminated[row, last - 1])
            log_ratio, reward = self.log_ratio[row, first:last].numpy(), self.reward[row, first:last].numpy()
            for name, values in by_sums(log_ratio, reward, value, ended).items():
                found[name][row, first:last] = values
        return found

    def truncated(self):
        """[B, T], the slots whose action was an episode's last one, though it was not terminated."""
        found = np.zeros(self.streams.shape, bool)
        for row, _, last in self.episodes():
            found[row, last - 1] = not self.streams.terminated[row, last - 1] and last < found.shape[1] - 1
        return found


@pytest.fixture(scope="module")
def case():
    torch.set_default_dtype(torch.float64)
    return Case()


def test_with_a_memory_every_estimate_is_that_of_its_episode_alone(case):
    assert case.truncated().sum() > 10 and case.streams.terminated.sum() > 5
    truth, ours, acted = case.truth(), case.ours(), case.streams.mask.numpy()
    for name in ESTIMATES:
        np.testing.assert_allclose(ours[name].numpy()[acted], truth[name][acted], rtol=1e-9, atol=1e-9, err_msg=name)


def differs(case, mutant, name):
    """How far an estimate of a mutant is from the truth at truncations: the least and the greatest distance."""
    found = np.abs(mutant[name].numpy() - case.truth()[name])[case.truncated()]
    return found.min(), found.max()


@pytest.mark.parametrize("name", ESTIMATES)
def test_pytorch_rl_3771_the_successor_of_a_truncated_slot_is_not_the_next_episodes_first_observation(case, name):
    """The mutant: behind a truncation, the value of the observation after the reset."""
    behind = np.roll(case.truncated(), 1, axis=1)  # the slots of final observations, after which an episode starts
    assert case.streams.start[:, 1:][torch.from_numpy(behind[:, :-1])].all()
    value = case.value.clone()
    value[behind] = case.value.roll(-1, 1)[behind]
    least, _ = differs(case, case.ours(value), name)
    assert least > 1e-3, "the mutant is told from the truth at every truncation"
    assert differs(case, case.ours(), name)[1] < 1e-9


@pytest.mark.parametrize("name", ESTIMATES)
def test_pytorch_rl_3771_the_memory_does_not_read_on_across_a_truncation(case, name):
    """The mutant: one unroll without the starts, so that the state of an episode reaches the values of the next."""
    never = torch.zeros_like(case.streams.start)
    never[:, 0] = True
    value = case.read(replace(case.streams, start=never))
    later = case.streams.mask & (case.streams.start.cumsum(1) > 1)
    wrong = (case.ours(value)[name] - torch.from_numpy(case.truth()[name]))[later].abs()
    right = (case.ours()[name] - torch.from_numpy(case.truth()[name]))[later].abs()
    assert wrong.max() > 1e-2 and right.max() < 1e-9


@pytest.mark.parametrize("name", ESTIMATES)
def test_pytorch_rl_4209_no_estimate_leaks_into_the_next_episode(case, name):
    """The mutant: rows of transitions alone, in which the slot after an episode's last action is the next episode's."""
    for row in range(2):
        acted = case.streams.mask[row].clone()
        acted[-1] = True  # the bootstrap slot stays
        columns = np.flatnonzero(acted.numpy())
        leaked = case.ours(columns=columns)[name][row].numpy()
        at = case.truncated()[row][columns]
        truth = case.truth()[name][row][columns]
        assert np.abs(leaked - truth)[at].min() > 1e-3


def leaking_vtrace(reward, value, successor, terminated, done, gamma):
    """The advantage of V-trace on policy as it was reported: its targets shifted by one, whatever has ended. [T]"""
    vs = value.clone()
    correction = torch.zeros(())
    for t in reversed(range(len(reward))):
        goes_on = gamma * (1 - terminated[t])
        correction = reward[t] + goes_on * successor[t] - value[t] + gamma * (1 - done[t]) * correction
        vs[t] = value[t] + correction
    shifted = torch.cat([vs[1:], successor[-1:]])
    return reward + gamma * (1 - terminated) * shifted - value


def test_pytorch_rl_4209_with_its_own_numbers():
    """Two episodes of two steps, the first one truncated; values 1 and 100, no reward, no discount."""
    zeros, value = torch.zeros(4), torch.tensor([1.0, 1, 100, 100])
    done = torch.tensor([0.0, 1, 0, 0])
    wrong = leaking_vtrace(zeros, value, value, zeros, done, 1.0)
    assert wrong.tolist() == [0, 99, 0, 0]
    value = torch.tensor([[1.0, 1, 1, 100, 100, 100]])  # in slots: each episode, and the observation behind it
    mask = torch.tensor([[True, True, False, True, True, False]])
    never, zeros = torch.zeros_like(mask), torch.zeros_like(value)
    for name, found in estimates(zeros, zeros, value, never, mask, gamma=1.0).items():
        expected = zeros if name in ("gae", "vtrace_advantage") else value
        assert torch.equal(found[mask], expected[mask]), name


def advantages(case, batching):
    """How far those that PPO reads out of its rollout are from the truth."""
    case.algo.setup(case.agent, torch.Generator())
    expected = torch.from_numpy(np.nan_to_num(case.truth()["gae"]))
    if case.late:
        case.streams.start = case.streams.start.roll(1, 1)
        case.streams.start[:, 0] = True
    rows = batching.rows(case.streams)
    batch = rows.batch(case.rollout)
    case.algo.evaluate_rollout(case.streams, rows, batch)
    return float((batch.behaviour["advantage"] - rows.gather(expected))[batch.mask].abs().max())


@pytest.mark.parametrize("batching", [Tape(), Segment(None), Segment(3)], ids=["tape", "episodes", "segments"])
def test_ppo_learns_from_the_advantages_of_episodes_by_themselves(batching):
    """The same through PPO's own reading of a rollout, in every scheme. The mutant: starts that are one slot late."""
    ppo = PPO(gamma=GAMMA, gae_lambda=LAMBDA, reward_scale=1.0, normalize_advantage="none")
    assert advantages(Case(ppo, batching), batching) < 1e-5, "rewards are float32"
    assert isinstance(batching, Segment) or advantages(Case(ppo, batching, late=True), batching) > 1e-2
