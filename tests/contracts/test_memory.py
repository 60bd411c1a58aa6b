"""Every memory keeps the contract, and every way to break it is found by the property that names it."""

import math

import pytest
import torch
from helpers import make_memory
from torch import Tensor, nn

from rlmem.conformance import PROPERTIES, check, facts
from rlmem.core.types import where_start
from rlmem.memory.base import Memory, RecurrentCell


def failures(memory, **options):
    return {r.name: r for r in check(lambda: memory, **{"slots": 40, "long": (300,)} | options) if not r.ok}


def test_every_memory_keeps_the_contract(memory_name):
    memory = make_memory(memory_name, 6)
    slots = 20 if isinstance(memory, RecurrentCell) else 66  # beyond the 64 slots of a chunk; cells read one by one
    failed = failures(memory, slots=slots, long=(66,))
    assert not failed, "\n" + "\n".join(map(str, failed.values()))


@pytest.mark.slow
def test_every_memory_keeps_the_contract_over_1000_and_16384_slots(memory_name):
    failed = failures(make_memory(memory_name, 6), long=(1_000, 16_384))
    assert not failed, "\n" + "\n".join(map(str, failed.values()))


class Sound(Memory):
    """h_t = a h_{t-1} + tanh(W x_t), y_t = h_t + V x_t, in plain loops: the memory that the broken ones alter."""

    def __init__(self):
        super().__init__()
        self.input_size, self.output_size = 3, 4
        self.W, self.V = nn.Linear(3, 4), nn.Linear(3, 4)
        self.rate = nn.Parameter(torch.tensor(1.0))

    def initial_state(self, batch_size: int) -> Tensor:
        return self.rate.new_zeros(batch_size, 4)

    def reset(self, h: Tensor, start: Tensor) -> Tensor:
        return where_start(start, torch.zeros_like(h), h)

    def decay(self) -> Tensor:
        return torch.sigmoid(self.rate)

    def read(self, h: Tensor, x: Tensor) -> Tensor:
        return h + self.V(x)

    def step(self, x, state, start):
        h = self.decay() * self.reset(state, start) + torch.tanh(self.W(x))
        return self.read(h, x), h

    def forward(self, x, state, start):
        outputs = []
        for x_t, start_t in zip(x.unbind(1), start.unbind(1), strict=True):
            y, state = Sound.step(self, x_t, state, start_t)
            outputs.append(y)
        return torch.stack(outputs, 1), state


def test_a_sound_memory_passes_everything():
    results = check(Sound, slots=20, long=(100,))
    assert [r.name for r in results] == list(PROPERTIES)
    assert all(r.passed for r in results), "\n".join(map(str, results))


class StepsDifferently(Sound):
    def step(self, x, state, start):
        y, h = super().step(x, state, start)
        return y + 1e-3, h


class LosesTheCarriedState(Sound):
    """Only `forward`: it begins anew at every call, as if each row held whole episodes."""

    def forward(self, x, state, start):
        return super().forward(x, self.initial_state(len(x)), start)


class TakesOneSlotForABatch(Sound):
    def forward(self, x, state, start):
        y, h = super().forward(x, state, start)
        return y.squeeze(1), h


class ActsWithItsFirstParameters(Sound):
    """A matrix cached at the first step and kept while training moves on, as in POPGym's S4D."""

    def step(self, x, state, start):
        if not hasattr(self, "first"):
            self.first = self.decay().detach()
        h = self.first * self.reset(state, start) + torch.tanh(self.W(x))
        return self.read(h, x), h


class IgnoresStarts(Sound):
    def reset(self, h, start):
        return h


class ResetsOneSlotLate(Sound):
    """The flag clears the state after the slot has been read."""

    def step(self, x, state, start):
        h = self.decay() * state + torch.tanh(self.W(x))
        return self.read(h, x), Sound.reset(self, h, start)

    def forward(self, x, state, start):
        outputs = []
        for x_t, start_t in zip(x.unbind(1), start.unbind(1), strict=True):
            y, state = self.step(x_t, state, start_t)
            outputs.append(y)
        return torch.stack(outputs, 1), state


class ResetsAllRowsTogether(Sound):
    def reset(self, h, start):
        return super().reset(h, start.any().expand_as(start))


class LetsGradientsThroughAStart(Sound):
    """Right in value; the gradient passes as if nothing had been reset."""

    def reset(self, h, start):
        return super().reset(h, start) + torch.nan_to_num(h - h.detach())


class ResetsByMultiplying(Sound):
    def reset(self, h, start):
        return h * (~start)[:, None]


class CutsTheGradientOfCarriedStates(Sound):
    def forward(self, x, state, start):
        return super().forward(x, state.detach(), start)


class CountsThePadding(Sound):
    """Divides by the length of the row."""

    def forward(self, x, state, start):
        y, h = super().forward(x, state, start)
        return y / x.shape[1], h


class SeesTheFutureWithoutGradient(Sound):
    def forward(self, x, state, start):
        y, h = super().forward(x, state, start)
        return y - x.detach().mean(1, keepdim=True), h


class DropsOut(Sound):
    def read(self, h, x):
        return nn.functional.dropout(super().read(h, x), 0.1, self.training)


class DrawsFromItsOwnGenerator(Sound):
    """No global generator moves, but two calls differ."""

    calls = 0

    def read(self, h, x):
        self.calls += 1
        return super().read(h, x) + 1e-3 * self.calls


class WritesIntoItsState(Sound):
    @torch.no_grad()
    def step(self, x, state, start):
        y, h = super().step(x, state, start)
        return y, state.copy_(h)


class ForgetsASymbol(Sound):
    def symbols(self, of=lambda parameter: parameter):
        return {name: weight for name, weight in super().symbols(of).items() if name != "rate"}


class HasAWrongEngine(Sound):
    engine = "auto"

    def read(self, h, x):
        return super().read(h if self.engine != "chunked" else 1.001 * h, x)


class LosesDigits(Sound):
    """Multiplies and divides by a large exponential, as closed forms of decays do."""

    def read(self, h, x):
        return super().read((h + 1e5) - 1e5, x)


class Explodes(Sound):
    def decay(self):
        return 1 + super().decay()


BROKEN = {
    StepsDifferently: "step_equals_forward",
    LosesTheCarriedState: "step_equals_forward",
    TakesOneSlotForABatch: "one_slot",
    ActsWithItsFirstParameters: "parameters_take_effect",
    IgnoresStarts: "starts_separate_episodes",
    ResetsOneSlotLate: "starts_separate_episodes",
    ResetsAllRowsTogether: "rows_independent",
    LetsGradientsThroughAStart: "no_gradient_across_start",
    ResetsByMultiplying: "start_clears_nonfinite",
    CutsTheGradientOfCarriedStates: "tape_equals_segments",
    CountsThePadding: "padding_changes_nothing",
    SeesTheFutureWithoutGradient: "no_future",
    DropsOut: "no_global_randomness",
    DrawsFromItsOwnGenerator: "no_global_randomness",
    WritesIntoItsState: "state_round_trips",
    ForgetsASymbol: "symbols_round_trip",
    HasAWrongEngine: "engines_agree",
    LosesDigits: "float32_suffices",
    Explodes: "finite_gradients",
}

ONLY = {
    ActsWithItsFirstParameters,
    ResetsByMultiplying,
    CutsTheGradientOfCarriedStates,
    ForgetsASymbol,
    HasAWrongEngine,
    Explodes,
}
"""These break nothing else."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_memory_fails_the_property_that_names_it(broken):
    named = BROKEN[broken]
    failed = failures(broken(), slots=20, only=PROPERTIES if broken in ONLY else [named])
    assert failed.keys() == {named}


def test_every_property_has_a_memory_that_breaks_it():
    assert set(BROKEN.values()) == set(PROPERTIES)


def test_a_failure_says_how_large_it_is_and_where_it_begins():
    failed = failures(StepsDifferently(), only=["step_equals_forward"])
    line = str(failed["step_equals_forward"])
    assert line.startswith("step_equals_forward ")
    assert "> 1.0e-10  FAIL  outputs, float64: first at row 0, slot 0 (a start)" in line


def test_what_a_published_option_declares_may_fail_and_must():
    memory = ActsWithItsFirstParameters()
    memory.breaks = {"parameters_take_effect": "acting keeps its first matrices"}
    (result,) = check(lambda: memory, only=["parameters_take_effect"])
    assert (result.ok, result.passed) == (True, False)
    assert "FAIL (published: acting keeps its first matrices)" in str(result)
    sound = Sound()
    sound.breaks = {"no_future": "sees it", "no_futur": "mistyped"}
    failed = failures(sound, slots=20)
    assert failed.keys() == {"no_future", "no_futur"}
    assert "but it holds" in failed["no_future"].detail
    assert "accepted: step_equals_forward" in failed["no_futur"].detail


def test_an_error_of_the_memory_is_a_failure_or_the_error_itself():
    class Raises(Sound):
        def step(self, x, state, start):
            raise RuntimeError("no step\nhere")

    failed = failures(Raises(), only=["step_equals_forward"])
    assert failed["step_equals_forward"].detail == "raised RuntimeError: no step here"
    assert math.isnan(failed["step_equals_forward"].measured)
    assert failed["step_equals_forward"].as_json()["measured"] is None
    with pytest.raises(RuntimeError, match="no step"):
        check(Raises, reraise=True)


def test_a_memory_that_draws_fails_only_where_that_shows():
    failed = failures(DropsOut(), slots=20)
    assert {"no_global_randomness", "rows_independent"} <= failed.keys()
    assert not {"state_round_trips", "symbols_round_trip", "no_future", "finite_gradients"} & failed.keys()


def test_a_check_leaves_global_randomness_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    check(DropsOut, slots=20, long=(20,))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_facts_of_a_memory():
    assert facts(Sound()) | {"class": ""} == {"class": "", "parameters": 33, "state": 4, "engine": None}
    complex_state = make_memory("ffm", 6, engine="loop", trace_size=3, context_size=2)
    assert (facts(complex_state)["state"], facts(complex_state)["engine"]) == (12, "loop")
