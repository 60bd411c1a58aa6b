"""The library: an agent in one's hands acts as in evaluation, and a run in Python is the run of the command line."""

import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import product
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import VectorWrapper
from helpers import SMALLEST, TINY, assert_same_weights, fast_only, small_run, without_time
from small_runs import CONTINUOUS, DISCRETE, LIVED, MATRIX, OFF_POLICY, REPLAYED
from torch.utils._pytree import tree_leaves

import rlmem
from rlmem.acting.evaluate import Request, evaluate
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams

EPISODES, ENVS = 200, 64
KINDS = {"recurrent": "gru", "scan": "ffm", "window": "gpt"}
CASES = fast_only({("ppo", "window"), ("sac", "scan")}, product((*LIVED, *OFF_POLICY), KINDS))
READS = ["encoder.prev_action=true", "encoder.prev_reward=true", "encoder.start_flag=true"]


class Watched(VectorWrapper):
    """Keeps what it was told to do."""

    def __init__(self, env):
        super().__init__(env)
        self.actions = []

    def step(self, actions):
        self.actions.append(actions.copy())
        return super().step(actions)


@pytest.mark.parametrize(("algo", "kind"), CASES)
def test_an_agent_in_ones_hands_acts_as_in_evaluation(in_tmp, algo, kind):
    env = CONTINUOUS if algo in ("sac", "td3") else DISCRETE
    more = ["algo.epsilon_per=episode", "algo.epsilon_end=0.3"] if algo == "dqn" else []
    memory = [f"memory={KINDS[kind]}", "memory.hidden_size=16"]
    small_run(env, *memory, f"algo={algo}", *LIVED.get(algo, REPLAYED), *READS, *more, base=MATRIX)
    agent = rlmem.load("run", seed=7)
    assert agent.reads_reward
    name = env.removeprefix("env=")
    for greedy in (True, False):
        watched = Watched(rlmem.make_env(name, ENVS, max_episode_steps=15))
        request = Request(EPISODES, Streams(7), agent.device, exploration=agent.exploration)
        evaluate(agent.network, watched, request, greedy)
        env = rlmem.make_env(name, ENVS, max_episode_steps=15)
        state = agent.initial_state(ENVS)
        obs, _ = env.reset(seed=Streams(7).int("evaluation/env"))
        reward, start, ended = None, None, np.zeros(ENVS, bool)
        for expected in watched.actions:
            action, state = agent.act(obs, state, start=start, reward=reward, greedy=greedy)
            np.testing.assert_array_equal(action, expected)
            start = ended
            obs, reward, terminated, truncated, _ = env.step(action)
            ended = terminated | truncated


def test_one_environment_needs_no_leading_dimension(in_tmp):
    small_run("env=gym", "env.id=CartPole-v1", "memory=gru")
    agent, env = rlmem.load(Path("run")), gym.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    state, ended = agent.initial_state(), False
    while not ended:
        action, state = agent.act(obs, state)
        assert env.action_space.contains(action)
        obs, _, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
    with pytest.raises(UserError, match=r"obs: observation 1e\+300; expected a finite number of float32"):
        agent.act([0, 1e300, 0, 0], agent.initial_state())
    with pytest.raises(UserError, match="obs: expected an array, got rows of several lengths"):
        agent.act([0, [1, 2], 0, 0], agent.initial_state())
    again, _ = agent.act(obs, agent.initial_state())
    assert again == agent.act(obs, state, start=True)[0]


@pytest.mark.parametrize("memory", fast_only(["ffm"], ["gru", "ffm", "lru", "s4d"]))
def test_changed_weights_are_seen_and_threads_do_not_mix(in_tmp, memory):
    small_run(f"memory={memory}", "memory.hidden_size=16")
    agent, obs = rlmem.load("run"), np.array([1, 2])

    def read(acts):
        _, state = acts.act(obs, acts.initial_state(2), greedy=True)
        return torch.cat([leaf.flatten().abs() for leaf in tree_leaves(acts.act(obs, state)[1].memory)])

    read(agent)
    for name, parameter in agent.network.named_parameters():
        if ".memory." in name:
            with torch.no_grad():
                parameter.mul_(1.1)
            fresh = rlmem.load("run")
            fresh.network.load_state_dict(agent.network.state_dict())
            assert torch.equal(read(agent), read(fresh)), name
    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(lambda _: read(agent), range(40)))
    assert all(torch.equal(one, several[0]) for one in several)


def test_a_mistake_is_one_clear_line(in_tmp):
    small_run("memory=gru", *READS)
    agent = rlmem.load("run")
    first = agent.initial_state(2)
    _, state = agent.act([0, 1], first)
    mistakes = {
        r"obs: .*\(2,\), got \(3,\)": lambda: agent.act(np.zeros(3, int), first),
        "obs: .*float64; expected int64": lambda: agent.act([0.5, 1.5], first),
        "obs: environment 1: observation 9 .*Discrete": lambda: agent.act([0, 9], first),
        "start: .*float64": lambda: agent.act([0, 1], first, start=[0.0, 1.0]),
        "start: .*int64": lambda: agent.act([0, 1], first, start=[2, 0]),
        "reward: .*nan": lambda: agent.act([0, 1], state, reward=[0.0, np.nan]),
        "reads the reward": lambda: agent.act([0, 1], state),
        "`ffm`": lambda: rlmem.make_memory("fffm", 8),
        "no checkpoint 7": lambda: rlmem.load("run@7"),
        "run@bst: .*RUN@best": lambda: rlmem.load("run@bst"),
        "nowhere": lambda: rlmem.Run("nowhere"),
        "newest checkpoint": lambda: rlmem.Run(f"run@{agent.step}").resume(),
    }
    for words, mistake in mistakes.items():
        with pytest.raises(UserError, match=words):
            mistake()
    assert rlmem.Run("run@1").which == 1 and rlmem.Run(f"run@{agent.step}").agent().step == agent.step


def test_training_in_python_is_training_on_the_command_line(in_tmp, capsys):
    small_run(*TINY, "memory=gru", run_dir="typed")
    capsys.readouterr()
    threads = torch.get_num_threads()
    values = {"run_dir": "a place of its own", "total_steps": 128, "init_from": None}
    run = rlmem.train(*SMALLEST, *TINY[:-3], "memory=gru", "threads=1", "device=cpu", **values)
    assert torch.get_num_threads() == threads
    assert capsys.readouterr() == ("", "")
    assert_same_weights("typed", run.path)
    assert without_time("typed") == without_time(run.path)
    assert run.metrics()[-1]["step"] == run.evaluations()[-1]["step"] == 128
    assert sum(row["length"] for row in run.episodes()) <= 128
    assert run.config["total_steps"] == 128
    assert run.evaluate(4, level="medium")["episodes"] == 4
    assert run.resume("total_steps=256").agent().step == 256
    assert capsys.readouterr() == ("", "")


class Watching(rlmem.Callback):
    """Keeps what it is told, and does its best to change it."""

    def __init__(self, raises: str = ""):
        self.raises, self.heard = raises, []

    def hear(self, event, *what):
        self.heard.append((event, *deepcopy(what)))
        np.random.rand(), torch.rand(3)
        for given in what:
            if isinstance(given, dict):
                given.clear()
        if event == self.raises:
            raise RuntimeError("enough")

    def on_start(self, run_dir, config):
        self.hear("start", run_dir, config)

    def on_iteration(self, row):
        self.hear("iteration", row)

    def on_evaluation(self, step, results):
        self.hear("evaluation", step, results)

    def on_checkpoint(self, path):
        self.hear("checkpoint", path)

    def on_end(self):
        self.hear("end")


def test_a_callback_hears_everything_and_changes_nothing(in_tmp):
    small_run(run_dir="alone")
    watching = Watching()
    run = rlmem.train(*SMALLEST, run_dir="watched", callbacks=[watching])
    assert_same_weights("alone", "watched")
    assert without_time("alone") == without_time("watched")
    events = defaultdict(list)
    for event, *what in watching.heard:
        events[event].append(tuple(what))
    assert [row for (row,) in events["iteration"]] == run.metrics()
    assert [step for step, _ in events["evaluation"]] == [row["step"] for row in run.evaluations()]
    assert events["start"] == [(Path("watched"), run.config)]
    assert [path.exists() for (path,) in events["checkpoint"]] == [True]
    assert watching.heard[-1] == ("end",)


def test_a_callback_that_raises_ends_the_run_which_can_be_resumed(in_tmp):
    small_run(run_dir="alone")
    mine = [f"callbacks.mine._target_={__name__}.Watching", "callbacks.mine.raises=evaluation"]
    with pytest.raises(rlmem.Fault, match=r"callbacks\.mine: on_evaluation raised RuntimeError: enough"):
        small_run(*mine, run_dir="ended")
    run = rlmem.Run("ended").resume(callbacks=[watching := Watching()], **{"callbacks.mine.raises": ""})
    assert watching.heard
    assert_same_weights("alone", run.path)
    assert without_time("alone") == without_time(run.path)


def test_what_is_no_callback_is_refused(in_tmp):
    with pytest.raises(UserError, match=r"expected objects of rlmem\.Callback, got a int"):
        rlmem.train(*SMALLEST, callbacks=[3])
    with pytest.raises(UserError, match="can be imported"):
        rlmem.train(*SMALLEST, "callbacks.mine._target_=nowhere.Watching")
    with pytest.raises(UserError, match="call none"):
        rlmem.train(*SMALLEST, "trainer.devices=2", callbacks=[Watching()])
    assert not Path("runs").exists()


def test_verbose_shows_progress(in_tmp, capsys):
    rlmem.train(*SMALLEST, verbose=True)
    assert "done: 32 steps" in capsys.readouterr().out


def test_environments_and_memories_by_name():
    env = rlmem.make_env("repeat_previous", 3, level="medium")
    assert env.num_envs == 3
    memory = rlmem.make_memory("ffm", input_size=8, hidden_size=16)
    y, _ = memory(torch.zeros(2, 5, 8), memory.initial_state(2), torch.zeros(2, 5, dtype=torch.bool))
    assert y.shape == (2, 5, 16)


@pytest.mark.slow
def test_a_figure_is_reproduced_in_python_as_on_the_command_line(in_tmp, capsys):
    found = rlmem.reproduce("lprnn/figure2", budget="smoke")
    assert found.verdict == "not testable here"
    assert {run["state"] for run in found.runs()} == {"done"}
    assert "| row |" in found.table()
    assert found.folder == Path("reproduce/lprnn/figure2-smoke").absolute()
    assert (found.folder / "table.md").exists()
    assert capsys.readouterr().out == ""


def test_importing_rlmem_costs_nothing():
    for name in vars(rlmem)["_PLACES"]:
        assert getattr(rlmem, name).__name__ == name
    code = "import sys, rlmem; assert not {'torch', 'numpy', 'hydra'} & sys.modules.keys(); assert 'load' in dir(rlmem)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        rlmem.trian  # noqa: B018


def test_a_run_keeps_its_place_and_finds_what_it_named(in_tmp, monkeypatch):
    small_run("memory=gru", "env.evaluation={level: medium}")
    run = rlmem.Run("run")
    monkeypatch.chdir("/")
    assert run.checkpoints() == ["best", 32]
    assert run.agent("32").step == run.agent("best").step == 32
    levels = {level: rlmem.make_env("repeat_first", level=level)._n for level in ("easy", "medium")}
    assert run.make_env(3)._n == levels["medium"] != levels["easy"] == run.make_env(level="easy")._n
    row = run.evaluate(2, device="cpu", max_steps=5, video=True)
    assert Path(row["video"]).stat().st_size > 0
    assert row["greedy"]["length_mean"] == 5
    (run.path / "episodes.jsonl").unlink()
    with pytest.raises(UserError, match=r"episodes\.jsonl: is missing"):
        run.episodes()
    monkeypatch.setenv("HOME", str(in_tmp))
    assert "of 32 steps" in repr(rlmem.load("~/run"))
