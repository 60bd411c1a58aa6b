"""Off-policy runs: what the loop counts, warm-up, resume, options end to end, refusals."""

import math
import signal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from helpers import assert_same_end, saved, small_run
from rlmem_envs.vector import vectorise
from small_runs import REPLAY, REPLAY_CHOICES, REPLAY_TASKS

from rlmem.acting.collector import Collector
from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core.command import Stopped
from rlmem.loops.off_policy import OffPolicyLoop
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import resume, train

run = partial(small_run, base=REPLAY)


class Noted(gym.Env):
    """Ten steps of nothing. Every environment that was made keeps the actions that it took."""

    made: ClassVar[list] = []

    def __init__(self, action_space):
        self.observation_space, self.action_space, self.actions = gym.spaces.Discrete(2), action_space, []
        Noted.made.append(self)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return 0, {}

    def step(self, action):
        self.actions.append(action)
        self.t += 1
        return 0, 0.5, self.t == 10, False, {}


def make_noted(
    name: str, num_envs: int = 4, max_episode_steps: int | None = None, **others: object
) -> gym.vector.VectorEnv:
    space = {
        "box": gym.spaces.Box(np.array([-2, 0], np.float32), np.array([3, 1], np.float32)),
        "unbounded": gym.spaces.Box(-np.inf, np.inf, (1,), np.float32),
        "discrete": gym.spaces.Discrete(3, start=5),
    }[name]
    return vectorise(lambda: Noted(space), num_envs, max_episode_steps)


def noted(name: str, *overrides: str) -> tuple[list[dict], np.ndarray]:
    """The metrics of a run on four `Noted` environments, and the actions [step, environment, ...] of its training."""
    Noted.made.clear()
    run(f"env._target_={__name__}.make_noted", f"env.name={name}", *overrides)
    return read_jsonl(Path("run/metrics.jsonl")), np.stack([env.actions for env in Noted.made[:4]], 1)


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("ratio", "learning_starts"),
    [
        (0.05, 100),
        pytest.param(1.7, 0, marks=slow),
        pytest.param(0.05, 0, marks=slow),
        pytest.param(0.3, 0, marks=slow),
        pytest.param(0.3, 100, marks=slow),
        pytest.param(1.7, 100, marks=slow),
    ],
)
def test_updates_are_the_ratio_times_the_steps_that_count(in_tmp, ratio, learning_starts):
    """A round is a step in each of four environments; those count in which there are enough steps and an episode."""
    settings = [f"algo.update_ratio={ratio}", f"algo.learning_starts={learning_starts}", "algo.record_every=1"]
    rows, taken = noted("discrete", "algo=dqn", "memory=mlp", "algo.batch_size=5", "total_steps=402", *settings)
    first, ratio = 96 if learning_starts else 40, Fraction(str(ratio))
    updates = {row["step"]: row["update"] for row in rows if "update" in row}
    assert updates == {step: max(0, math.floor(ratio * (step - first))) for step in [*range(4, 401, 4), 402]}
    assert len(taken) == 101, "steps of a vector whose last one counts for half of it"


@pytest.mark.parametrize(
    ("ratio", "learning_starts"),
    [
        (0.3, 100),
        (2.5, 0),
        pytest.param(0.3, 0, marks=slow),
        pytest.param(1, 0, marks=slow),
        pytest.param(1, 100, marks=slow),
        pytest.param(2.5, 100, marks=slow),
    ],
)
def test_updates_per_episode_are_the_ratio_times_the_episodes(in_tmp, ratio, learning_starts):
    settings = [f"algo.update_ratio={ratio}", f"algo.learning_starts={learning_starts}", "algo.update_per=episode"]
    rows, _ = noted("discrete", "algo=dqn", "memory=mlp", "algo.batch_size=5", "total_steps=400", *settings)
    episodes = 4 * (7 if learning_starts else 9)  # the last of each environment is complete only after the run
    assert rows[-2]["update"] == math.floor(ratio * episodes)


@pytest.mark.parametrize(("running", "updates"), [("true", 41), ("false", 0)])
def test_only_transitions_of_running_episodes_are_learnt_before_one_has_ended(in_tmp, running, updates):
    agent = ["algo=sac", "memory=mlp", "batching=transitions", f"batching.running={running}", "algo.batch_size=8"]
    steps = ["total_steps=120", "algo.learning_starts=80", "algo.random_steps=80", "algo.update_ratio=1"]
    made = run(*agent, *steps, "env=pendulum", "env.num_envs=1", "evaluation.episodes=1")
    rows = read_jsonl(made / "metrics.jsonl")
    assert max(row.get("update", 0) for row in rows) == updates
    assert ("learning waits for the end of a first episode" in (made / "log.txt").read_text()) == (not updates)


def test_what_never_reaches_a_full_return_is_said_before_training(in_tmp):
    run("algo=dqn", "env=repeat_first", "batching=segment", "batching.length=4", "algo.n_step=8", "total_steps=110")
    assert "algo.n_step=8: no row holds more than 4 rewards" in Path("run/log.txt").read_text()


def test_random_steps_reach_the_whole_box_and_end_when_they_should(in_tmp):
    _, taken = noted("box", "algo=td3", "algo.exploration_noise=0", "algo.random_steps=400", "algo.learning_starts=499")
    random, policys = (part.reshape(-1, 2) for part in (taken[:100], taken[100:]))
    low, high = np.array([-2, 0]), np.array([3, 1])
    levels = np.linspace(0, 1, 6)
    for unit in ((random - low) / (high - low)).T:
        assert np.quantile(unit, levels) == pytest.approx(levels, abs=0.08)
    assert np.abs((policys - low) / (high - low) - 0.5).max() < 0.1, "a fresh policy acts near the middle"


def test_random_actions_end_when_they_should(in_tmp):
    greedy = ["algo.epsilon_start=0", "algo.epsilon_end=0", "encoder.prev_action=false", "encoder.start_flag=false"]
    lines = ["algo=dqn", "memory=mlp", "algo.random_steps=400", "algo.learning_starts=499", "algo.record_every=1"]
    rows, taken = noted("discrete", *lines, *greedy)
    chances = {row["step"]: row["explore/epsilon"] for row in rows if "explore/epsilon" in row}
    assert chances[4] == 1.0 and chances[max(chances)] == 0.0
    counts = np.bincount(taken[:100].flatten(), minlength=8)[5:]
    assert counts / 400 == pytest.approx([1 / 3] * 3, abs=0.08)
    assert len(set(taken[100:].flatten())) == 1


@pytest.mark.parametrize(("name", "choice"), [("dqn", "tape"), pytest.param("td3", "segments", marks=slow)])
def test_a_run_that_is_told_to_stop_saves_within_an_iteration_and_resumes_exactly(in_tmp, monkeypatch, name, choice):
    choices = [*REPLAY_TASKS[name], *REPLAY_CHOICES[choice], "algo.update_ratio=0.07"]
    whole = run(*choices, run_dir="whole")
    collect, calls = Collector.collect, []

    def is_told_at_the_sixtieth(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 60:
            signal.raise_signal(signal.SIGTERM)
        return collect(self, *args, **kwargs)

    monkeypatch.setattr(Collector, "collect", is_told_at_the_sixtieth)
    with pytest.raises(Stopped):
        run(*choices, run_dir="cut")
    monkeypatch.setattr(Collector, "collect", collect)
    assert Checkpoints(Path("cut/checkpoints")).load()[1]["collector"]["steps"] == 240
    assert read_jsonl(Path("cut/metrics.jsonl"))[-1]["step"] == 200, "the iteration was to end at 300"
    resume(Path("cut"), [])
    assert_same_end(whole, Path("cut"))


@pytest.mark.parametrize(("name", "choice"), [("sac", "segments"), pytest.param("sacd", "tape", marks=slow)])
def test_a_finished_run_can_be_trained_longer_even_if_it_ended_within_a_step(in_tmp, name, choice):
    """The last step of the first run counts for two of four environments: the replay keeps the holes of the others."""
    run_dir = run(
        *REPLAY_TASKS[name],
        *REPLAY_CHOICES[choice],
        "total_steps=502",
        "algo.update_ratio=0.1",
        "algo.batch_size=400",
        "memory=mlp",
    )
    resume(run_dir, ["total_steps=801"])
    rows = [row for row in read_jsonl(run_dir / "metrics.jsonl") if "update" in row]
    assert rows[-1]["step"] == 801
    assert rows[-1]["update"] > 60
    assert min(row.get("batch/transitions", 400) for row in rows) < 400, "no hole was read"
    assert all(math.isfinite(value) for row in rows for value in row.values())


ENDS = {
    "priorities on tapes": ["dqn", "algo.priority_exponent=0.9", "algo.importance_exponent=0.6", "batching.rows=2"],
    "priorities on segments": ["sac", "algo.priority_exponent=0.6", "batching=segment", "batching.length=6"],
    "Memoroids' release": ["dqn", "algo.target_memory=fresh_next_obs", "algo.td_loss=huber_of_mean", "batching=segment",
                           "batching.length=10", "batching.rows=4", "batching.init_state=zero", "algo.lr_warmup=3"],
    "Memory-RL's shared form": ["sacd", "algo.separate=false", "algo.memory_gradient=both", "algo.target_memory=online",
                                "algo.learn_temperature=false"],
    "recomputed states": ["td3", "batching=segment", "batching.length=7", "batching.init_state=recompute",
                          "batching.overlap=3", "algo.separate=false", "algo.freeze_critic=false"],
    "embeddings and a shortcut": ["sac", "encoder=embeddings", "encoder.shortcut_size=4"],
    "joint actions": ["dqn", "env=battleship", "algo.epsilon_schedule=exponential", "algo.n_step=5"],
    "several slots between updates": ["sacd", "algo.collect_slots=7", "algo.gamma=0.5"],
}  # fmt: skip


AT_ONCE = {"priorities on segments", "Memoroids' release"}
"""Two that share no option; the others are slow."""


@pytest.mark.parametrize("what", [what if what in AT_ONCE else pytest.param(what, marks=slow) for what in ENDS])
def test_options_run_end_to_end(in_tmp, what):
    name, *options = ENDS[what]
    mlp = "encoder=embeddings" not in options
    small = [override for override in REPLAY if mlp or not override.startswith("encoder.")]
    train(load([*small, "run_dir=run", *REPLAY_TASKS[name], *options]))
    rows = read_jsonl(Path("run/metrics.jsonl"))
    assert rows[-1]["step"] == 500
    assert rows[-2]["update"] > 3
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert math.isfinite(evaluate_run(Path("run"), episodes=2)["sampled"]["return_mean"])
    if "priorities" in what:
        assert len(saved(Path("run"))["['replay']['table']['rows']['weight']"].unique()) > 1


def test_a_run_says_what_it_chose_and_what_it_cannot_learn(in_tmp):
    run(*REPLAY_TASKS["sacd"], "env.max_episode_steps=null", "batching=tape", run_dir="room")
    log = Path("room/log.txt").read_text()
    assert "an episode of 51 transitions does not fit into a row of 40" in log
    assert "algo.batch_size=51" in log
    assert "rewards are learnt from times 51 (algo.reward_scale)" in log  # each is 1/51 or -1/51
    assert log.count("does not fit") == 1
    run(*REPLAY_TASKS["sacd"], "env.max_episode_steps=null", "total_steps=190", run_dir="short")
    assert "learning waits for the end of a first episode" in Path("short/log.txt").read_text()


def test_gradients_are_measured_where_there_are_any(in_tmp):
    """TD3's actor has a gradient at every second update only; the mean is over those."""
    directory = run(*REPLAY_TASKS["td3"], "algo.update_ratio=0.01", "algo.record_every=400", "total_steps=600")
    rows = [row for row in read_jsonl(directory / "metrics.jsonl") if "td3/critic_grad_norm" in row]
    assert rows
    assert all(row["td3/actor_grad_norm"] > 0 for row in rows if row["update"] > 1)


def test_resuming_to_the_step_that_was_reached_evaluates(in_tmp, monkeypatch):
    advance = OffPolicyLoop.advance

    def stops(self):
        done = advance(self)
        self.stop = Stopped(signal.SIGTERM) if self.updates else None
        return done

    monkeypatch.setattr(OffPolicyLoop, "advance", stops)
    with pytest.raises(Stopped):
        run(*REPLAY_TASKS["dqn"])
    monkeypatch.setattr(OffPolicyLoop, "advance", advance)
    reached = read_jsonl(Path("run/metrics.jsonl"))[-1]["step"]
    assert reached < 500
    assert isinstance(resume(Path("run"), [f"total_steps={reached}"]).objective, float)
    assert "eval/greedy/return_mean" in read_jsonl(Path("run/metrics.jsonl"))[-1]


@pytest.mark.slow
def test_a_sweep_over_algorithms_may_set_what_only_they_have(in_tmp):
    small = [part for part in REPLAY if not part.startswith("total_steps")]
    sweep = ["train", "-m", "algo=dqn,sacd", "env=repeat_first", "memory=gru", "total_steps=300", *small]
    assert main(sweep) == 0
    assert len(list(in_tmp.glob("runs/**/run.json"))) == 2
