"""Analyses of small runs, each against an independent computation: finite differences, loops, brute force."""

import csv
import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from helpers import ROOT, fast_only
from rlmem.analysis.ffm import times
from rlmem.analysis.hidden import TERMINAL, sample, silhouette
from rlmem.analysis.impulse import alike, followed, projections, stored
from rlmem.analysis.shm import calibrations, product_stats
from rlmem_envs.languages.regular import RegularLanguage
from rlmem_envs.languages.tables import TABLES

from rlmem.analysis import analyses, analyze, demand, gradients, impulse
from rlmem.analysis.features import nothing_blocked
from rlmem.analysis.gradients import Cut, last_row, norms
from rlmem.analysis.loaded import load_run
from rlmem.analysis.sensitivity import by_age, sensitivities
from rlmem.batching import Segment, Tape
from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.memory.ffm import FFM
from rlmem.memory.gru import GRU
from rlmem.memory.shm import SHM
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import train

pytestmark = pytest.mark.skipif(not (find_spec("sklearn") and find_spec("matplotlib")), reason="needs .[analysis]")

COMMON = [
    "env.num_envs=4", "memory.hidden_size=8", "encoder.hidden_size=8", "evaluation.every=null",
    "evaluation.episodes=4", "threads=1", "device=cpu", "algo.head_sizes=[8]",
]  # fmt: skip
REPLAY = [
    "algo=dqn", "algo.random_steps=50", "algo.learning_starts=50", "algo.batch_size=40", "algo.update_ratio=0.1",
    "algo.record_every=100", "total_steps=200", "checkpoint.every=100", "checkpoint.keep=3",
]  # fmt: skip
ROLLOUT = ["algo=ppo", "algo.num_minibatches=2", "algo.rollout_slots=32", "algo.epochs=1", "total_steps=128"]
RUNS = {
    "ffm": [
        *REPLAY, "memory=ffm", "memory.trace_size=4", "memory.context_size=2", "env=tmaze_passive",
        "env.corridor_length=14", "batching=segment", "batching.length=6",
    ],
    "gru": [*REPLAY, "memory=gru", "env=parity", "env.n=9"],
    "shm": [*ROLLOUT, "memory=shm", "memory.memory_size=4", "env=even_pairs", "env.n=8"],
    "lprnn": [
        *ROLLOUT, "memory=lprnn", "memory.num_pools=3", "memory.pool_size=8", "memory.viewport_size=4",
        "env=tmaze_passive", "env.corridor_length=14", "batching.detach_every=5",
    ],
    "cue": [*ROLLOUT, "memory=gru", "env=two_step_cue", "env.delay=5"],
    "full": [
        *ROLLOUT, "memory=gru", "env=pendulum", "env.evaluation.max_episode_steps=9", "encoder.normalise_obs=true",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A short run for every kind of memory that has an analysis."""
    folder = tmp_path_factory.mktemp("runs")
    for name, overrides in RUNS.items():
        train(load([*COMMON, *overrides, f"run_dir={folder / name}"]))
    return {name: folder / name for name in RUNS}


def measured(what: str, run_dir: Path | None, step=None, seed=None, **options):
    """What `analyze` finds, without writing it."""
    run = run_dir and load_run(run_dir, step, seed)
    return analyses()[what].measure(run, **options)


def exact(run_dir: Path):
    """A run whose agent computes in float64."""
    run = load_run(run_dir, seed=1)
    run.agent.double()
    return run


# ---- what is written


@pytest.mark.parametrize(
    ("what", "run", "options"),
    [
        pytest.param("sensitivity", "ffm", {"episodes": 3, "all_checkpoints": True}, marks=pytest.mark.slow),
        ("ffm", "ffm", {}),
        pytest.param("shm", "shm", {"episodes": 3}, marks=pytest.mark.slow),
        pytest.param("hidden", "gru", {"episodes": 10, "points": 60}, marks=pytest.mark.slow),
        pytest.param("extrapolate", "gru", {"episodes": 4, "over": "env.n=4,9"}, marks=pytest.mark.slow),
        pytest.param("impulse", "lprnn", {"string": "abc", "other": "cab"}, marks=pytest.mark.slow),
        pytest.param("gradients", "ffm", {"episodes": 2}, marks=pytest.mark.slow),
        pytest.param("markov", "gru", {"episodes": 40}, marks=pytest.mark.slow),
        ("recall", "ffm", {"episodes": 3}),
        pytest.param("demand", "cue", {"episodes": 3}, marks=pytest.mark.slow),
        pytest.param("contamination", "ffm", {"episodes": 3, "frames": 4, "noise": 2.0}, marks=pytest.mark.slow),
        pytest.param("multistability", "cue", {"episodes": 4, "after": 3, "slots": 90}, marks=pytest.mark.slow),
        pytest.param("probe", "gru", {"episodes": 30, "points": 50}, marks=pytest.mark.slow),
    ],
)
def test_an_analysis_writes_table_numbers_and_pictures_that_are_the_same_again(runs, what, run, options):
    summary = analyze(what, runs[run], **options)
    folder = runs[run] / "analysis" / what
    assert summary.folder == folder
    written = json.loads((folder / "summary.json").read_text())
    assert written == json.loads(json.dumps(summary.row()))
    assert (written["analysis"], written["step"]) == (what, 200 if run in ("ffm", "gru") else 128)
    assert written["metrics"] and all(np.isfinite(value) for value in written["metrics"].values())
    assert {"data.csv", "picture.png", "picture.svg"} <= set(summary.files)
    assert {path.name for path in folder.iterdir()} == {*summary.files, "summary.json"}
    assert (folder / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert "<text" in (folder / "picture.svg").read_text(), "text of the svg is text"
    again = measured(what, runs[run], **options)
    assert again.metrics == summary.metrics
    with open(folder / "data.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [{name: str(cell) for name, cell in row.items()} for row in again.rows]


@pytest.mark.parametrize(
    ("what", "options"), [pytest.param("sensitivity", {"episodes": 2}, marks=pytest.mark.slow), ("ffm", {})]
)
def test_the_best_agent_is_analysed_though_its_step_is_not_kept(runs, tmp_path, what, options):
    shutil.copytree(runs["ffm"], run := tmp_path / "run")
    for path in (run / "checkpoints").glob("step_*200.pt"):
        path.unlink()
    summary = analyze(what, run, step="best", **options)
    assert summary.step == 200
    assert summary.metrics == measured(what, runs["ffm"], step=200, **options).metrics


# ---- sensitivity


@pytest.mark.parametrize("name", ["ffm", "lprnn"])
def test_sensitivity_is_what_finite_differences_of_the_last_value_say(runs, name):
    """Also of V, and where the memory blocks gradients in training."""
    run = exact(runs[name])
    played = run.play(2)
    batch = played.batch
    batch.obs = batch.obs.double()
    found = sensitivities(run.agent, played)
    expected = torch.zeros_like(found)
    with torch.no_grad(), nothing_blocked(run.agent):
        for t, feature, sign in product(range(int(played.length.max())), range(batch.obs.shape[-1]), (1,)):
            ends = []
            for h in (1e-5, -1e-5):
                batch.obs[:, t, feature] += h
                ends.append(played.at_last(run.agent.value(batch)))
                batch.obs[:, t, feature] -= h
            expected[:, t] += sign * (ends[0] - ends[1]).abs() / 2e-5
    assert expected[:, 0].min() > 1e-12, "the first observation matters"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-9)


def test_sensitivity_of_letters_is_that_of_their_one_hot_rows(runs):
    """Finite differences cannot move a letter: the derivative is moved to a linear layer that reads it."""
    run = exact(runs["gru"])
    played = run.play(3)
    found = sensitivities(run.agent, played)
    encoder = run.agent.trunks.critic.encoder
    expected = torch.zeros_like(found)
    for t in range(int(played.length.max())):
        shifts = torch.zeros(3, encoder.obs_features.size, dtype=torch.float64, requires_grad=True)

        def moved(module, args, out, t=t, shifts=shifts):
            shifted = torch.zeros_like(out, dtype=torch.float64)
            shifted[:, t] = shifts
            return out.double() + shifted

        handle = encoder.obs_features.register_forward_hook(moved)
        played.at_last(run.agent.value(played.batch)).sum().backward()
        handle.remove()
        expected[:, t] = shifts.grad.abs().sum(-1)
    torch.testing.assert_close(found, expected)


def test_sensitivity_refuses_observations_of_several_parts(in_tmp):
    overrides = [*COMMON[:1], *COMMON[2:], *ROLLOUT, "memory=mlp", "env=tmaze_passive", "env.privileged=true"]
    train(load([*overrides, "encoder=dict", "run_dir=run"]))
    with pytest.raises(UserError, match=r"the encoder reads observations of several parts, .* of one part"):
        measured("sensitivity", Path("run"), episodes=2)


def test_a_run_that_sees_everything_is_its_own_twin_and_what_it_recalls_is_smearing(runs):
    alone, beside = (measured("recall", runs["full"], episodes=3, **more) for more in ({}, {"twin": str(runs["full"])}))
    assert alone.metrics["smearing"] == alone.metrics["before_last"] > 0
    assert beside.metrics == alone.metrics
    curves = {of: [row["density"] for row in beside.rows if row["of"] == of] for of in ("trained", "untrained", "twin")}
    assert curves["twin"] == curves["trained"] != curves["untrained"]
    assert all(sum(curve) == pytest.approx(1, abs=1e-6) for curve in curves.values())
    partly = measured("recall", runs["ffm"], episodes=3)
    assert "smearing" not in partly.metrics


def test_a_twin_is_loaded_as_its_run_was(runs):
    """At the best checkpoint, on the same streams, and trusted or not."""
    run = load_run(runs["full"], "best", seed=7, trust=True)
    twin = run.twin(str(runs["full"]))
    assert (twin.best, twin.seed, twin.trust) == (run.best, 7, True) and run.best is not None
    assert load_run(runs["full"], seed=7).twin(runs["full"]).best is None


def test_the_null_is_the_agent_as_it_was_made_and_reads_what_the_trained_one_reads(runs):
    run = load_run(runs["full"])
    null, first = run.untrained(), torch.load(runs["full"] / "checkpoints" / "best.pt", weights_only=False)["agent"]
    assert null.state_dict().keys() == first.keys()
    same = [name for name, value in null.state_dict().items() if torch.equal(value, run.agent.state_dict()[name])]
    assert same and all(".norm." in name for name in same)
    episodes = run.play(2)
    features = [agent.trunks.critic.encoder.obs_features(episodes.batch.obs) for agent in (run.agent, null)]
    assert torch.equal(*features) and features[0].abs().max() > 0
    again = run.untrained()
    assert all(torch.equal(a, b) for a, b in zip(null.parameters(), again.parameters(), strict=True))


def test_the_demand_is_not_known_of_a_wrapped_game_and_nothing_where_all_is_seen(runs):
    run = load_run(runs["cue"])
    run.config = replace(run.config, values=run.config.values | {"wrapper": {"delay": {}}})
    with pytest.raises(UserError, match=r"wrapper=delay: changes what is seen when"):
        demand.measure(run)
    with pytest.raises(UserError, match=r"shows all that the best actions depend on, so that nothing need be recalled"):
        demand.measure(load_run(runs["full"]))


def test_shares_by_age_count_back_from_the_last_acted_slot():
    curves = by_age(torch.tensor([[1.0, 2.0, 5.0, 9.0], [4.0, 4.0, 9.0, 9.0]]), torch.tensor([3, 2]))
    assert curves.mean.tolist() == [4.5, 3.0, 1.0]  # ages 0 (5, 4), 1 (2, 4), 2 (1)
    assert curves.outside == pytest.approx([1.0, (3 / 8 + 4 / 8) / 2, (1 / 8 + 0) / 2, 0.0])


def test_the_shares_of_the_summary_are_those_of_the_table(runs):
    summary = measured("sensitivity", runs["ffm"], episodes=3, older_than=4)
    shares = {int(row["age"]): float(row["share_this_old_or_older"]) for row in summary.rows}
    assert summary.metrics["share_older"] == shares[4]
    assert summary.metrics["share_older"] + summary.metrics["share_inside"] == pytest.approx(1)
    assert shares[0] == pytest.approx(1)
    assert summary.about["value"] == "Q(s, a)"


# ---- FFM


def test_decay_times_and_periods_are_those_of_the_running_recurrence(runs):
    run = exact(runs["ffm"])
    (memory,) = run.memories(FFM, "ffm").values()
    (found,) = times(run, 0.1).values()
    x, start = torch.zeros(1, 2000, memory.input_size, dtype=torch.float64), torch.zeros(1, 2000, dtype=torch.bool)
    state = torch.ones(1, *memory.state_shape, dtype=torch.complex128)
    for t_alpha, trace in zip(found["t_alpha"], range(memory.state_shape[0]), strict=True):
        slots = min(int(t_alpha), 400)
        quiet = _with_state(memory, x[:, :slots], state, start[:, :slots])
        left = quiet[0, trace, 0].abs().item()
        assert left == pytest.approx(0.1 ** (slots / t_alpha), rel=1e-6)
    turned = _with_state(memory, x[:, :7], state, start[:, :7])[0, 0].detach().angle().numpy()
    expected = (7 * 2 * np.pi / found["t_omega"] * np.sign(memory.b.detach().numpy()) + np.pi) % (2 * np.pi) - np.pi
    assert np.exp(1j * turned) == pytest.approx(np.exp(1j * expected))


def _with_state(memory: FFM, x, state, start):
    """What is left of a state, beside what the inputs add."""
    return memory(x, state, start)[1] - memory(x, torch.zeros_like(state), start)[1]


def test_ffm_tells_every_checkpoint_and_how_it_began(runs):
    summary = measured("ffm", runs["ffm"], beta=0.5)
    rows = summary.rows
    assert sorted({row["step"] for row in rows}) == [0, 100, 200]
    first = [r["slots"] for r in rows if r["step"] == 0 and r["time"] == "t_alpha"]
    rate = -np.linspace(np.log(np.finfo(float).max) / 1024 - 0.02, -np.log(0.01) / 1024, 4)
    assert first == pytest.approx(list(np.log(0.5) / rate), rel=1e-5)
    assert summary.metrics["t_alpha_max_initially"] == max(first)
    last = [r["slots"] for r in rows if r["step"] == 200 and r["time"] == "t_omega"]
    assert summary.metrics["t_omega_min"] == min(last) != summary.metrics["t_omega_min_initially"]


# ---- SHM


@pytest.mark.parametrize("calibration", ["random_theta", "none", "random_c", "fixed_c", "fixed_theta", "neural_theta"])
def test_products_with_the_calibrations_end_where_the_memory_ends(calibration):
    torch.manual_seed(0)
    memory = SHM(5, hidden_size=6, memory_size=3, bank_size=7, calibration=calibration)
    x = torch.randn(2, 6, 5)
    (*_, (_, last)) = calibrations(memory, x, seed=3)
    final = memory(x, memory.initial_state(2), torch.zeros(2, 6, dtype=torch.bool))[1]["M"]
    torch.testing.assert_close(last[0].float(), final[0], rtol=1e-4, atol=1e-5)


def test_what_the_product_leaves_is_what_a_loop_finds():
    product = torch.rand(2, 3, 3, dtype=torch.float64) * 2
    product[1] = 1.0
    mean, below, share = product_stats(product)
    small = [value for value in product[0].flatten().tolist() if value < 1]
    assert below[0] == pytest.approx(sum(small) / len(small))
    assert share[0] == pytest.approx(len(small) / 9)
    assert (mean[1], below[1], share[1]) == (1, 1, 0)


def test_what_shm_leaves_is_beside_what_it_left_before_it_learnt(runs):
    summary = measured("shm", runs["shm"], episodes=2, seed=5)
    run = load_run(runs["shm"], seed=5)
    agent = run.untrained()
    (memory,) = run.memories(SHM, "shm", agent).values()
    x, product = agent.trunks.critic.encoder(*run.play(2).batch.inputs).detach(), torch.ones(2, 4, 4)
    for C, _ in calibrations(memory, x[:, : int(summary.rows[-1]["t"])], seed=5):
        product = product * C
    metrics = summary.metrics
    assert metrics["below_one_at_end_untrained"] == pytest.approx(product_stats(product)[1].mean())
    learnt = metrics["below_one_at_end"] - metrics["below_one_at_end_untrained"]
    assert metrics["below_one_at_end_learnt"] == pytest.approx(learnt) != 0


# ---- hidden


@pytest.mark.parametrize("language", TABLES)
def test_labels_are_the_state_and_letter_that_a_walk_through_the_table_gives(language):
    env = RegularLanguage(3, language=language, n=7)
    observed, _ = env.reset(seed=2)
    transitions = TABLES[language]["transitions"]
    letters = list(next(iter(transitions.values())))
    states = [TABLES[language]["start"]] * 3
    for _ in range(60):
        for i, label in enumerate(env.labels()):
            end = observed[i] == len(letters)
            assert env.label_names[label] == ("T" if end else f"({states[i]}, {letters[observed[i]]})")
            states[i] = states[i] if end else transitions[states[i]][letters[observed[i]]]
        before = env.over.copy()
        observed = env.step(np.zeros(3, np.int64))[0]
        states = [TABLES[language]["start"] if over else state for over, state in zip(before, states, strict=True)]


def test_silhouette_is_the_mean_of_b_minus_a_over_the_greater():
    rng = np.random.default_rng(0)
    features, names = rng.normal(size=(40, 3)), rng.choice(["x", "y", "z"], 40)
    distance = np.linalg.norm(features[:, None] - features[None], axis=-1)
    scores = []
    for i, name in enumerate(names):
        own = (names == name) & (np.arange(40) != i)
        a = distance[i, own].mean()
        b = min(distance[i, names == other].mean() for other in set(names) - {name})
        scores.append((b - a) / max(a, b))
    assert silhouette(features, names) == pytest.approx(np.mean(scores))


def test_hidden_reads_the_outputs_that_acting_had_with_the_labels_of_their_slots(runs):
    summary = measured("hidden", runs["gru"], episodes=6, points=1000, seed=4)
    run = load_run(runs["gru"], seed=4)
    played = run.play(6)
    trunk, features, names = run.agent.trunks.critic, [], []
    for episode in played:
        state, parity = trunk.memory.initial_state(1), 0
        for t in range(episode.shape[1]):
            slot = type(episode.inputs)(*(field[:, t] for field in episode.inputs))
            y, state = trunk.memory.step(trunk.encoder(*slot), state, slot.start)
            letter = int(slot.obs)
            features.append(y[0].detach().numpy())
            names.append(TERMINAL if letter == 2 else f"({parity}, {letter})")
            parity = parity ^ (letter == 1)
    kept = [row["state"] for row in summary.rows]
    assert sorted(kept) == sorted(names)
    inner = np.array(names) != TERMINAL
    assert summary.metrics["silhouette_with_terminal"] == pytest.approx(silhouette(np.stack(features), names), abs=1e-4)
    inside = silhouette(np.stack(features)[inner], np.array(names)[inner])
    assert summary.metrics["silhouette"] == pytest.approx(inside, abs=1e-4)
    assert summary.metrics["points"] == inner.sum() == 6 * 8


def test_few_points_are_drawn_alike_and_single_states_left_out():
    features, names = np.arange(33.0)[:, None], np.array(["a", "b"] * 16 + ["c"])
    drawn = [sample(features, names, 20, seed)[0].tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) in (19, 20)
    assert sample(features, names, 40, seed=1)[1].tolist() == ["a", "b"] * 16
    with pytest.raises(UserError, match="fewer than two true states"):
        sample(features[:2], names[:2], 8, seed=1)


# ---- markov


@pytest.fixture(scope="module")
def mazes(tmp_path_factory) -> dict[str, Path]:
    """Memoryless agents that act at random: one that sees the goal at first only, and its twin."""
    folder = tmp_path_factory.mktemp("mazes")
    maze = ["env=tmaze_passive", "env.corridor_length=2", "memory=mlp", *ROLLOUT, "algo.gamma=0.9"]
    views = {"partial": [], "full": ["env.observe=full"]}
    for name, view in views.items():
        train(load([*COMMON, *maze, *view, f"run_dir={folder / name}"]))
    return {name: folder / name for name in views}


def test_values_depend_on_lambda_where_memory_is_missing_and_not_on_the_twin(mazes):
    metrics = measured("markov", mazes["partial"], episodes=800, twin=str(mazes["full"])).metrics
    assert metrics["in_errors"] > 4
    assert abs(metrics["twin_in_errors"]) < 3
    assert metrics["share"] > 10 * abs(metrics["twin_share"])


# ---- extrapolate


@pytest.mark.slow
def test_extrapolation_is_what_rlmem_eval_gives_with_the_same_override(runs):
    summary = measured("extrapolate", runs["gru"], episodes=7, seed=3, over="env.n=4,21")
    for n, row in zip((4, 21), summary.rows, strict=True):
        expected = evaluate_run(runs["gru"], 7, 3, [f"env.n={n}"])["greedy"]
        assert float(row["return_mean"]) == expected["return_mean"] == summary.metrics[f"return/{n}"]
        assert float(row["success_rate"]) == expected["success_rate"] == summary.metrics[f"success/{n}"]
        assert float(row["length_mean"]) == n
        assert float(row["success_low"]) <= expected["success_rate"] <= float(row["success_high"])


LENGTHS = {
    "gru": ("env.n", [5, 9, 10, 11, 12, 13, 17, 25, 41]),
    "ffm": ("env.corridor_length", [7, 14, 21, 28, 42, 56]),
}


@pytest.mark.parametrize("name", fast_only(["gru"], LENGTHS))
def test_the_usual_lengths_follow_from_the_trained_one(runs, name):
    key, lengths = LENGTHS[name]
    summary = measured("extrapolate", runs[name], episodes=1)
    assert [int(row[key]) for row in summary.rows] == lengths
    assert (summary.about["key"], summary.about["trained"]) == (key, 9 if name == "gru" else 14)
    assert np.isnan([summary.rows[0]["return_low"], summary.rows[0]["return_high"]]).all(), "one return has no interval"


# ---- impulse


def test_the_mean_lag_of_a_chain_is_the_sum_of_its_stages():
    summary = measured("impulse", None, pools=7, base=2.0)
    assert [summary.metrics[f"chain/mean_lag_{n}"] for n in (1, 4, 7)] == pytest.approx([1, 26, 247], rel=1e-3)
    assert {summary.metrics[f"parallel/peak_{n}"] for n in range(1, 8)} == {0}
    assert summary.about["slots"] == followed(7, 2.0)


def test_the_pools_of_a_run_are_its_own(runs):
    summary = measured("impulse", runs["lprnn"])
    assert summary.about == {"pools": 3, "base": 2.0, "slots": followed(3, 2.0), "filters": "chain"}


def test_a_string_moves_through_the_pools_as_a_loop_moves_it():
    Q = projections(seed=1)
    kept = stored("abca", 6, 2.0, Q)
    assert torch.allclose(Q @ Q.mT, torch.eye(26, dtype=torch.float64), atol=1e-12)
    pools = np.zeros((6, 26))
    for t in range(len(kept)):
        source = np.eye(26)["abca".index("abca"[t]) if t < 3 else 0] if t < 4 else np.zeros(26)
        for n in range(6):
            pools[n] += 2.0 ** -(n + 1) * (source - pools[n])
            source = np.tanh(Q[n].numpy() @ pools[n]) if n < 5 else None
        assert kept[t] == pytest.approx(pools, abs=1e-12)
    with pytest.raises(UserError, match="letters a to z"):
        stored("A b", 3, 2.0, Q)


@pytest.mark.slow
def test_the_seed_draws_the_projections_of_a_string(tmp_path):
    kept = []
    for seed in (1, 2):
        kept.append(impulse.measure(None, pools=2, string="ab", seed=seed).arrays["string_0"])
    summary = analyze("impulse", None, seed=1, out=tmp_path, pools=2, string="ab")
    kept.append(np.load(tmp_path / "data.npz")["string_0"])
    assert summary.seed == 1
    assert np.array_equal(kept[0], kept[2]) and not np.allclose(kept[0], kept[1])


def test_strings_are_alike_where_every_pool_that_holds_them_says_so():
    one, other = np.zeros((6, 2, 1)), np.zeros((6, 2, 1))
    one[:, 0, 0] = [1.0, 1.0, 0.5, 0.5, 0.01, 0.0]
    one[:, 1, 0] = [0.0, 0.0, 1.0, 2.0, 2.0, 1.0]  # shares of 2
    other[:] = one
    other[1, 0, 0] += 0.5  # before this slot they are the same
    other[3, 1, 0] += 1.0
    assert alike(one, other) == {"alike_1": 2, "alike_2": 3, "alike_all": 1}


# ---- gradients


def test_the_norms_are_those_of_the_whole_jacobian():
    torch.manual_seed(0)
    memory = GRU(3, hidden_size=4).double()
    x, start = torch.randn(1, 9, 3, dtype=torch.float64), torch.eye(1, 9, dtype=torch.bool)
    jacobian = torch.autograd.functional.jacobian(lambda x: memory(x, memory.initial_state(1), start)[0][0, 7], x)
    assert norms(memory, x, start, Cut(0, 7)) == pytest.approx(jacobian[:, 0, :8].square().sum((0, 2)).sqrt().numpy())


@pytest.mark.parametrize(
    ("batching", "reach", "begin"),
    [
        (Segment(length=6), 6, 12),
        (Segment(length=6, overlap=2), 6, 12),
        (Segment(length=6, init_state="zero", burn_in=4), 6, 12),
        (Tape(detach_every=4), 4, 0),
        (Segment(length=7, detach_every=3), 3, 7),
        (Tape(), 20, 0),
    ],
)
def test_beyond_the_truncation_the_gradient_is_exactly_zero(batching, reach, begin):
    torch.manual_seed(0)
    memory = FFM(3, hidden_size=4, trace_size=3, context_size=2).double()
    x, start = torch.randn(1, 20, 3, dtype=torch.float64), torch.eye(1, 20, dtype=torch.bool)
    cut = last_row(batching, 20)
    assert cut.begin == begin
    trained, whole = norms(memory, x, start, cut), norms(memory, x, start, Cut(0, cut.at))
    assert (trained[: cut.at + 1 - reach] == 0).all()
    assert (trained[cut.at + 1 - reach :] > 0).all()
    assert (whole > 0).all()
    if not getattr(batching, "burn_in", 0):
        assert trained[cut.at + 1 - reach :] == pytest.approx(whole[cut.at + 1 - reach :], rel=1e-9)


def test_a_row_shows_what_the_scheme_shows_of_an_episode():
    assert last_row(Segment(length=6), 5) == Cut(0, 4, 0, None)
    assert last_row(Segment(length=6, init_state="zero"), 13) == Cut(6, 11, 0, None)
    assert last_row(Segment(length=6, init_state="zero", burn_in=2), 13) == Cut(6, 11, 2, None)
    assert last_row(Tape(detach_every=4), 11) == Cut(0, 7, 0, 4)
    assert last_row(Segment(length=6, overlap=4), 4) == Cut(0, 3, 0, None)


def test_a_rollout_cuts_an_episode_into_rows_and_a_batch_shows_its_beginning():
    assert last_row(Tape(), 20, shown=6) == Cut(12, 17, 12, None)
    assert last_row(Tape(detach_every=4), 20, shown=6) == Cut(12, 15, 12, 4)
    assert last_row(Segment(length=8), 20, shown=6) == Cut(12, 17, 12, None)
    assert last_row(Segment(length=4), 20, shown=6) == last_row(Segment(length=4), 20)
    assert last_row(Tape(), 20, shown=30) == Cut(0, 19, 0, None)
    assert last_row(Tape(), 20, shown=6, only_first=True) == Cut(0, 5, 0, None)


def test_the_end_of_a_rollout_cuts_the_gradient(runs):
    run = load_run(runs["cue"])
    run.parts.algo.rollout_slots = 3
    run.parts.outline = run.parts.algo.outline(run.parts.plan)
    found = gradients.measure(run, episodes=2)
    assert (found.metrics["last_lag_trained"], found.about["rollout_slots"]) == (2, 3)
    assert found.metrics["share_cut"] > 0
    assert found.pictures["picture"].axes[0].get_title() == "reach of the gradient (rollout_slots=3)"
    run.parts.algo.complete_episodes = True
    run.parts.outline = run.parts.algo.outline(run.parts.plan)
    whole = gradients.measure(run, episodes=2)
    assert whole.metrics["last_lag_trained"] == whole.metrics["last_lag"] == found.metrics["last_lag"]
    assert run.parts.outline.reach is None


def test_gradients_of_a_run_end_at_its_truncation(runs):
    segments = measured("gradients", runs["ffm"], episodes=2)
    assert (segments.metrics["last_lag"], segments.metrics["last_lag_trained"]) == (11, 5)
    assert 0 < segments.metrics["share_cut"] < 1
    assert [float(row["trained"]) > 0 for row in segments.rows] == [True] * 6 + [False] * 6
    detached = measured("gradients", runs["lprnn"], episodes=2)
    assert (detached.metrics["last_lag_trained"], detached.about["detach_every"]) == (4, 5)


# ---- the command


def test_the_command_prints_the_summary_as_json_or_as_lines(runs, tmp_path, capsys):
    command = ["analyze", "ffm", str(runs["ffm"]), "--step", "100", "--out", str(tmp_path)]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "summary.json").read_text())
    assert printed["step"] == 100
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "ffm of" in text and "t_alpha_max" in text and str(tmp_path) in text


REFUSED = yaml.safe_load((ROOT / "tests/data/refusals_of_analyses.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", REFUSED)
def test_a_mistake_is_one_line_that_says_what_is_for_what(runs, line, in_tmp, capsys):
    assert main(["analyze", *line.format(**runs).split()]) == 2
    (answer,) = capsys.readouterr().err.splitlines()
    assert REFUSED[line] in answer
    assert not list(in_tmp.iterdir()), "nothing is written"


def test_missing_packages_are_named_with_what_installs_them(runs, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    with pytest.raises(UserError) as refusal:
        analyze("ffm", runs["ffm"])
    assert str(refusal.value).endswith(
        "needs sklearn, which is not installed; e.g. pip install '.[report]' in a clone of rlmem"
    )


def test_every_option_of_an_analysis_has_a_flag(capsys):
    assert main(["analyze", "--help"]) == 0
    text = capsys.readouterr().out
    for what, analysis in analyses().items():
        assert f"\n  {what} " in text and analysis.purpose in text
        assert [name for name in analysis.options if f"--{name.replace('_', '-')}" not in text] == []


MINE = '''
from rlmem.analysis.output import Result
from rlmem.record.figures import figure


def lengths(run, *, episodes: int = 3, factor: float = 1.0, slots: str = "all"):
    """Lengths of episodes.

    factor: what they are multiplied by
    """
    played = run.play(episodes)
    rows = [{"length": factor * int(n)} for n in played.length]
    mean = sum(row["length"] for row in rows) / len(rows)
    return Result({"mean": mean}, rows, {"picture": figure(2)[0]}, {"slots": slots})
'''


def test_an_analysis_of_the_users_own_is_a_function_whose_arguments_are_flags(runs, in_tmp, capsys):
    (in_tmp / "mine.py").write_text(MINE)
    command = ["analyze", "mine.lengths", str(runs["cue"]), "--factor", "2.5", "--slots", "few", "--out", "found"]
    assert main(command) == 0
    summary = json.loads((in_tmp / "found" / "summary.json").read_text())
    assert (summary["analysis"], summary["about"]) == ("mine.lengths", {"slots": "few"})
    plain = analyze("mine.lengths", runs["cue"], out=in_tmp / "again").metrics["mean"]
    assert summary["metrics"]["mean"] == 2.5 * plain > 0
    for name, said in (("mine.length", "did you mean `lengths`"), ("nowhere.lengths", "no module `nowhere`")):
        capsys.readouterr()
        assert main(["analyze", name, str(runs["cue"])]) == 2
        assert said in capsys.readouterr().err
