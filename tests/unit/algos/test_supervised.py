"""Supervised runs: windows and their gradient, what is counted, learning with and without memory, exact resume."""

from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from helpers import ROOT, entry
from recordings import provide_recording, recording
from rlmem_envs.occlusion.pendulum import Pendulum
from rlmem_envs.temporal_order import TemporalOrder, TemporalOrderStream
from small_runs import CLASSIFIERS as NETWORKS
from small_runs import CLASSIFY as SHORT
from small_runs import MODEL

from rlmem.acting.evaluate import Request
from rlmem.algos.supervised.dataset.file import write
from rlmem.algos.supervised.feed import DataWindow, Feed
from rlmem.algos.supervised.windows import Tables, split
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.core.types import Inputs
from rlmem.jobs.search import propose
from rlmem.jobs.spec import SweepSpec, axes, probes, specify
from rlmem.jobs.status import objective
from rlmem.record.checkpoint import Checkpoints, read
from rlmem.record.recorder import read_jsonl
from rlmem.run.assemble import Parts, assemble
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import plan, resume, train

MODELS = {
    "initial": ["algo.predict=initial", "memory=lru", "memory.hidden_size=8"],
    "current": ["algo.predict=current", "algo.target=hidden", "memory=gru", "memory.hidden_size=8"],
}


def classify(*overrides: str, run_dir: str = "run") -> Path:
    train(load([*SHORT, f"run_dir={run_dir}", *overrides]))
    return Path(run_dir)


def model(*overrides: str, run_dir: str = "run") -> Path:
    provide_recording()
    train(load([*MODEL, f"run_dir={run_dir}", *overrides]))
    return Path(run_dir)


def parts_of(*overrides: str) -> tuple[Parts, Feed]:
    parts = assemble(load([*SHORT, *overrides]))
    parts.algo.setup(parts.agent)
    return parts, parts.algo.feed(parts.env, parts.streams, parts.device)


# --- windows of a stream


def gradient_to_inputs(carried: bool) -> list[torch.Tensor | None]:
    """How the loss of the third window depends on what the LSTM read in each of three [16, 4, 8].

    carried: the state goes on through the feed, as in a run; else with its gradient
    """
    parts, feed = parts_of(*NETWORKS["lstm"])
    trunk, state, seen = parts.agent.trunks.actor, parts.agent.initial_state(16), []
    for _ in range(3):
        window = feed.next(10**9)
        x = trunk.encoder(*window.inputs).requires_grad_()
        seen.append(x)
        features, state = trunk.memory(x, state, window.inputs.start)
        if carried:
            feed.carry(state)
            state = feed.state
    assert window.due == 16, "sequences of 10 or 11 symbols end in slots 8 to 11"
    judged = parts.algo.judge(parts.agent.head(features[window.mask]), window.target[window.mask])
    return list(torch.autograd.grad(judged["loss"].mean(), seen, allow_unused=True))


def test_the_gradient_reaches_all_of_its_window_and_nothing_before_it():
    first, second, third = gradient_to_inputs(carried=True)
    assert first is None and second is None
    assert third is not None
    assert (third.abs().sum((0, 2))[:3] > 0).all(), "up to the first slot of the window"
    first, second, _ = gradient_to_inputs(carried=False)
    assert first is not None and first.abs().sum() > 0, "it would go further"


def test_the_state_goes_on_from_window_to_window():
    parts, feed = parts_of(*NETWORKS["lstm"])
    windows = [feed.next(10**9) for _ in range(6)]
    state, pieces = parts.agent.initial_state(16), []
    with torch.no_grad():
        for window in windows:
            features, after = parts.agent.read(window.inputs, state)
            feed.carry(after)
            state = feed.state
            pieces.append(features)
        whole = Inputs(*(torch.cat(field, 1) for field in zip(*(w.inputs for w in windows), strict=True)))
        expected, _ = parts.agent.read(whole, parts.agent.initial_state(16))
        fresh, _ = parts.agent.read(windows[-1].inputs, parts.agent.initial_state(16))
    torch.testing.assert_close(torch.cat(pieces, 1), expected)
    assert (pieces[-1] - fresh).abs().max() > 1e-3, "an empty memory would say something else"


def test_an_update_takes_up_the_state_that_the_feed_carries():
    parts, feed = parts_of(*NETWORKS["lstm"])
    parts.algo.lr = 0.0
    with torch.no_grad():
        window = feed.next(10**9)
        _, expected = parts.agent.read(window.inputs, parts.agent.initial_state(16))
    _, after = parts.algo.update(window, parts.agent.initial_state(16))
    feed.carry(after)
    torch.testing.assert_close(feed.state, tuple(x.detach() for x in expected))
    assert not any(leaf.requires_grad for leaf in feed.state)


def test_only_the_last_slots_of_sequences_count_for_the_loss():
    parts, feed = parts_of(*NETWORKS["lstm"])
    window = feed.next(10**9)
    while not window.due:
        window = feed.next(10**9)
    ends = window.inputs.obs == 7
    assert torch.equal(window.mask, ends), "the end has a symbol of its own"
    labels = torch.where(ends, window.target, (window.target + 1) % 4)
    gradients = []
    for target in (window.target, labels, (window.target + 1) % 4):
        parts.algo.update(DataWindow(window.inputs, target, window.mask, window.due), parts.agent.initial_state(16))
        gradients.append([p.grad.clone() for p in parts.agent.parameters()])
        parts, _ = parts_of(*NETWORKS["lstm"])
    assert all(map(torch.equal, gradients[0], gradients[1]))
    assert not all(map(torch.equal, gradients[0], gradients[2]))


def test_without_an_answer_due_the_step_has_a_zero_gradient():
    parts, feed = parts_of(*NETWORKS["lstm"], "algo.truncation=1")
    window = feed.next(10**9)
    assert not window.due
    before = [p.clone() for p in parts.agent.parameters()]
    sums, _ = parts.algo.update(window, parts.agent.initial_state(16))
    assert sums == {} and all(map(torch.equal, before, parts.agent.parameters())), "Adam remembers nothing yet"
    answered = feed.next(10**9)
    while not answered.due:
        answered = feed.next(10**9)
    parts.algo.update(answered, parts.agent.initial_state(16))
    moved = [p.clone() for p in parts.agent.parameters()]
    parts.algo.update(window, parts.agent.initial_state(16))
    assert all(p.grad.abs().max() == 0 for p in parts.agent.parameters())
    assert not all(map(torch.equal, moved, parts.agent.parameters())), "now it does"


def test_reset_shows_the_memory_where_sequences_begin_and_otherwise_nothing_does():
    for given in ("false", "true"):
        _, feed = parts_of(*NETWORKS["lstm"], f"algo.reset={given}", "algo.truncation=50")
        inputs = feed.next(10**9).inputs
        begins = inputs.obs == 6
        assert torch.equal(inputs.start, begins if given == "true" else torch.zeros_like(begins))


@pytest.mark.parametrize("shorten", [2, 7, 10])
def test_shortened_sequences_keep_their_markers_apart(shorten):
    for variant, markers in (("two_symbols", 2), ("three_symbols", 3)):
        stream = TemporalOrderStream(20, 400, variant, shorten=shorten)
        for symbols, start in zip(*stream.next()[:2], strict=True):
            begins = np.flatnonzero(start)
            for a, b in pairwise(begins):
                whole = symbols[a:b]
                assert 100 // shorten <= len(whole) <= 110 // shorten
                assert np.isin(whole, (4, 5)).sum() == markers
                assert (whole[0], whole[-1]) == (6, 7)


@pytest.mark.parametrize(("variant", "shorten"), [("two_symbols", 11), ("low_frequency", 2)])
def test_sequences_too_short_for_their_markers_are_refused(variant, shorten):
    with pytest.raises(ValueError, match=f"shorten={shorten}: leaves no room"):
        TemporalOrder(variant, shorten)


# --- runs


def test_a_run_counts_symbols_and_windows_and_every_answer_once(in_tmp):
    rows = read_jsonl(classify(*NETWORKS["lstm"], "total_steps=5000") / "metrics.jsonl")
    training = [row for row in rows if "update" in row]
    assert rows[-1]["step"] == training[-1]["step"] == 5000
    assert all(entry(name) for row in rows for name in row), "rlmem/record/metrics.py"
    assert training[-1]["update"] == -(-5000 // 64)
    stream = TemporalOrder(shorten=10).stream(16, 313, load(SHORT).values["seed"])
    assert sum(row["train/answers"] for row in training) == pytest.approx(stream.next().mask.sum(), abs=16)
    assert [row["step"] for row in rows if "eval/accuracy" in row][-1] == 5000
    assert all(row["eval/score"] == row["eval/accuracy"] for row in rows if "eval/accuracy" in row)


def test_held_out_sequences_are_counted_exactly_and_are_the_same_every_time():
    parts, _ = parts_of(*NETWORKS["lstm"])
    class_two = lambda features: torch.nn.functional.one_hot(torch.full((len(features),), 2), 4).float()  # noqa: E731
    parts.agent.head.forward = class_two
    request = Request(70, parts.streams, parts.device)
    results = [parts.algo.evaluate(parts.agent, parts.env, request)["held_out"] for _ in range(2)]
    assert results[0] == results[1]
    accuracy = results[0]["accuracy"]
    stream = parts.env.stream(64, 40, parts.streams.int("evaluation/env"))
    batch = stream.next()
    share = np.where(np.arange(64) < 6, 2, 1)[:, None]
    counted = batch.mask & (batch.mask.cumsum(1) <= share)
    assert counted.sum() == 70
    assert accuracy == pytest.approx((batch.label[counted] == 2).mean())


def test_a_memory_that_draws_is_redrawn(in_tmp):
    run_dir = classify("memory=shm", "memory.memory_size=4", "memory.hidden_size=8", "memory.bank_size=8")
    first, last = (Checkpoints(run_dir / "checkpoints").paths()[at] for at in (0, -1))
    seeds = [{k: v for k, v in read(path)["agent"].items() if k.endswith("seed")} for path in (first, last)]
    assert seeds[0] and any((seeds[0][name] != seeds[1][name]).any() for name in seeds[0])


def test_a_state_model_is_not_resumed_on_other_episodes(in_tmp):
    run_dir = model(*MODELS["current"])
    path = Path("p.hdf5")
    with h5py.File(path, "r+") as file:
        file["observations"][0, 0] += 1
    with pytest.raises(UserError, match="holds other episodes than when the run began"):
        resume(run_dir, ["total_steps=1000000"])


def test_a_resumed_run_with_a_larger_budget_reads_on_where_it_was(in_tmp):
    run_dir = classify(*NETWORKS["lstm"], "total_steps=1001")
    state = Checkpoints(run_dir / "checkpoints").load()[1]["collector"]
    assert state["at"] == -(-1001 // 16), "a last window of three columns"
    resume(run_dir, ["total_steps=3000"])
    assert read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] == 3000


def test_the_score_of_a_run_is_what_a_sweep_and_rlmem_eval_see(in_tmp):
    run_dir = classify(*NETWORKS["lstm"])
    assert objective(run_dir) == read_jsonl(run_dir / "metrics.jsonl")[-1]["eval/accuracy"]
    found = evaluate_run(run_dir, episodes=30)
    assert 0 <= found["held_out"]["accuracy"] <= 1
    run_dir = model(*MODELS["current"], run_dir="model")
    rows = read_jsonl(run_dir / "metrics.jsonl")
    assert objective(run_dir) == -rows[-1]["eval/mse"]
    assert all(entry(name) for row in rows for name in row), "rlmem/record/metrics.py"
    assert evaluate_run(run_dir, episodes=30)["held_out"]["mse"] > 0


# --- learning


def accuracy(run_dir: Path) -> float:
    return read_jsonl(run_dir / "metrics.jsonl")[-1]["eval/accuracy"]


LEARN = ["total_steps=50000", "evaluation.every=null", "evaluation.episodes=400", "checkpoint.every=null"]


@pytest.mark.slow
def test_an_lprnn_learns_an_order_that_is_longer_than_its_windows(in_tmp):
    assert accuracy(classify(*NETWORKS["lprnn"], *LEARN, "algo.lr=0.02")) > 0.6, "chance is 0.25"


def test_without_memory_nothing_beats_chance(in_tmp):
    choices = ["memory=mlp", "memory.hidden_size=32"]
    found = accuracy(classify(*choices, *LEARN, "total_steps=6000"))
    assert found < 0.25 + 4 * (0.25 * 0.75 / 400) ** 0.5


# --- windows of recorded episodes


def test_windows_lie_inside_episodes_and_show_what_the_partial_environment_shows():
    data = recording(episodes=8, steps=10)
    space = Pendulum(1).single_action_space
    train_set, held = split(data, 0.25, torch.Generator().manual_seed(0))
    assert (len(train_set.first), len(held.first)) == (6, 2)
    assert not set(train_set.first.tolist()) & set(held.first.tolist())
    tables = Tables.of(data, space, [0, 1], [0, 1, 2], train_set)
    generator = torch.Generator().manual_seed(1)
    for predict in ("initial", "current"):
        window = tables.draw(200, 6, train_set, predict, generator)
        seen = {tuple(x) for x in data.observations[:, :2].tolist()}
        assert {tuple(x) for x in window.inputs.obs.flatten(0, 1).tolist()} <= seen
        assert window.inputs.start[:, 0].all() and not window.inputs.start[:, 1:].any()
        steps = {tuple(x): i for i, x in enumerate(data.observations[:, :2].tolist())}
        first = torch.tensor([steps[tuple(x)] for x in window.inputs.obs[:, 0].tolist()])
        assert set((first % 10).tolist()) == set(range(5)), "every place that leaves room"
        assert {int(f) // 10 * 10 for f in first} == set(train_set.first.tolist())
        last = torch.tensor([steps[tuple(x)] for x in window.inputs.obs[:, -1].tolist()])
        assert torch.equal(last, first + 5)
        prev = torch.from_numpy(data.actions)[first] / 2
        torch.testing.assert_close(window.inputs.prev_action[:, 1], prev)
        if predict == "current":
            assert window.mask.all()
            torch.testing.assert_close(window.target[:, -1], tables.target[last])
        else:
            assert window.mask[:, -1].all() and not window.mask[:, :-1].any()
            torch.testing.assert_close(window.target[window.mask], tables.target[first])


def test_targets_are_standardised_over_the_training_episodes():
    data = recording()
    train_set, _ = split(data, 0.25, torch.Generator().manual_seed(0))
    tables = Tables.of(data, Pendulum(1).single_action_space, [0], [0, 1, 2], train_set)
    rows = torch.cat([torch.arange(a, a + n) for a, n in zip(*map(torch.Tensor.tolist, train_set), strict=True)])
    torch.testing.assert_close(tables.target[rows].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(tables.target[rows].std(0), torch.ones(3), atol=1e-4, rtol=0)


def test_episodes_that_are_shorter_than_a_window_are_padded_behind_their_last_slot():
    data = recording(episodes=4, steps=5)
    every, _ = split(data, 0.25, torch.Generator().manual_seed(0))
    tables = Tables.of(data, Pendulum(1).single_action_space, [0, 1], [2], every)
    generator = torch.Generator().manual_seed(0)
    assert tables.draw(30, 8, every, "current", generator).mask.sum(1).tolist() == [5] * 30
    assert tables.draw(30, 8, every, "initial", generator).mask.int().argmax(1).tolist() == [4] * 30


@pytest.mark.slow
def test_a_memory_knows_the_hidden_speed_and_none_cannot(in_tmp):
    """Of a pendulum that shows its position: the speed follows from two positions."""
    write(Path("p.hdf5"), recording(episodes=40, steps=40))
    budget = ["algo.target=hidden", "total_steps=40000", "evaluation.every=null", "evaluation.episodes=200"]
    size = ["memory.hidden_size=16", "encoder.hidden_size=16", "algo.batch_size=64"]
    gru = read_jsonl(model("memory=gru", *size, *budget, run_dir="gru") / "metrics.jsonl")[-1]["eval/mse"]
    mlp = read_jsonl(model("memory=mlp", *size, *budget, run_dir="mlp") / "metrics.jsonl")[-1]["eval/mse"]
    assert gru < 0.3 < 0.6 < mlp


# --- refusals and the search


def test_a_random_search_does_not_learn_from_its_jobs(in_tmp):
    lines = ("algo.lr=tag(log, interval(1e-6,1e-3))", "algo.batch_size=4,8,16,32")
    drawn = {}
    for sampler in ("random", "tpe"):
        spec = SweepSpec((*SHORT[:2], *lines), (), "maximize", sampler)
        assert SweepSpec.from_json(spec.to_json()) == spec
        assert ("sampler" in spec.canonical) == (sampler == "random"), "directories of earlier searches keep their name"
        drawn[sampler] = propose(axes(spec), [], spec)
        assert drawn[sampler] == propose(axes(spec), [], spec), "the draw follows from the specification"
    assert drawn["random"] != drawn["tpe"]


@pytest.mark.parametrize("name", ["lprnn", "parallel", "lstm"])
def test_the_searches_of_the_paper_are_accepted(name):
    file = ROOT / "experiments" / "lprnn" / "search" / f"table1_{name}.yaml"
    corners = probes(axes(specify(file, [], [], "maximize", "random")))
    assert len(corners) > 20
    for corner in (corners[0], corners[-1]):
        assert "4 outputs" in plan(load(corner))
