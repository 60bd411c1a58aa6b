"""Population based training: the rule, copying weights alone, and populations that are killed and go on."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import changed, weights, without_time
from scipy.stats import ttest_ind
from torch.utils._pytree import tree_flatten

from rlmem.commands.cli import main
from rlmem.core.command import Stopped
from rlmem.core.errors import Fault, UserError
from rlmem.jobs.population import rounds
from rlmem.jobs.population.member import Member
from rlmem.jobs.population.rounds import compare, partners, welch
from rlmem.jobs.population.spec import History, PopulationSpec, change, populate, read, start
from rlmem.record import rundir
from rlmem.record.checkpoint import Checkpoints, step_of
from rlmem.record.recorder import read_jsonl
from rlmem.record.trust import sealed
from rlmem.run.train import resume

SMALL = ("env=two_step_cue", "memory=gru", "memory.hidden_size=8", "encoder.hidden_size=8", "env.num_envs=8",
    "threads=1", "algo.head_sizes=[8]", "evaluation.every=null", "evaluation.episodes=2",
    "checkpoint.every=250")  # fmt: skip
PPO = (*SMALL, "algo.num_minibatches=1", "algo.rollout_slots=16", "algo.epochs=2", "algo.anneal_lr=false",
    "total_steps=1000")  # fmt: skip
DQN = (*SMALL, "algo=dqn", "algo.batch_size=32", "algo.random_steps=50", "algo.learning_starts=50",
    "algo.update_ratio=0.05", "algo.record_every=50", "total_steps=300")  # fmt: skip
SPEC = PopulationSpec(PPO, ("algo.lr=1e-6,1e-2",), agents=3, ready=150, window=50, every=100)
"""One of the three learns, the others do not."""
COMMAND = [sys.executable, "-m", "rlmem", "population", "--agents=3", "--ready=150", "--window=50", "--every=100"]
COMMAND += ["--vary", *SPEC.vary]


def train(spec: PopulationSpec = SPEC, folder: str | Path = "p") -> Path:
    start(spec, Path(folder))
    rounds.train(Path(folder))
    return Path(folder)


def begun(whole: Path) -> Path:
    """The population `whole` in this folder, before anything was trained."""
    for run_dir in agents(whole):
        (Path("p") / run_dir.name).mkdir(parents=True)
        for name in ("config.yaml", "run.json"):
            shutil.copy(run_dir / name, Path("p") / run_dir.name)
    return Path(shutil.copy(whole / "population.yaml", "p")).parent


def history(folder: Path | str) -> list[dict[str, Any]]:
    return read_jsonl(Path(folder) / "population.jsonl")


def agents(folder: Path | str) -> list[Path]:
    return sorted(Path(folder).glob("agent_*"))


def assert_same(first: Any, second: Any) -> None:
    (left, shape), (right, other) = tree_flatten(first), tree_flatten(second)
    assert shape == other
    assert all(torch.equal(a, b) if torch.is_tensor(a) else a == b for a, b in zip(left, right, strict=True))


def assert_same_end(first: Path | str, second: Path | str) -> None:
    assert (Path(first) / "population.jsonl").read_text() == (Path(second) / "population.jsonl").read_text()
    assert len(agents(first)) == len(agents(second)) > 1
    for one, other in zip(agents(first), agents(second), strict=True):
        assert without_time(one) == without_time(other)
        assert (one / "episodes.jsonl").read_text() == (other / "episodes.jsonl").read_text()
        assert_same(weights(one), weights(other))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A population that nothing happened to."""
    return train(folder=tmp_path_factory.mktemp("whole") / "p")


# --- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(30, 30), (2, 300), (3000, 3000)])
def test_the_p_value_is_that_of_welchs_test(sizes):
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, sizes[0]), rng.normal(0.1, 3, sizes[1])
    assert welch(a, b) == pytest.approx(ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)


def test_a_sample_that_does_not_vary_is_compared_all_the_same():
    wins, losses = [1.0] * 20, [-1.0] * 20
    assert (welch(losses, wins), welch(wins, wins)) == (0.0, 1.0)
    assert compare(losses, wins, 0.05).copies
    assert compare(losses, [-1.0, 1.0] * 10, 0.05).copies


def test_only_a_better_mean_and_a_small_p_value_copy():
    rng = np.random.default_rng(0)
    low, high = rng.normal(0, 1, 100), rng.normal(1, 1, 100)
    found = compare(low, high, 0.05)
    assert found.copies and found.p is not None
    assert not compare(low, high, found.p).copies  # p < level
    assert not compare(high, low, 0.05).copies
    assert not compare(low, low + 0.01, 0.05).copies
    assert not compare([0.0], high, 0.05).copies
    assert not compare(np.full(100, np.nan), high, 0.05).copies


def test_the_test_is_two_sided_and_rarely_wrong():
    """Of two equal agents one copies the other in level / 2 of the rounds."""
    rng = np.random.default_rng(0)
    wrong = sum(compare(rng.normal(size=50), rng.normal(size=50), 0.1).copies for _ in range(4000))
    assert wrong / 4000 == pytest.approx(0.05, abs=0.015)


def test_everybody_is_compared_with_another_uniformly():
    drawn = [partners(seed=0, number=number, agents=4) for number in range(3000)]
    counts = Counter((agent, other) for row in drawn for agent, other in enumerate(row))
    assert len(counts) == 12 and all(agent != other for agent, other in counts)
    assert min(counts.values()) > 900 and max(counts.values()) < 1100
    assert partners(0, 7, 4) == drawn[7] and partners(1, 7, 4) != drawn[7]


# --- who the agents are ----------------------------------------------------------------------------------------------


def drawn(agents: int, *overrides: str, vary: tuple[str, ...]) -> dict[str, list[float]]:
    """The values of all agents, by key."""
    population = populate(PopulationSpec(overrides, vary, agents=agents))
    lines = [dict(line.split("=", 1) for line in own) for own in population.own]
    return {key: [float(own[key]) for own in lines] for key in lines[0]}


def test_hyperparameters_are_dealt_out_or_drawn_from_streams_of_their_own():
    lr = "algo.lr=tag(log, interval(1e-5,1e-3))"
    many = drawn(200, vary=("algo.gamma=0.9,0.99", "algo.rollout_slots=int(interval(3,5))", lr))
    assert min(many["algo.lr"]) >= 1e-5 and max(many["algo.lr"]) < 1e-3 and len(set(many["algo.lr"])) == 200
    assert np.mean(np.log10(many["algo.lr"])) == pytest.approx(-4, abs=0.15)
    assert set(many["algo.rollout_slots"]) == {3, 4, 5}
    assert many["algo.gamma"][:3] == [0.9, 0.99, 0.9]
    assert len(set(many["seed"])) == 200
    few = drawn(5, vary=(lr,))
    assert all(few[key] == many[key][:5] for key in few)
    other = drawn(5, "seed=1", vary=(lr,))
    assert not any(set(other[key]) & set(many[key]) for key in other)


@pytest.mark.parametrize("algo", ["classify", "state_model", "decision_model"])
def test_algorithms_that_learn_without_acting_have_no_episodes_to_compare(algo):
    with pytest.raises(UserError, match=f"algo={algo}: has no training episodes, by which agents are compared"):
        populate(PopulationSpec((f"algo={algo}",), ("algo.lr=1e-4,1e-3",)))


@pytest.mark.slow
def test_an_agent_is_an_ordinary_run(whole, in_tmp, capsys):
    folder = shutil.copytree(whole, "p")
    assert [rundir.read(run_dir)[0]["algo"]["lr"] for run_dir in agents(folder)] == [1e-6, 1e-2, 1e-6]
    assert main(["eval", "p/agent_1", "--episodes", "2"]) == 0
    capsys.readouterr()
    with pytest.raises(UserError, match="agent of a population, which goes on as a whole"):
        resume(Path("p/agent_1"), [])
    assert main(["population", "status", "p"]) == 0
    told = capsys.readouterr().out
    assert "agent_2" in told and "1,000/1,000" in told and "not running" in told


# --- copying ---------------------------------------------------------------------------------------------------------


def test_rounds_are_what_the_record_says(whole):
    """Every row follows from the episodes of both agents up to that round; some agents copied, and not all."""
    episodes = {run_dir.name: read_jsonl(run_dir / "episodes.jsonl") for run_dir in agents(whole)}
    table = history(whole)
    assert {row["copied"] for row in table} == {True, False}
    for row in table:
        assert row["episodes"] >= SPEC.target(row["round"] - 1) or row["step"] == 1000
        own, other = (
            [episode["return"] for episode in episodes[f"agent_{agent}"][:until]][-SPEC.window :]
            for agent, until in ((row["agent"], row["episodes"]), (row["other"], row["other_episodes"]))
        )
        assert (row["mean"], row["other_mean"]) == pytest.approx((np.mean(own), np.mean(other)))
        assert row["p"] == pytest.approx(ttest_ind(own, other, equal_var=False).pvalue)
        better = row["other_mean"] > row["mean"] and row["p"] < SPEC.level
        assert row["copied"] == (better and row["step"] < 1000)


@pytest.mark.parametrize("overrides", [PPO, DQN], ids=["ppo", "dqn"])
def test_nothing_but_the_weights_is_copied(in_tmp, overrides):
    spec = PopulationSpec(overrides, ("algo.lr=1e-3,1e-2",), agents=2, ready=100)
    start(spec, Path("p"))
    one, other = Member(Path("p"), 0), Member(Path("p"), 1)
    one.train(100)
    other.train(100)
    before, theirs = deepcopy(one.loop.state_dict()), deepcopy(other.loop.state_dict())
    one.end_round(100, 1, other.weights(100))
    after = one.loop.state_dict()
    assert_same(after["agent"], theirs["agent"])
    assert not torch.equal(*(next(iter(state["agent"].values())) for state in (before, after)))
    of_weights = {"target", "scale"}
    for name in of_weights & after["algo"].keys():
        assert_same(after["algo"][name], theirs["algo"][name])
    for name in after["algo"].keys() - of_weights:
        assert_same(after["algo"][name], before["algo"][name])
    for name in after.keys() - {"agent", "algo", "experiment"}:
        assert_same(after[name], before[name])
    assert after["experiment"] == before["experiment"] | {"population.round": 1}
    assert [group["lr"] for group in after["algo"]["optimiser"]["param_groups"]] == [1e-3]
    assert (one.loop.algo.lr, other.loop.algo.lr) == (1e-3, 1e-2)
    one.close()
    other.close()


def test_a_round_copies_everybody_as_it_was_when_the_round_began(whole, in_tmp, monkeypatch):
    """0 copies 1 while 1 copies 2: 0 gets what 1 was."""
    folder = begun(whole)
    found: dict[int, Any] = {}

    def look(self: Member, episodes: int, number: int, weights: Any) -> int:
        found[int(self.name[-1])] = (deepcopy(self.loop.agent.state_dict()), weights)
        if len(found) == 3:
            raise Fault("seen")
        return end_round(self, episodes, number, weights)

    end_round = Member.end_round
    monkeypatch.setattr(Member, "end_round", look)
    monkeypatch.setattr(rounds, "partners", lambda *_: [1, 2, 0])
    returns = iter([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    monkeypatch.setattr(Member, "last_returns", lambda self, episodes: next(returns))
    with pytest.raises(Fault, match="seen; go on with    rlmem population p"):
        rounds.train(folder)
    assert found[2][1] is None
    assert_same(found[0][1]["agent"], found[1][0])
    assert_same(found[1][1]["agent"], found[2][0])


# --- nothing is lost -------------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


def killed_in(monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, call: int, after: bool = False) -> None:
    """What is under way dies in this call of a method, before it or after it."""
    calls, original = count(1), getattr(kind, method)

    def dying(self: Any, *arguments: Any) -> Any:
        this = next(calls)
        if this == call and not after:
            raise Killed
        result = original(self, *arguments)
        if this == call:
            raise Killed
        return result

    monkeypatch.setattr(kind, method, dying)


@pytest.mark.parametrize(
    ("kind", "method", "call", "after"),
    [
        pytest.param(Member, "_read_episodes", 27, False, marks=pytest.mark.slow),
        pytest.param(Member, "end_round", 2, True, marks=pytest.mark.slow),
        (Member, "end_round", 8, False),
    ],
    ids=["between rounds", "first round", "while copying"],
)
def test_a_population_that_was_killed_ends_as_if_it_had_not_been(whole, in_tmp, monkeypatch, kind, method, call, after):
    with monkeypatch.context() as patch:
        killed_in(patch, kind, method, call, after)
        with pytest.raises(Killed):
            rounds.train(begun(whole))
    assert_same_end(train(), whole)


@pytest.mark.slow
def test_a_round_that_is_half_written_did_not_happen(whole, in_tmp, monkeypatch):
    with monkeypatch.context() as patch:
        killed_in(patch, History, "append", 3)
        with pytest.raises(Killed):
            rounds.train(begun(whole))
    rows = (whole / "population.jsonl").read_text().splitlines(keepends=True)
    with open("p/population.jsonl", "a") as file:
        file.write(rows[6] + rows[7] + rows[8][:20])
    assert_same_end(train(), whole)


def test_an_agent_that_was_ahead_keeps_nothing_of_the_round_that_did_not_happen(whole, in_tmp, monkeypatch):
    with monkeypatch.context() as patch:
        killed_in(patch, Member, "end_round", 5, after=True)
        with pytest.raises(Killed):
            rounds.train(begun(whole))
    with pytest.warns(UserWarning, match="round 2 did not end, after which agent_1 was saved"):
        member = Member(Path("p"), 1)
    (kept,) = Checkpoints(Path("p/agent_1/checkpoints")).paths()
    assert member.loop.collector.steps == step_of(kept) == history("p")[1]["step"]
    member.close()


def test_an_agent_whose_checkpoints_are_lost_is_named(whole, in_tmp):
    folder = Path(shutil.copytree(whole, "p"))
    for path in Checkpoints(folder / "agent_1" / "checkpoints").paths():
        path.write_bytes(path.read_bytes()[:-1])
    what = r"p/agent_1: no intact checkpoint of step \d+ or later"
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(UserError, match=what):
        train()


@pytest.mark.slow
def test_a_signal_saves_every_agent(whole, in_tmp, monkeypatch):
    calls, original = count(1), Member._read_episodes

    def read_and_signal(self: Member) -> None:
        original(self)
        if next(calls) == 19:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Member, "_read_episodes", read_and_signal)
        with pytest.raises(Stopped) as stopped:
            rounds.train(begun(whole))
    assert stopped.value.code == 75
    assert "go on with    rlmem population p" in Path("p/log.txt").read_text()
    for run_dir in agents("p"):
        state = Checkpoints(run_dir / "checkpoints").load()[1]
        assert state["record"]["metrics"]["bytes"] == (run_dir / "metrics.jsonl").stat().st_size
    assert_same_end(train(), whole)


@pytest.mark.slow
def test_off_policy_agents_go_on_as_well(in_tmp, monkeypatch):
    spec = PopulationSpec(DQN, ("algo.lr=1e-6,1e-2",), agents=2, ready=50, window=40, every=60)
    whole = train(spec, "whole")
    with monkeypatch.context() as patch:
        killed_in(patch, Member, "end_round", 4, after=True)
        with pytest.raises(Killed):
            train(spec)
    assert_same_end(train(spec), whole)


def test_another_population_in_the_directory_is_refused_by_what_differs(whole, in_tmp):
    folder = Path(shutil.copytree(whole, "p"))
    with pytest.raises(UserError) as refused:
        train(PopulationSpec((*PPO, "seed=1"), SPEC.vary, agents=4, ready=150, window=50, every=100))
    assert [problem.split(":")[0] for problem in refused.value.problems] == ["overrides", "agents"]
    (folder / "population.yaml").unlink()
    with pytest.raises(UserError, match="holds runs already"):
        train()


@pytest.mark.slow
def test_a_population_may_train_longer(whole, in_tmp):
    folder = Path(shutil.copytree(whole, "p"))
    assert main(["population", "p", "total_steps=1200"]) == 0
    longer = history(folder)
    assert longer[: len(history(whole))] == history(whole) and len(longer) > len(history(whole))
    assert [read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] for run_dir in agents(folder)] == [1200] * 3
    for override, what in [("algo.lr=1", "would change the experiment"), ("total_steps=100", "has taken 1200")]:
        with pytest.raises(UserError, match=what):
            change(folder, [override])
    assert read(folder).spec == SPEC


def test_a_population_of_a_removed_compiler_continues_as_its_message_suggests(whole, in_tmp, capsys):
    for run_dir in agents(shutil.copytree(whole, "p")):
        config = run_dir / "config.yaml"
        config.write_text(sealed(changed(config, "compile: 'off'", "compile: inductor").read_text()))
    for more in ([], ["total_steps=1200"]):
        assert main(["population", "p", *more]) == 2
    example = capsys.readouterr().err.splitlines()[-1].partition("; e.g. rlmem ")[2]
    assert example == "population p compile=off" and main(shlex.split(example)) == 0


def test_a_directory_says_itself_what_its_agents_are(whole, capsys):
    for arguments, what in [
        ([str(whole), "--agents", "4"], "--agents: .* already says what its agents are"),
        (["nowhere"], "nowhere: expected key=value, or the directory of a population"),
        ([str(whole.parent)], "holds no population"),
        (["status", "nowhere"], "nowhere: holds no population"),
        (["--gpus", "1"], "--gpus 1.0: .* --ray"),
        (["--level", "5"], "expected a number between 0 and 1"),
    ]:
        assert main(["population", *arguments]) == 2
        assert re.search(what, capsys.readouterr().err)


def test_a_dry_run_lists_the_agents(in_tmp, capsys):
    assert main(["population", *PPO, "--vary", "algo.lr=1e-4,1e-3", "--agents", "2", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"seed=\d+ ", "", line) for line in lines] == ["agent_0: algo.lr=0.0001", "agent_1: algo.lr=0.001"]
    assert not any(in_tmp.iterdir())


# --- on Ray ----------------------------------------------------------------------------------------------------------


MORTAL = """
import os, signal
from pathlib import Path
from rlmem_envs.diagnostics.two_step_cue import TwoStepCue


class Mortal(TwoStepCue):
    'Two-step cue; the first process that has taken 100 steps is killed.'

    calls = 0

    def step(self, actions):
        self.calls += 1
        if self.calls == 100 and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(actions)
"""


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_on_ray_it_is_the_same_population_even_if_an_agent_is_killed(in_tmp):
    Path("mortal.py").write_text(MORTAL)
    command = [*COMMAND, *PPO, "env._target_=mortal.Mortal"]
    assert subprocess.run([*command, "--dir", "ray", "--ray"], timeout=1200).returncode == 0
    assert Path("killed").exists()
    assert subprocess.run([*command, "--dir", "here"], timeout=600).returncode == 0
    assert_same_end("ray", "here")
