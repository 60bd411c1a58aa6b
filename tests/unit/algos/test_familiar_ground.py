"""What classical games need: memories without state, defaults that follow from other choices, and what a run says."""

import math
from itertools import product

import pytest
import torch
from helpers import fast_only, small_run
from learnt import make_ppo
from replayed import ALGOS, LENGTHS, assert_same_gradients, generator, gradients, live, make_algo

from rlmem.algos.off_policy import q_spread
from rlmem.algos.on_policy import action_spread, actions_at_bounds, feature_rank
from rlmem.batching import Segment, Tape
from rlmem.commands.cli import main
from rlmem.config.catalog import catalog
from rlmem.config.compose import explain, load
from rlmem.evidence import items
from rlmem.loops.base import PATIENCE, Notices
from rlmem.loops.on_policy import ADVICE
from rlmem.record.recorder import read_jsonl


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
    assert_same_gradients(fast, gradients(algo, batch), atol=1e-6, rtol=1e-5)


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
        ("algo=sac total_steps=20000", "1.0 4"),
        ("algo=sac total_steps=20000 algo.update_ratio=0.5", "0.5 4"),
        ("algo=td3", "0.05 8"),
        ("algo=dqn env=gym env.id=CartPole-v1 total_steps=50000", "0.5 8"),
        ("algo=dqn env=gym env.id=CartPole-v1", "0.05 8"),
        ("algo=dqn total_steps=50000", "1.0 8"),
        ("algo=dqn total_steps=50000 algo.update_per=episode", "0.05 8"),
        ("algo=ppo", "None 39"),  # 500,000 steps
        ("algo=ppo env=repeat_first", "None 64"),
        ("algo=ppo total_steps=256000 algo.rollout_slots=64", "None 20"),
        ("algo=ppo total_steps=256000 trainer.devices=8", "None 16"),
        ("algo=ppo total_steps=1000", "None 8"),
    ],
)
def test_defaults_follow_from_task_and_budget_but_never_replace_what_was_given(lines, expected):
    values = load(lines.split()).values
    assert f"{values['algo'].get('update_ratio')} {values['env']['num_envs']}" == expected


def test_dqn_on_familiar_games_has_returns_of_several_steps_unless_others_are_given():
    game = ["algo=dqn", "env=gym", "env.id=CartPole-v1"]
    values = load(game).values
    names = ("n_step", "td_loss", "tau")
    assert [*map(values["algo"].get, names), values["encoder"]["normalise_obs"]] == [5, "squared", 0.01, True]
    given = load([*game, "algo.n_step=1", "encoder.normalise_obs=false"]).values
    assert (given["algo"]["n_step"], given["encoder"]["normalise_obs"]) == (1, False)
    assert "normalise_obs" not in load([*game, "encoder=cnn"]).values["encoder"]


MEMORIES = ("mlp", "gru", "shm")
"""One without a state, and with states of one tensor and of several."""
TASKS = list(catalog()["env"])
REQUIRED = {"gym": ["env.id=CartPole-v1"], "pomdp": ["env.file=a.POMDP"]}
FAST = (("ppo", "repeat_previous"), ("dqn", "gym"), ("sac", "half_cheetah_p"))
"""Algorithms and tasks that conf/_tasks has defaults for, or that have other numbers of environments."""
CROSSED = [*FAST, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in product(("ppo", "dqn", "sac"), TASKS))]


@pytest.mark.parametrize(("algo", "env"), CROSSED)
def test_a_control_is_trained_like_what_it_controls(algo, env):
    """In a short run, an agent without memory differs from others in its memory alone."""
    found = {}
    for memory in MEMORIES:
        lines = [f"memory={memory}", f"algo={algo}", f"env={env}", *REQUIRED.get(env, []), "total_steps=40000"]
        config = load(lines)
        found[memory] = [{key: of[key] for key in of if key != "memory"} for of in (config.values, config.choices)]
    for memory in MEMORIES:
        assert found[memory] == found["mlp"], memory


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", ("geometric", 500_000)),
        ("memory.init=published total_steps=1000", ("published", 1000)),
        ("algo=dqn", ("published", 1_500_000)),
        ("memory=gru", ("torch", 500_000)),
    ],
)
def test_the_demo_has_ffm_begin_with_periods_of_some_slots(lines, expected):
    config = load(lines.split())
    assert (config.values["memory"]["init"], config.settings.total_steps) == expected


def test_a_default_of_a_task_or_budget_says_where_it_comes_from(capsys):
    lines = ["memory=mlp", "algo=dqn", "env=gym", "env.id=CartPole-v1", "total_steps=50000", "algo.tau=0.02"]
    _, origins = explain(lines)
    assert origins["algo.update_ratio"] == "rule: 75,000 updates in all, at most 0.5 per step"
    assert origins["algo.n_step"] == "conf/_tasks/dqn/gym.yaml:4"
    assert origins["algo.tau"] == "command line"
    main(["config", *lines])
    assert "# rule: 75,000 updates in all, at most 0.5 per step" in capsys.readouterr().out
    main(["train", *lines, "--dry-run"])
    fitted = "fitted    algo.n_step=5 algo.td_loss=squared algo.update_ratio=0.5 encoder.normalise_obs=true"
    assert fitted in capsys.readouterr().out


def test_a_policy_that_has_stopped_moving_is_reported_once():
    lines: list[str] = []
    notices = Notices(lines.append)
    stuck, moving = ({"actions_at_bounds": 1.0, "action_spread": spread} for spread in (0.0, 0.9))
    for metrics in [stuck] * (PATIENCE - 1) + [moving] + [stuck] * (PATIENCE - 1):
        notices.read(metrics, None, ADVICE)
    assert not lines, "bang-bang control, and a short while at one bound, are no fault"
    resumed = Notices(lines.append)
    resumed.load_state_dict(notices.state_dict())
    for _ in range(3):
        resumed.read(stuck, None, ADVICE)
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


@pytest.mark.parametrize(
    "choice",
    fast_only(["dqn cartpole"], ["td3 pendulum", "sac pendulum", "dqn cartpole", "sacd cartpole"]),
)
def test_a_run_records_diagnostics(in_tmp, choice):
    """Also of a stack of layers without state, whose state is a tuple of empty ones."""
    algo, env = choice.split()
    lines = (f"algo={algo}", f"env={env}", "algo.batch_size=8", "total_steps=300", "algo.update_ratio=0.05")
    starts = ("algo.learning_starts=100", "algo.random_steps=100", "algo.record_every=150", "algo.head_sizes=[8]")
    memory = ("memory=stack", "memory.layer._target_=rlmem.memory.mlp.MLP", "memory.hidden_size=8")
    run = small_run(*lines, *starts, "evaluation.episodes=2", "evaluation.max_steps=10", base=memory)
    row = [row for row in read_jsonl(run / "metrics.jsonl") if f"{algo}/feature_rank" in row][-1]
    assert 1 <= row[f"{algo}/feature_rank"] <= 8
    assert row[f"{algo}/q_spread"] > 0
    if env == "pendulum":
        assert 0 <= row[f"{algo}/actions_at_bounds"] <= 1
        assert row[f"{algo}/action_spread"] >= 0
    assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))


def test_results_of_older_versions_are_marked_stale(monkeypatch):
    changes = [{"since": "0.2.0", "of": {"algo": ["dqn"], "memory": ["lru"]}, "what": "the loss"}]
    monkeypatch.setattr(items, "_changes", lambda: changes)
    assert items.standing(items.find("memoroids/figure4").at("laptop")).changes == ("the loss",)
    assert items.standing(items.find("ffm/table4").at("laptop")).changes == ()
    assert items.standing(items.find("ffm/table4").at("paper")).changes == (), "there are no such results"
    changes[0]["since"] = "0.1.0"
    assert items.standing(items.find("memoroids/figure4").at("laptop")).changes == ()


def test_a_policy_of_ppo_far_outside_the_bounds_counts_as_one_that_stands_still():
    algo = make_ppo("mlp", "PositionOnlyPendulum")[0]
    found = algo.diagnose(torch.randn(200, 8), 15 + 0.6 * torch.randn(200, 1))
    assert found["actions_at_bounds"] == 1.0
    assert found["action_spread"] == 0.0
