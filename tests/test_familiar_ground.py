"""What classical games need: memories without state, defaults that follow from other choices, and what a run says."""

import math

import pytest
import torch
from helpers import small_run
from replayed import ALGOS, generator, live, make_algo
from test_off_policy import LENGTHS, assert_same, gradients
from test_ppo import setup as make_ppo

from rlmem.algos.diagnostics import action_spread, actions_at_bounds, feature_rank, q_spread
from rlmem.batching import Segment, Tape
from rlmem.commands.cli import main
from rlmem.config.compose import explain, load
from rlmem.loops.notices import PATIENCE, Notices
from rlmem.record.recorder import read_jsonl
from rlmem.reproduction import stale as staleness

GYM = ("memory=mlp", "env=gym", "env.id=Pendulum-v1")


@pytest.mark.parametrize("scheme", [Tape(), Segment(4, init_state="zero"), Segment(1)], ids=["tape", "segment", "one"])
@pytest.mark.parametrize("name", ALGOS)
def test_reading_only_the_slots_that_count_changes_neither_loss_nor_gradient(name, scheme):
    algo = make_algo(name, "mlp", n_step=2, shortcut_size=3)
    batch = live(algo, LENGTHS, scheme, rounds=30)[0].sample(scheme, 60, generator(1)).batch
    trunks = [trunk for network in (algo.agent, algo.target) for trunk in network.trunks.trunks]
    assert all(trunk.stateless for trunk in trunks)
    fast = gradients(algo, batch)
    for trunk in trunks:
        trunk.stateless = False
    assert_same(fast, gradients(algo, batch), atol=1e-6, rtol=1e-5)


def test_ppos_minibatches_of_acted_slots_train_as_rows_do(in_tmp, monkeypatch):
    choices = ("memory=mlp", "batching=segment", "batching.length=5", "algo.epochs=2", "total_steps=64")
    short = small_run(*choices, run_dir="short")
    monkeypatch.setattr("rlmem.agents.trunk.Trunks.stateless", False)
    plain = small_run(*choices, run_dir="plain")
    first, second = (
        [row["ppo/value_loss"] for row in read_jsonl(run / "metrics.jsonl") if "ppo/value_loss" in row]
        for run in (short, plain)
    )
    assert len(first) > 1
    assert first == pytest.approx(second, rel=1e-5)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("memory=mlp algo=sac total_steps=20000", "transitions 256 1.0 4"),
        ("memory=mlp algo=sac total_steps=20000 batching=tape", "tape 1000 1.0 4"),
        ("memory=mlp algo=sac total_steps=20000 algo.batch_size=64 env.num_envs=2", "transitions 64 1.0 2"),
        ("memory=mlp algo=sac total_steps=20000 algo.update_ratio=0.5", "transitions 256 0.5 4"),
        ("memory=gru algo=td3 total_steps=300000", "tape 1000 0.25 8"),
        ("memory=gru algo=td3", "tape 1000 0.05 8"),
        ("memory=mlp algo=dqn_memoroid", "tape 1000 1.0 8"),
        ("memory=mlp algo=dqn env=gym env.id=CartPole-v1 total_steps=50000", "short_segments 256 0.5 8 5"),
        ("memory=mlp algo=dqn env=gym env.id=CartPole-v1 total_steps=300000", "short_segments 256 0.25 8 5"),
        ("memory=mlp algo=dqn env=gym env.id=CartPole-v1 batching=transitions", "transitions 256 0.05 8 1"),
        ("memory=mlp algo=dqn env=gym env.id=CartPole-v1 algo.n_step=3", "short_segments 256 0.05 8 3"),
        ("memory=gru algo=dqn env=gym env.id=CartPole-v1", "tape 1000 0.05 8 5"),
        ("memory=mlp algo=dqn", "transitions 256 0.05 8 1"),
        ("memory=mlp algo=sac algo.n_step=1 total_steps=20000", "transitions 256 1.0 4"),
        ("memory=mlp algo=dqn env=gym env.id=CartPole-v1 algo.n_step=1", "transitions 256 0.05 8 1"),
        ("memory=mlp algo=dqn algo.n_step=12", "short_segments 256 0.05 8 12"),
        ("memory=mlp algo=sac algo.n_step=3 total_steps=20000", "short_segments 256 1.0 4"),
        ("memory=mlp algo=ppo", "tape None None 39"),  # 500,000 steps
        ("memory=mlp algo=ppo env=repeat_first", "tape None None 64"),
        ("memory=mlp algo=ppo env=gym env.id=CartPole-v1", "transitions None None 64"),
        ("memory=mlp algo=ppo_popgym total_steps=100000", "tape None None 64"),
        ("memory=ffm algo=ppo total_steps=256000", "tape None None 20"),
        ("memory=ffm algo=ppo total_steps=256000 trainer.devices=8", "tape None None 16"),
        ("memory=ffm algo=ppo total_steps=1000", "tape None None 8"),
        ("memory=gru algo=sac total_steps=20000 batching=transitions", "transitions 256 1.0 4"),
        ("memory=mlp algo=sac total_steps=20000 batching.length=32", "transitions 1000 1.0 4"),
    ],
)
def test_defaults_follow_from_other_choices_but_never_replace_what_was_given(lines, expected):
    config = load(lines.split())
    algo, env = config.values["algo"], config.values["env"]
    found = config.choices["batching"], algo.get("batch_size"), algo.get("update_ratio"), env["num_envs"]
    n_step = [algo["n_step"]] if config.choices["algo"] == "dqn" else []
    assert " ".join(map(str, [*found, *n_step])) == expected
    if "short" in expected:
        assert config.values["batching"]["length"] == max(8, algo["n_step"])
    if config.choices["algo"] == "dqn":
        squared = algo["td_loss"], algo["tau"], config.values["encoder"]["normalise_obs"]
        assert squared == (("squared", 0.01, True) if "gym" in lines else ("huber", 0.005, False))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("memory=mlp env=gym env.id=CartPole-v1", 32),
        ("memory=mlp env=gym env.id=CartPole-v1 total_steps=100000", 15),  # 8 environments, 125 slots
        ("memory=mlp env=gym env.id=CartPole-v1 total_steps=100000 trainer.devices=4", 3),
        ("memory=mlp env=gym env.id=CartPole-v1 total_steps=100000 algo.num_minibatches=32", 32),
        ("memory=mlp env=gym env.id=CartPole-v1 env.num_envs=1 algo.rollout_slots=32", 1),
        ("memory=mlp total_steps=100000", 8),
    ],
)
def test_minibatches_of_ppo_keep_transitions_enough(lines, expected):
    assert load(["algo=ppo", *lines.split()]).values["algo"]["num_minibatches"] == expected


def test_a_memoryless_critic_reads_familiar_games_as_they_are_unless_its_encoder_was_asked_for():
    chosen = [
        load(["env=gym", "env.id=Pendulum-v1", *lines.split()]).choices["encoder"]
        for lines in (
            "memory=mlp algo=sac",
            "memory=mlp algo=sac encoder.normalise_obs=true",
            "memory=mlp algo=sac encoder=mlp",
            "memory=mlp algo=sac encoder.hidden_size=32",
            "memory=mlp algo=ppo",
            "memory=gru algo=sac",
        )
    ]
    assert chosen == ["plain", "plain", "mlp", "mlp", "mlp", "mlp"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", ("geometric", 500_000)),
        ("memory.init=published total_steps=1000", ("published", 1000)),
        ("algo=dqn", ("published", 1_500_000)),
        ("memory.version=memoroid", ("published", 500_000)),
        ("env=repeat_first", ("published", 1_500_000)),
        ("memory=gru", ("torch", 500_000)),
    ],
)
def test_the_demo_has_ffm_begin_with_periods_of_some_slots(lines, expected):
    config = load(lines.split())
    assert (config.values["memory"]["init"], config.settings.total_steps) == expected


def test_rows_without_a_bound_are_longer_than_any_return():
    config = load(["memory=mlp", "algo=dqn", "env=gym", "env.id=CartPole-v1", "batching.length=64"])
    assert config.values["algo"]["n_step"] == 5
    line = ["batching=short_segments", "batching.length=null", "batching.running=false", "memory=gru", "algo=sac"]
    assert load([*line, "env=position_only_pendulum"]).values["batching"]["length"] is None


def test_a_rule_says_why(capsys):
    _, origins = explain([*GYM, "algo=sac", "total_steps=20000"])
    assert origins["algo.update_ratio"] == "rule: 75,000 updates in all, at most 1 per step"
    main(["config", *GYM, "algo=sac", "total_steps=20000"])
    assert "# batching=transitions: a memory without state gains nothing from longer rows" in capsys.readouterr().out
    main(["train", *GYM, "algo=sac", "total_steps=20000", "--dry-run"])
    assert "fitted    batching=transitions encoder=plain algo.batch_size=256" in capsys.readouterr().out


def test_a_run_says_that_its_batches_hold_few_episodes_and_that_its_updates_are_few(in_tmp):
    lines = ("algo.batch_size=40", "algo.learning_starts=100", "algo.random_steps=100", "algo.record_every=200")
    run = small_run("algo=dqn", "batching=tape", "algo.update_ratio=0.05", *lines, "total_steps=1600",
                    base=("env=repeat_first", "memory=mlp", "env.num_envs=2", "evaluation.episodes=2"))  # fmt: skip
    log = (run / "log.txt").read_text()
    assert "a batch holds about 1.0 episodes; from fewer than 8, learning is unsteady" in log
    assert log.count("learning is unsteady") == 1
    assert "this run makes about 75 updates, with which it can learn little" in log


def test_a_policy_that_has_stopped_moving_is_reported_once():
    lines: list[str] = []
    notices = Notices(lines.append)
    stuck, moving = ({"actions_at_bounds": 1.0, "action_spread": spread} for spread in (0.0, 0.9))
    for metrics in [stuck] * (PATIENCE - 1) + [moving] + [stuck] * (PATIENCE - 1):
        notices.saturation(metrics, "e.g. this")
    assert not lines, "bang-bang control, and a short while at one bound, are no fault"
    resumed = Notices(lines.append)
    resumed.load_state_dict(notices.state_dict())
    for _ in range(3):
        resumed.saturation(stuck, "e.g. this")
    assert len(lines) == 1
    assert "the policy stands still: 100% of its actions lie at a bound" in lines[0]


def test_diagnostics_by_hand():
    spectrum = torch.diag(torch.tensor([90.0, 9.5, 0.4, 0.1]))  # 90 % + 9.5 % is more than 99 %
    assert feature_rank(spectrum) == 2
    assert feature_rank(torch.ones(500, 7)) == 1
    action = torch.tensor([[1.0, -0.5], [0.995, 0.5]])
    assert actions_at_bounds(action) == 0.5
    assert action_spread(action).item() == pytest.approx((0.0025 + 0.5) / 2)
    assert q_spread(torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])) == 1.0


@pytest.mark.parametrize("choice", ["td3 pendulum", "sac pendulum", "dqn cartpole", "sacd cartpole"])
def test_a_run_records_diagnostics(in_tmp, choice):
    algo, env = choice.split()
    lines = (f"algo={algo}", f"env={env}", "algo.batch_size=8", "total_steps=600", "algo.update_ratio=0.05")
    starts = ("algo.learning_starts=100", "algo.random_steps=100", "algo.record_every=300", "algo.head_sizes=[8]")
    run = small_run(*lines, *starts, "evaluation.episodes=2", base=("memory=mlp", "memory.hidden_size=8"))
    row = [row for row in read_jsonl(run / "metrics.jsonl") if f"{algo}/feature_rank" in row][-1]
    assert 1 <= row[f"{algo}/feature_rank"] <= 8
    assert row[f"{algo}/q_spread"] > 0
    if env == "pendulum":
        assert 0 <= row[f"{algo}/actions_at_bounds"] <= 1
        assert row[f"{algo}/action_spread"] >= 0
    assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))


def test_results_of_older_versions_are_marked_stale(monkeypatch):
    changes = [{"since": "0.2.0", "of": {"algo": ["dqn"], "memory": ["lru"]}, "what": "the loss"}]
    monkeypatch.setattr(staleness, "_changes", lambda: changes)
    assert staleness.stale("memoroids/figure4", "laptop") == ["the loss"]
    assert staleness.stale("ffm/table4", "laptop") == []
    assert staleness.stale("ffm/table4", "paper") == [], "there are no such results"
    changes[0]["since"] = "0.1.0"
    assert staleness.stale("memoroids/figure4", "laptop") == []


def test_a_policy_of_ppo_far_outside_the_bounds_counts_as_one_that_stands_still():
    algo = make_ppo("mlp", "PositionOnlyPendulum")[0]
    found = algo.diagnose(torch.randn(200, 8), 15 + 0.6 * torch.randn(200, 1))
    assert found["actions_at_bounds"] == 1.0
    assert found["action_spread"] == 0.0


@pytest.mark.parametrize("name", ["sac", "dqn"])
def test_a_state_without_tensors_may_be_any_tree(in_tmp, name):
    """A stack of layers without state has a tuple of empty states."""
    layers = ("memory=stack", "memory.layer._target_=rlmem.memory.mlp.MLP", "memory.hidden_size=8")
    env = "pendulum" if name == "sac" else "cartpole"
    lines = (f"algo={name}", f"env={env}", "algo.batch_size=8", "total_steps=600", "algo.update_ratio=0.01")
    starts = ("algo.learning_starts=100", "algo.random_steps=100", "evaluation.episodes=2")
    run = small_run(*lines, *starts, base=layers)
    assert read_jsonl(run / "metrics.jsonl")[-2]["update"] > 0
