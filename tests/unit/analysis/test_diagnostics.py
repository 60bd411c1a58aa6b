"""Analyses of memory on hand-made memories whose numbers are derived on paper, here in comments."""

from importlib.util import find_spec
from math import ceil, exp, log, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers import make_memory
from rlmem_envs.diagnostics.two_step_cue import TwoStepCue
from rlmem_envs.dials.memory_demand import MemoryDemand
from rlmem_envs.popgym.repeat_first import RepeatFirst
from rlmem_envs.popgym.repeat_previous import RepeatPrevious

from rlmem.agents.actor_critic import ActorCritic
from rlmem.agents.encoder import Plain
from rlmem.agents.layers import HeadLayers
from rlmem.agents.off_policy import QAgent
from rlmem.agents.trunk import Trunk, Trunks
from rlmem.analysis import contamination, demand, markov, multistability, output, probe
from rlmem.analysis import recall as recall_module
from rlmem.analysis.features import opinions, total
from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.core.errors import UserError
from rlmem.core.types import Batch
from rlmem.memory.base import Memory, RecurrentCell

pytestmark = pytest.mark.skipif(not find_spec("sklearn"), reason="needs scikit-learn")

TWO = spaces.Discrete(2)


class ShiftRegister(RecurrentCell):
    """y_t = [x_t, x_{t-1}, ..., x_{t-k+1}], zeros before the episode."""

    def __init__(self, input_size, k):
        super().__init__(input_size, k * input_size)
        self.k = k

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, self.k, self.input_size)

    def cell(self, x, state):
        state = torch.cat([x[:, None], state[:, :-1]], 1)
        return state.flatten(1), state


class LeakyAverage(RecurrentCell):
    """h_t = a h_{t-1} + (1 - a) x_t,  y = h."""

    def __init__(self, input_size, a):
        super().__init__(input_size, input_size)
        self.a = a

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, self.input_size)

    def cell(self, x, state):
        h = self.a * state + (1 - self.a) * x
        return h, h


class FlipFlop(LeakyAverage):
    """h_t = x_t if x_t != 0, else h_{t-1}; y = h."""

    def cell(self, x, state):
        h = torch.where(x != 0, x, state)
        return h, h


class Bistable(LeakyAverage):
    """h_t = tanh(a h_{t-1} + x_t), y = h."""

    def cell(self, x, state):
        h = torch.tanh(self.a * state + x)
        return h, h


class Rotation(LeakyAverage):
    """h_t = a e^{0.7 i} h_{t-1} + x_t, y = Re h."""

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, self.input_size, dtype=torch.complex64)

    def cell(self, x, state):
        h = self.a * np.exp(0.7j) * state + x
        return h.real, h


class Products(LeakyAverage):
    """y_t = [x_t, x_t x_{t-1}]: the past is there, but a linear probe cannot read it."""

    def __init__(self, input_size):
        Memory.__init__(self, input_size, 2 * input_size)

    def cell(self, x, state):
        return torch.cat([x, x * state], 1), x


class Foresight(Memory):
    """y_t = x_{t+1}: no memory at all, and none that could act."""

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, 1)

    def forward(self, x, state, start):
        return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1), state


def played(obs, action=None) -> Episodes:
    """Episodes of the same length from observations [N, n + 1, F]."""
    obs = torch.as_tensor(obs, dtype=torch.float32)
    N, S = obs.shape[:2]
    nothing = torch.zeros(N, S)
    start, mask = torch.zeros(N, S, dtype=torch.bool), torch.ones(N, S, dtype=torch.bool)
    start[:, 0], mask[:, -1] = True, False
    action = torch.zeros(N, S, dtype=torch.long) if action is None else action
    batch = Batch(obs, action, nothing, start, action, nothing, ~mask & False, mask, None)
    return Episodes(batch, mask.sum(1))


def reader(memory, *weights, features=1) -> QAgent:
    """An agent whose Q of each action is the product of the memory's output with a row of `weights`."""
    box = spaces.Box(-np.inf, np.inf, (features,), np.float32)
    agent = QAgent(Trunks(Trunk(Plain(box, TWO), memory)), spaces.Discrete(len(weights)), HeadLayers(()))
    with torch.no_grad():
        agent.q.out.weight.copy_(torch.tensor(weights, dtype=torch.float32))
        agent.q.out.bias.zero_()
    return agent


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ---- recall


def recalled(agent, obs, space=TWO):
    return recall_module.recall(agent, played(obs), space)


def test_the_density_of_a_shift_register_is_the_share_of_its_weights():
    """Q_1 + Q_2 weighs x_n with 1 + 0 and x_{n-2} with 1 + 2: a quarter and three quarters."""
    agent = reader(ShiftRegister(1, 4), [1, 0, 1, 0], [0, 0, 2, 0])
    found = recalled(agent, noise(5, 9, 1))
    assert found.mean == pytest.approx([0.25, 0, 0.75, 0, 0, 0, 0, 0])
    numbers = recall_module.numbers(found)
    spread = exp(-0.25 * log(0.25) - 0.75 * log(0.75))
    assert numbers == pytest.approx(
        {"before_last": 0.75, "mean_age": 1.5, "peak_age": 2, "effective_slots": spread, "future": 0}
    )


def test_the_density_of_a_leaky_average_decays_as_it_does():
    """d h_n / d x_{n-k} = (1 - a) a^k, whose sum over the n slots is 1 - a^n."""
    a, n = 0.8, 12
    found = recalled(reader(LeakyAverage(1, a), [1.0], [0.5]), noise(3, n + 1, 1))
    assert found.mean == pytest.approx((1 - a) * a ** np.arange(n) / (1 - a**n))


def test_a_memory_that_reads_the_future_is_found_out():
    found = recalled(reader(Foresight(1, 1), [1.0], [1.0]), noise(4, 7, 1))
    assert recall_module.numbers(found)["future"] == 1
    assert found.by_age.max() == 0


def test_distances_of_densities():
    one, other = (recall_module.Recall(np.array([row]), np.zeros(1)) for row in ([0.5, 0.5, 0.0], [0.5, 0.0]))
    assert recall_module.distance(one, one) == 0
    assert recall_module.distance(one, other) == pytest.approx(0.25)


def test_without_q_what_decides_the_action_is_what_is_recalled():
    """Logits l_0 = x_n + 3 x_{n-1} and l_1 = x_n: the margin |l_0 - l_1| / 2 knows x_{n-1} alone."""
    box = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    agent = ActorCritic(Trunks(Trunk(Plain(box, TWO), ShiftRegister(1, 3))), TWO, HeadLayers(()))
    with torch.no_grad():
        agent.policy.out.weight.copy_(torch.tensor([[1.0, 3, 0], [1, 0, 0]]))
        agent.policy.out.bias.zero_()
    obs = noise(4, 6, 1)
    assert recalled(agent, obs).mean == pytest.approx([0, 1, 0, 0, 0])
    batch, before = played(obs).batch, torch.cat([torch.zeros(4, 1, 1), obs[:, :-1]], 1)
    assert torch.allclose(total(agent, batch, TWO), 1.5 * before[..., 0].abs(), atol=1e-6)
    assert torch.allclose(opinions(agent, batch, TWO)[..., 0], torch.sigmoid(3 * before[..., 0]), atol=1e-6)


# ---- contamination


def contaminated(agent, obs, frames=1, sigma=1.0):
    return contamination.changes(agent, played(obs), TWO, frames, sigma, seed=3)


@pytest.mark.parametrize("a", [0.8, 0.55, 0.97])
def test_contamination_of_a_leaky_average_has_its_half_life(a):
    """The change is (1 - a) a^k |w noise|; it stays at or below a half from k = log 0.5 / log a on."""
    found = contaminated(reader(LeakyAverage(1, a), [1.0], [-2.0]), noise(6, 41, 1))
    assert found.value / found.value[0] == pytest.approx(a ** np.arange(40), rel=1e-3, abs=1e-6)
    assert contamination.half_life(found.value) == (ceil(log(0.5) / log(a)), True)
    assert found.before == 0


def test_contamination_of_a_shift_register_comes_when_the_frame_is_read():
    """Q = (x_{t-3}, 0), and x = 1: noise of N(0, 1) flips the action at age 3 alone, if it is below -1."""
    N = 4000
    found = contaminated(reader(ShiftRegister(1, 5), [0, 0, 0, 1, 0], [0] * 5), torch.ones(N, 9, 1))
    chance = 0.5 * (1 + float(torch.erf(torch.tensor(-1 / sqrt(2)))))
    assert np.flatnonzero(found.value).tolist() == np.flatnonzero(found.action).tolist() == [3]
    assert found.action[3] == pytest.approx(chance, abs=4 * sqrt(chance * (1 - chance) / N))
    assert found.value[3] == pytest.approx(sqrt(2 / np.pi), abs=4 * sqrt((1 - 2 / np.pi) / N))
    numbers = contamination.numbers(found, continuous=False)
    assert (numbers["half_life"], numbers["half_life_reached"], numbers["flips_at_0"]) == (4, 1, 0)
    assert numbers["flips_later"] == pytest.approx(found.action[3] / 7)


def test_contamination_of_a_continuous_action_is_the_change_of_what_is_done():
    """The action is w h with w = 3: noise e changes it after k slots by 3 (1 - a) a^k |e|, with E|e| = sqrt(2 / pi)."""
    a, N, n, box = 0.8, 2000, 9, spaces.Box(-np.inf, np.inf, (1,), np.float32)
    agent = ActorCritic(Trunks(Trunk(Plain(box, box), LeakyAverage(1, a))), box, HeadLayers(()))
    with torch.no_grad():
        agent.policy.out.weight.fill_(3.0)
    found = contamination.changes(agent, played(noise(N, n + 1, 1), torch.zeros(N, n + 1, 1)), box, 1, 1.0, seed=3)
    at_0, error = 3 * (1 - a) * sqrt(2 / np.pi), 3 * (1 - a) * sqrt((1 - 2 / np.pi) / N)
    assert found.action[0] == pytest.approx(at_0, abs=4 * error)
    assert found.action / found.action[0] == pytest.approx(a ** np.arange(n), rel=1e-3)
    assert found.value == pytest.approx(found.action)
    numbers = contamination.numbers(found, continuous=True)
    later = (a - a**n) / (1 - a) / (n - 1)  # the mean of a^k over the ages 1 ... n - 1
    assert numbers["action_change_later"] == pytest.approx(numbers["action_change_at_0"] * later, rel=1e-3)
    assert (numbers["half_life"], numbers["change_before"]) == (ceil(log(0.5) / log(a)), 0)


def test_a_flip_flop_never_recovers():
    """Whatever a noisy frame writes stays: the change is the same at every age."""
    found = contaminated(reader(FlipFlop(1, 0), [1.0], [0.0]), torch.zeros(5, 21, 1), frames=1)
    assert found.value == pytest.approx(np.full(20, found.value[0]))
    assert contamination.half_life(found.value) == (20, False)


def test_contamination_of_earlier_slots_shows_who_reads_the_future():
    found = contaminated(reader(Foresight(1, 1), [1.0], [1.0]), noise(3, 9, 1), frames=4)
    assert found.before > 0.1
    assert found.value.max() == 0


def test_frames_are_spread_over_every_episode_and_ages_are_counted_from_them():
    """Noise in slots 0, 2, 4 and 6 of 8; the register of one slot changes where the noise is."""
    found = contaminated(reader(ShiftRegister(1, 1), [1.0], [0.0]), noise(2, 9, 1), frames=4)
    assert len(found.value) == 8 and np.flatnonzero(found.value).tolist() == [0]


# ---- multistability


def held(memory, states, slots=10_000, x=0.0):
    return multistability.hold(memory, torch.full((memory.input_size,), x), torch.as_tensor(states), slots)


def test_a_leaky_average_has_one_attractor_and_the_eigenvalue_of_its_leak():
    a = 0.9
    found = held(LeakyAverage(1, a), torch.tensor([[-1.0], [0.2], [3.0]]))
    assert found.apart[:60] == pytest.approx(a ** np.arange(60), rel=1e-3)
    numbers = multistability.numbers(found)
    k = ceil(log(0.5) / log(a)) - 1  # a^k > 1/2 >= a^(k+1)
    expected = k + (a**k - 0.5) / (a**k - a ** (k + 1))
    assert numbers == pytest.approx(
        {"attractors": 1, "clusters_at_start": 3, "resting": 1, "distance_at_end": 0, "half_life": expected,
         "half_life_reached": 1, "eigenvalue": a, "slots_held": 10_000}, rel=1e-4, abs=1e-6,
    )  # fmt: skip


def test_a_flip_flop_keeps_two_attractors_for_ever():
    found = held(FlipFlop(1, 0), torch.tensor([[1.0], [-1.0], [1.0], [-1.0], [1.0]]))
    assert multistability.numbers(found) == pytest.approx(
        {"attractors": 2, "clusters_at_start": 2, "resting": 1, "distance_at_end": 1, "half_life": 10_000,
         "half_life_reached": 0, "eigenvalue": 1, "slots_held": 10_000}, rel=1e-4,
    )  # fmt: skip


def test_a_bistable_cell_draws_states_to_its_two_fixed_points():
    """h = tanh(2 h) at +-0.9575, where the derivative 2 (1 - h^2) is 0.1664; at 0 it is 2, so states leave."""
    h = 1.0
    for _ in range(200):
        h = np.tanh(2 * h)
    found = held(Bistable(1, 2.0), torch.tensor([[-0.5], [-0.1], [0.1], [0.5]]))
    assert np.abs(found.final) == pytest.approx(np.full((4, 1), h), abs=1e-6)
    numbers = multistability.numbers(found)
    assert (numbers["clusters_at_start"], numbers["attractors"], numbers["resting"]) == (4, 2, 1)
    assert numbers["eigenvalue"] == pytest.approx(2 * (1 - h * h), rel=1e-3)


def test_the_eigenvalue_of_a_rotation_is_its_size():
    found = held(Rotation(2, 0.95), torch.tensor([[1 + 1j, 0], [0.5j, 1]], dtype=torch.complex64), slots=20)
    assert found.eigenvalue == pytest.approx([0.95, 0.95], rel=1e-4)


@pytest.mark.parametrize("slots", [52, 10_000])
def test_a_cycle_does_not_rest(slots):
    """h <- -h: pairs stay apart, and every second slot finds each state where it was."""
    numbers = multistability.numbers(held(LeakyAverage(1, -1.0), torch.tensor([[-1.0], [0.5]]), slots))
    assert (numbers["attractors"], numbers["resting"], numbers["distance_at_end"]) == (2, 0, 1)
    assert numbers["eigenvalue"] == pytest.approx(1)


def test_a_slow_leak_is_not_taken_for_attractors():
    """After 10,000 slots of a leak of 0.9999 e^-1 is left, and e^-0.5 - e^-1 of it went in the last half."""
    numbers = multistability.numbers(held(LeakyAverage(1, 0.9999), torch.tensor([[-1.0], [1.0]])))
    assert numbers["distance_at_end"] == pytest.approx(exp(-1), rel=1e-3)
    assert (numbers["attractors"], numbers["resting"]) == (2, 0)


def test_states_that_grow_without_bound_are_followed_as_long_as_they_are_finite():
    """1.1^t times 1e30 leaves float32 (3.4e38) after log(3.4e8) / log(1.1) = 206 slots."""
    found = held(LeakyAverage(1, 1.1), torch.tensor([[1e30], [-1e30]]), slots=1000)
    numbers = multistability.numbers(found)
    assert 206 / multistability.RATIO - 1 <= numbers["slots_held"] <= 206
    assert numbers["distance_at_end"] == pytest.approx(1.1 ** numbers["slots_held"], rel=1e-3)
    assert (numbers["attractors"], numbers["resting"], numbers["half_life_reached"]) == (2, 0, 0)
    assert numbers["eigenvalue"] == 0 or numbers["eigenvalue"] == pytest.approx(1.1, rel=1e-3)


@pytest.mark.parametrize(("name", "left"), [("ffm", 4), ("frame_stack", 1), ("stack", 1), ("gru", 1), ("nbrc", 3)])
def test_states_of_every_form_are_held_as_they_are_stepped(name, left):
    """Complex ones, windows, layers. Bistable cells hold most, and slow traces have not yet met after 90 slots."""
    memory = make_memory(name, 6)
    start, x = torch.eye(1, 9, dtype=torch.bool).repeat(4, 1), noise(6, seed=1)
    with torch.no_grad():
        begin = state = memory(noise(4, 9, 6), memory.initial_state(4), start)[1]
        for _ in range(90):
            state = memory.step(x.expand(4, -1), state, torch.zeros(4, dtype=torch.bool))[1]
    found = multistability.hold(memory, x, begin, 90)
    assert found.final == pytest.approx(multistability.numbers_of(state), abs=1e-4, rel=1e-4)
    assert multistability.numbers(found)["attractors"] == left
    assert found.eigenvalue.max() < 1 and (found.eigenvalue == 0).all() == (name == "frame_stack")


def test_the_looks_end_with_the_input_and_the_usual_input_is_the_commonest():
    for slots in (1, 63, 64, 65, 10_000):
        assert sum(multistability.pauses(slots)) == slots
    x = torch.zeros(2, 5, 3)
    x[0, :, 1], x[1, 3:, 2] = 1.0, 1.0
    among = torch.ones(2, 5, dtype=torch.bool)
    among[1] = False
    assert multistability.usual(x, among) == (0, 0)
    among[0, :4] = False
    among[1] = True
    assert multistability.usual(x, among) == (1, 0), "three zeros, two of the third, one of the second"


# ---- probe


def probed(memory, obs, age, points=1000):
    """The scores of a memory's outputs for the observation of an age, without the sources that need a run."""
    episodes = played(obs)
    seen, acted = obs.double().numpy(), episodes.batch.mask.numpy()
    y = probe.read(reader(memory, [0.0] * memory.output_size, [0.0] * memory.output_size), episodes)
    return probe.score({"trained": y, "control": y}, *probe.shifted(seen, acted, age), points=points, seed=0)


@pytest.fixture(scope="module")
def white():
    return noise(90, 31, 1)


def test_a_register_is_read_to_its_end_and_no_further(white):
    memory = ShiftRegister(1, 4)
    scores = {age: probed(memory, white, age) for age in (-1, 0, 3, 4)}
    assert [scores[age]["linear"] for age in scores] == pytest.approx([0, 1, 1, 0], abs=0.03)
    assert scores[3]["nonlinear"] > 0.95 and scores[4]["nonlinear"] < 0.05
    assert abs(scores[3]["linear_control"]) < 0.03


def test_a_leaky_average_tells_of_each_age_what_its_weight_is_worth(white):
    """y = (1 - a) sum a^k x_{t-k} of white noise: the squared correlation with x_{t-k} is a^2k (1 - a^2)."""
    a = 0.7
    for age in (0, 1, 3):
        assert probed(LeakyAverage(1, a), white, age)["linear"] == pytest.approx(a ** (2 * age) * (1 - a * a), abs=0.06)


def test_what_a_linear_probe_cannot_read_a_nonlinear_one_can():
    """x is 1 or -1, and x_{t-1} is the product of both outputs, which is uncorrelated with either."""
    obs = noise(60, 31, 1).sign()
    found = probed(Products(1), obs, 1)
    assert found["linear"] < 0.05 and found["nonlinear"] > 0.9


def test_the_control_is_what_time_alone_tells():
    """x = u_t + e with variances 3 and 1: the same slot of another episode shares u, so it explains 3/4 of u + e at
    most, and a guess from the own u + e, by its share 3/4, explains (3/4)^2 of it."""
    u = torch.linspace(-1, 1, 31)
    obs = (sqrt(3) * (u - u.mean()) / u.std(correction=0))[None, :, None] + noise(120, 31, 1)
    assert probed(ShiftRegister(1, 1), obs, 0)["linear"] == pytest.approx(1, abs=0.01)
    assert probed(ShiftRegister(1, 1), obs, 0)["linear_control"] == pytest.approx(9 / 16, abs=0.06)


def test_the_state_is_probed_where_it_is_told_and_what_fails_while_telling_is_no_silence():
    class Silent:
        def full_state(self):
            return None

    class Faulty:
        def full_state(self):
            raise NotImplementedError("of something else")

    told = probe.state_of(RepeatFirst(2))
    assert told is not None and len(told) == 2
    assert probe.state_of(object()) is None and probe.state_of(Silent()) is None
    with pytest.raises(NotImplementedError, match="of something else"):
        probe.state_of(Faulty())


def test_facts_that_do_not_vary_or_that_are_too_rare_are_left_out(white):
    assert probed(ShiftRegister(1, 1), torch.ones(9, 31, 1), 0) == {}
    assert probed(ShiftRegister(1, 1), white[:3], 28) == {}
    features = np.zeros((2, 5, 3))
    features[:, :, 1] = np.arange(5)
    assert probe.varied(features, np.ones((2, 5), bool)).shape == (2, 5, 1)


def test_the_reach_is_the_last_age_that_beats_time_and_the_present():
    names = ("linear", "linear_untrained", "linear_control", "linear_input")
    found = {
        "-1": (1, 1, 0, 0), "0": (1, 1, 0, 1), "2": (0.6, 0.5, 0, 0), "3": (0.9, 0.4, 0.1, 0.4), "4": (1, 1, 0.9, 0),
        "6": (1, 1, 0, 0.9), "state": (1, 1, 0, 0),
    }  # fmt: skip
    rows = {fact: dict(zip(names, scores, strict=True)) for fact, scores in found.items()}
    reached = {source: probe.reach(rows, source) for source in names if source != "linear_control"}
    assert reached == {"linear": 3, "linear_untrained": 2, "linear_input": 6}
    assert probe.reach({"4": rows["4"]}, "linear") == -1


def test_without_memory_nothing_is_reached_though_the_present_gives_the_past_away():
    """Every slot of an episode shows the same number: all ages are known, but to the input as well."""
    obs = noise(90, 1, 1).repeat(1, 9, 1)
    episodes = played(obs)
    memory = ShiftRegister(1, 1)
    y = probe.read(reader(memory, [0.0], [0.0]), episodes)
    columns = {str(age): probe.shifted(obs.double().numpy(), episodes.batch.mask.numpy(), age) for age in (0, 3)}
    sources = {"trained": y, "control": y, "input": obs.double().numpy()}
    scores = {age: probe.score(sources, *of, points=200, seed=0) for age, of in columns.items()}
    assert scores["3"]["linear"] > 0.99 > 0.1 > scores["3"]["linear_control"]
    assert probe.reach(scores, "linear") == -1 and probe.reach(scores, "linear_input") == 3


# ---- demand


def needs_of(n, k):
    """The demand of naming what was seen k slots ago, [2, n + 1, n + 1]."""
    needs = np.zeros((2, n + 1, n + 1), bool)
    needs[:, np.arange(k, n), np.arange(n - k)] = True
    return needs


@pytest.mark.parametrize(("weights", "inside"), [([0, 0, 1, 0], 1), ([1, 0, 1, 0], 0.5), ([1, 0, 0, 0], 0)])
def test_a_register_covers_the_demand_where_it_is_read(weights, inside):
    agent = reader(ShiftRegister(1, 4), weights, weights)
    slots = np.arange(2, 9)
    found = demand.covered(agent, played(noise(2, 10, 1)), needs_of(9, 2), slots, TWO)
    assert found.inside == pytest.approx(np.full(7, inside))
    assert found.uniform == pytest.approx(1 / (slots + 1))
    assert found.demanded.argmax(1).tolist() == (slots - 2).tolist()


def test_a_memory_that_reads_the_future_covers_no_demand():
    agent = reader(Foresight(1, 1), [1.0], [1.0])
    found = demand.covered(agent, played(noise(2, 10, 1)), needs_of(9, 2), np.arange(2, 9), TWO)
    assert found.inside.max() == 0
    assert found.density.argmax(1).tolist() == list(range(3, 10))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: RepeatPrevious(n, k=3),
        lambda n: RepeatPrevious(n, k=1),
        RepeatFirst,
        lambda n: TwoStepCue(n, num_cues=3, delay=4),
        lambda n: MemoryDemand(n, items=2, delay=2, rewrites=3, symbols=3),
        lambda n: MemoryDemand(n, rewrites=3, symbols=3, lags=[0, 4]),
    ],
    ids=["repeat_previous", "present", "repeat_first", "cue", "memory_demand", "apart"],
)
def test_the_demand_is_what_changes_the_oracles_action_if_one_observation_changes(make):
    """The task's own script answers the episode in which one fact, a card, cue or letter, is the next one."""
    env = make(1)
    env.reset(seed=1)
    ((name, fact),) = env._draw(np.arange(1)).items()
    steps = min(env.episode_steps()[1], 9)
    told, changed = env.demand(), np.zeros((steps, steps), bool)
    assert told.shape == (env.episode_steps()[1],) * 2 and not np.triu(told, 1).any()
    shown = env._script({name: fact})
    for i in range(min(steps, fact[0].size)):
        other = fact.copy()
        other.flat[i] = other.flat[i] + 1 if name == "deck" else (other.flat[i] + 1) % 3
        script = env._script({name: other})
        assert (script.observations != shown.observations)[0].nonzero()[0].tolist() == [i]
        changed[:, i] = (script.answers != shown.answers)[0, :steps]
    assert np.array_equal(told[:steps, :steps], changed)


def test_the_demand_of_slots_that_were_not_acted_in_does_not_count():
    episodes = played(noise(2, 5, 1))
    episodes.batch.mask[1, 2:] = False
    needs = demand.demands(np.tri(9, dtype=bool), episodes)
    assert needs.shape == (2, 5, 5) and np.array_equal(needs[0, :4], np.tri(5, dtype=bool)[:4])
    assert needs[1].any(1).tolist() == [True, True, False, False, False] and not needs[0, 4].any()


# ---- markov


def cue_episodes(obs, reward) -> Episodes:
    """Episodes of two slots that end with a reward [N] after the second one: a cue [N], then nothing."""
    found = played(torch.stack([torch.as_tensor(obs), torch.zeros(len(obs)), torch.zeros(len(obs))], 1)[..., None])
    found.batch.reward = torch.zeros(len(obs), 3)
    found.batch.reward[:, 1] = torch.as_tensor(reward)
    found.batch.terminated = torch.zeros(len(obs), 3, dtype=torch.bool)
    found.batch.terminated[:, 1] = True
    return found


@pytest.mark.parametrize("k", [1, 2])
def test_values_of_a_forgotten_cue_depend_on_lambda_as_on_paper(k):
    """A cue of 1 or -1, then a slot that shows 0 and gives the cue as reward. A register of k = 1 slot forgets it.

    LSTD's equation of the slot after is w_0 = mean r = 0 for every lambda. That of a cue c has the trace 1 in its slot
    and gamma lambda in the next: (w_c - gamma w_0) + gamma lambda w_0 = gamma lambda c, so w_c = gamma lambda c. Values
    differ by 0.95 gamma in the cue's slot and by 0 in the next. The returns are gamma c and c, with variance
    (gamma^2 + 1) / 2. With k = 2 the slot after tells cues apart, its value is c, and w_c = gamma c for every lambda.
    """
    gamma = 0.9
    cue = torch.cat([torch.ones(markov.GROUPS), -torch.ones(markov.GROUPS)])  # one of each in every group
    episodes = cue_episodes(cue, cue)
    with torch.no_grad():
        features = reader(ShiftRegister(1, k), [0] * k).trunks.read_critic(episodes.batch).double().numpy()
    found = markov.of_episodes(features, episodes, gamma)
    variance = (gamma**2 + 1) / 2
    expected = [0.95 * gamma / sqrt(variance), 0] if k == 1 else [0, 0]
    assert found.by_time == pytest.approx(expected, abs=1e-6)
    assert found.share == pytest.approx((0.95 * gamma) ** 2 / 2 / variance if k == 1 else 0, abs=1e-6)
    assert found.error == pytest.approx(0, abs=1e-6)
    assert markov.of_episodes(features, cue_episodes(cue, torch.zeros(len(cue))), gamma) is None


def equations(difference, seed, K=3, episodes=10):
    """Equations whose solutions differ by `difference` in every feature, with noise of N(0, 1) in each episode."""
    rng, G = np.random.default_rng(seed), markov.GROUPS
    A = np.broadcast_to(episodes * np.eye(K), (G, 2, K, K))
    b = np.zeros((G, 2, K))
    b[:, 0] = rng.normal(episodes * difference, sqrt(episodes), (G, K))
    moments = np.broadcast_to([float(episodes), 0, episodes], (G, 3))
    return markov.Equations(A, b, A[:, 0] / K, moments)


@pytest.mark.slow
def test_the_error_is_the_spread_of_the_share_over_repetitions():
    """The share of `equations` is difference^2. Where noise is all there is, the jackknife of the product of n things
    has 4 / (n - 2)^2 for a variance of 2 / (n (n - 1)): an error that is sqrt(2 * 20 * 19) / 18 = 1.53 times too large.
    """
    halves = markov.splits()
    for difference, low, high in ((0.0, 1.2, 1.8), (0.5, 0.85, 1.2)):
        found = np.array([markov.estimated(equations(difference, seed), halves) for seed in range(100)])
        shares, errors = found.T
        assert shares.mean() == pytest.approx(difference**2, abs=4 * shares.std() / sqrt(100))
        assert low < errors.mean() / shares.std() < high


# ---- the null


def test_an_agent_that_cannot_be_measured_before_it_learnt_is_left_out(capsys):
    """Its last value depends on nothing; that of the trained agent must depend on something."""
    learnt, blank = reader(ShiftRegister(1, 1), [1.0], [1.0]), reader(ShiftRegister(1, 1), [0.0], [0.0])
    obs = noise(3, 5, 1)
    with_null = lambda trained, null: LoadedRun.with_null(  # noqa: E731
        SimpleNamespace(agent=trained, untrained=lambda: null), lambda agent: recalled(agent, obs)
    )
    found = with_null(learnt, blank)
    said = "the agent before it learnt is left out: the last value depends on no observation"
    assert list(found) == ["trained"] and said in capsys.readouterr().out
    metrics = output.beside_null({"trained": recall_module.numbers(found["trained"])}, ("before_last",))
    assert metrics == recall_module.numbers(found["trained"])
    with pytest.raises(UserError, match="depends on no observation"):
        with_null(blank, learnt)


def test_what_learning_did_is_told_where_a_difference_means_something():
    found = {"trained": {"half_life": 9.0, "half_life_reached": 0.0, "attractors": 4.0}}
    found["untrained"] = {"half_life": 2.0, "half_life_reached": 1.0, "attractors": 1.0}
    learnt = [*output.if_reached("half_life", found), "attractors"]
    assert output.beside_null(found, learnt) == {
        **found["trained"], **{f"{name}_untrained": value for name, value in found["untrained"].items()},
        "attractors_learnt": 3,
    }  # fmt: skip
    found["trained"]["half_life_reached"] = 1.0
    assert output.beside_null(found, output.if_reached("half_life", found))["half_life_learnt"] == 7
