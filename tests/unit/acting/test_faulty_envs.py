"""Environments that break the interface, or never end: one line says which one and when, and nothing of it is kept."""

import json
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import faulty_envs
import numpy as np
import pytest
import torch
from faulty_envs import FAULTS, HEALTHY, LENGTH, VECTOR_FAULTS, WHERE, WORKER_FAULTS, Faulty, FaultyVector, Stubborn
from gymnasium import spaces
from helpers import assert_same_end, fast_only, without_time
from torch.utils._pytree import tree_leaves

from rlmem.acting.autoreset import slot_layout
from rlmem.acting.collector import Collector
from rlmem.acting.evaluate import Request, evaluate
from rlmem.acting.workers import closing
from rlmem.algos.supervised.dataset.play import play, uniform
from rlmem.analysis.loaded import load_run
from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core import received
from rlmem.core.errors import Fault, UserError
from rlmem.core.seeding import Streams
from rlmem.evidence import metrics
from rlmem.jobs.status import newest_rows, objective
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.facts import RunRecord
from rlmem.record.recorder import Recorder, read_jsonl
from rlmem.record.trust import sealed
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import plan, resume, train

CPU = torch.device("cpu")
TINY = [
    "env=gym", "memory=mlp", "memory.hidden_size=4", "encoder.hidden_size=4", "env.num_envs=4", "algo.head_sizes=[4]",
    "total_steps=64", "checkpoint.every=8", "evaluation.every=null", "evaluation.episodes=2",
    "evaluation.max_steps=6", "threads=1", "device=cpu",
]  # fmt: skip
PPO = [*TINY, "algo.rollout_slots=4", "algo.epochs=1", "algo.num_minibatches=1"]
DQN = [
    *TINY, "algo=dqn", "algo.batch_size=8", "algo.random_steps=4", "algo.learning_starts=4", "algo.record_every=8",
    "algo.update_ratio=0.1",
]  # fmt: skip
ALGORITHMS = {"ppo": PPO, "dqn": DQN}
RUNS = [
    *(("ppo", name) for name in ("reward nan", "terminated None", "reset raises")),
    *(("dqn", name) for name in ("observation nan", "step raises")),
]
"""Algorithms, and faults that are tried in whole runs."""


class Idle:
    """An agent that does nothing in particular."""

    def initial_state(self, n: int) -> Any:
        return torch.zeros(n, 1)

    def act(self, inputs: Any, state: Any, generator: Any, exploration: Any) -> Any:
        return torch.zeros(len(state), dtype=torch.long), torch.zeros(len(state)), state


def choices(algorithm: str, fault: str, target: str = "make", **keys: Any) -> list[str]:
    more = [f"+env.{key}={value}" for key, value in keys.items()]
    return [*ALGORITHMS[algorithm], f"env._target_=faulty_envs.{target}", f"env.id='{fault}'", "run_dir=run", *more]


def where(text: str) -> re.Match[str] | None:
    return re.match(rf"step \d+: environment {WHERE}, (step \d of its episode|beginning an episode): ", text)


def require_told(failed: Fault, fault: faulty_envs.Fault) -> None:
    """One line with the environment, the step and what was wrong; the author's own exception is shown."""
    (line,) = str(failed).splitlines()
    assert where(line) and fault.said in line, line
    assert bool(failed.traceback) == fault.raises
    assert "faulty_envs.py" in failed.traceback or not fault.raises


def require_clean(run_dir: Path) -> None:
    """Nothing but finite numbers in checkpoints, and strict JSON in the record."""
    for path in Checkpoints(run_dir / "checkpoints").paths():
        for leaf in tree_leaves(torch.load(path, weights_only=True)):
            assert not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or leaf.isfinite().all()
            assert not isinstance(leaf, float) or math.isfinite(leaf)
    for name in ("metrics", "episodes"):
        for line in (run_dir / f"{name}.jsonl").read_text().splitlines():
            assert not re.search(r"NaN|Infinity|null", line), line


# --- environments that break the interface ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", FAULTS)
def test_what_an_environment_does_wrong_is_told_by_its_index_and_step(name):
    collector = Collector(faulty_envs.make(name), Idle(), 0, None, CPU)
    with pytest.raises(Fault) as failed:
        collector.collect(40, 10**9)
    require_told(failed.value, FAULTS[name])
    at = WHERE + 6 * 4 if FAULTS[name].at == "step" else 10 * 4
    assert abs(int(str(failed.value).split(":")[0].removeprefix("step ")) - at) <= 4


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_odd_and_allowed_goes_on(name):
    rollout, _ = Collector(faulty_envs.make(name), Idle(), 0, None, CPU).collect(40, 10**9)
    assert rollout.streams.obs.dtype == torch.float32


@pytest.mark.parametrize("name", VECTOR_FAULTS)
def test_what_a_vector_does_wrong_is_told(name):
    fault = VECTOR_FAULTS[name]
    with pytest.raises(Fault) as failed:
        Collector(FaultyVector(name), Idle(), 0, None, CPU).collect(40, 10**9)
    (line,) = str(failed.value).splitlines()
    assert fault.said in line
    assert where(line) if fault.names else re.match(r"step \d+: the environments: ", line)
    assert bool(failed.value.traceback) == fault.raises


def test_another_kind_of_number_later_on_is_noticed():
    env, kinds = FaultyVector("none"), iter([np.float32, np.float64, np.int32, np.complex64])
    env._obs = lambda: np.zeros((4, 2), next(kinds))  # the first three can be told as what came first
    with pytest.raises(Fault, match="step 8: the environments: observations of type complex64; expected float32"):
        Collector(env, Idle(), 0, None, CPU).collect(40, 10**9)
    env, shown = FaultyVector("none"), iter([np.zeros((4, 2), np.float32), np.full((4, 2), 1e300)])
    env._obs = lambda: next(shown)  # finite until it is float32
    with pytest.raises(Fault, match=r"observation 1e\+300; expected a finite number of float32"):
        Collector(env, Idle(), 0, None, CPU).collect(40, 10**9)
    env, kinds = FaultyVector("none"), iter([np.int64, np.float64])
    env.single_observation_space = spaces.Box(0, 9, (2,), np.int64)
    env._obs = lambda: np.zeros((4, 2), next(kinds))
    with pytest.raises(Fault, match="observations of type float64; expected int64"):
        Collector(env, Idle(), 0, None, CPU).collect(40, 10**9)


@pytest.mark.parametrize(("name", "num_envs"), [*((name, 4) for name in WORKER_FAULTS), ("is killed", WHERE + 1)])
def test_a_worker_process_that_fails_is_named_and_its_vector_ends(name, num_envs):
    fault, env = WORKER_FAULTS[name], slot_layout(faulty_envs.in_processes(name, num_envs))
    with pytest.raises(Fault) as failed, closing(env):
        Collector(env, Idle(), 0, None, CPU).collect(40, 10**9)
    line = str(failed.value)
    assert where(line) and fault.said in line
    assert bool(failed.value.traceback) == fault.raises
    assert not any(process.is_alive() for process in env.unwrapped.processes)


@pytest.mark.timeout(300)
def test_a_run_with_a_dead_worker_ends_with_one_line(in_tmp):
    with pytest.raises(Fault) as failed:
        train(load([*choices("ppo", "is killed", "in_processes"), "env.num_envs=2"]))
    assert where(str(failed.value)) and "; continue with    rlmem resume run" in str(failed.value)


def test_a_worker_process_that_cannot_make_its_environment_gives_one_line(in_tmp):
    with pytest.raises(UserError, match=faulty_envs.UNMADE["cannot be made"].said):
        train(load([*choices("ppo", "cannot be made", "in_processes"), f"env.num_envs={WHERE + 1}"]))


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_saves_a_run_whose_environments_are_processes(in_tmp):
    words = [*choices("ppo", "is interrupted", "in_processes"), "total_steps=1000000", "env.num_envs=4"]
    paths = [Path(faulty_envs.__file__).parent, *map(Path, sys.path)]
    done = subprocess.run(
        [sys.executable, "-m", "rlmem", "train", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.returncode == 130, done.stderr
    assert list(Path("run/checkpoints").glob("step_*.pt"))


def test_a_vector_that_cannot_be_closed_hides_no_fault(monkeypatch):
    monkeypatch.setattr("rlmem.acting.workers.PATIENCE", 0.2)
    env = Stubborn("raises")
    with (
        pytest.warns(UserWarning, match="raised TimeoutError"),
        pytest.raises(Fault, match="no such door"),
        closing(env),
    ):
        Collector(env, Idle(), 0, None, CPU).collect(40, 10**9)
    env = Stubborn("raises")
    env.waits = False
    with pytest.warns(UserWarning, match=r"close\(\) of the environments raised BrokenPipeError: gone"), closing(env):
        pass


def test_a_vector_of_another_number_of_environments_is_refused(in_tmp):
    with pytest.raises(UserError, match=r"Fewer returned 3 environments; expected 4, .*; e.g. env.num_envs=3"):
        train(load([*choices("ppo", "none", "Fewer"), "env.num_envs=4"]))
    assert not any(in_tmp.iterdir())


@pytest.mark.parametrize(("algorithm", "name"), RUNS)
def test_a_run_ends_with_one_line_and_keeps_nothing_of_it(in_tmp, algorithm, name):
    with pytest.raises(Fault) as failed:
        train(load(choices(algorithm, name)))
    require_told(failed.value, FAULTS[name])
    assert str(failed.value) in Path("run/log.txt").read_text()
    assert "; continue with    rlmem resume run" in str(failed.value)
    assert Checkpoints(Path("run/checkpoints")).paths()
    require_clean(Path("run"))


@pytest.mark.parametrize(("algorithm", "name"), [("dqn", "reward nan"), ("ppo", "step raises")])
def test_a_corrected_environment_goes_on_as_if_nothing_had_been(in_tmp, monkeypatch, algorithm, name):
    monkeypatch.setattr(Faulty, "cured", True)
    train(load([*choices(algorithm, name), "run_dir=whole"]))
    monkeypatch.setattr(Faulty, "cured", False)
    with pytest.raises(Fault):
        train(load(choices(algorithm, name)))
    with pytest.raises(Fault):  # as long as it is as it was
        resume(Path("run"), [])
    monkeypatch.setattr(Faulty, "cured", True)
    resume(Path("run"), [])
    assert_same_end("run", "whole")


def test_an_environment_that_never_begins_ends_the_run_at_step_0(in_tmp, monkeypatch):
    monkeypatch.setattr(faulty_envs, "WHEN", -1000)
    with pytest.raises(Fault, match=r"step 0: environment 1, beginning an episode: .*no map; there is no check"):
        train(load(choices("ppo", "reset raises")))


@pytest.mark.parametrize("close", [lambda env: 1 / 0, lambda env: sys.exit(0)], ids=["raises", "exits"])
def test_an_environment_that_cannot_be_closed_changes_no_result(in_tmp, monkeypatch, close):
    monkeypatch.setattr(Faulty, "close", close)
    with pytest.warns(UserWarning, match=r"environment 3: close\(\) raised (ZeroDivisionError|SystemExit)"):
        train(load([*choices("ppo", "healthy"), "total_steps=8"]))
    assert (Path("run") / "log.txt").read_text().count("done: 8 steps") == 1


@pytest.mark.parametrize("name", ["reward nan", "step raises"])
def test_workers_tell_which_of_their_environments_it_was(name):
    env = faulty_envs.make(name, workers=2)
    with pytest.raises(Fault) as failed:
        Collector(env, Idle(), 0, None, CPU).collect(40, 10**9)
    env.close()
    require_told(failed.value, FAULTS[name])


def test_the_traceback_of_an_environment_is_shown_before_the_line(in_tmp, capsys):
    assert main(["train", *choices("ppo", "step raises")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback") and "faulty_envs.py" in error and "ValueError: no such door\nrlmem: " in error
    assert where(error.splitlines()[-1].removeprefix("rlmem: failed: "))
    assert main(["train", *choices("ppo", "reward nan"), "run_dir=other"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def rewrite(old: str, new: str) -> None:
    """Replace a part of config.yaml, and write it as this user's own."""
    config = Path("run/config.yaml")
    _, _, text = config.read_text().partition("\n")
    assert old in text
    config.write_text(sealed(text.replace(old, new)))


def test_a_fault_comes_from_another_process_with_its_traceback():
    came = pickle.loads(pickle.dumps(Fault("step 3: environment 0: ...", "Traceback ...")))
    assert (str(came), came.traceback) == ("step 3: environment 0: ...", "Traceback ...")


def test_a_fault_in_an_evaluation_is_one_line_with_both_steps(in_tmp, capsys):
    train(load([*choices("ppo", "healthy"), "total_steps=8"]))
    rewrite("id: healthy", "id: reward nan")
    with pytest.raises(Fault) as failed:
        evaluate_run(Path("run"), 4, overrides=["env.id='reward nan'"])
    assert where(str(failed.value))
    base = choices("ppo", "healthy")[:-1]
    with pytest.raises(Fault, match=rf"step 8: evaluation: step \d+: environment {WHERE}, step 2 of its episode: rew"):
        train(
            load([*base, "env.evaluation.id='reward nan'", "run_dir=other", "total_steps=8", "evaluation.episodes=9"])
        )


def test_recordings_are_held_to_the_same_rules():
    env = faulty_envs.make("reward nan")
    with pytest.raises(Fault, match="environment 1, step 2 of its episode: reward nan"):
        play(env, uniform(env.single_action_space, 4, np.random.default_rng(0)), 12, seed=0)


def test_an_environment_without_its_state_is_refused_before_training(in_tmp):
    given = load(choices("ppo", "none", "Forgetful"))
    for ask in (train, plan):
        with pytest.raises(UserError, match=re.escape("env=gym: Forgetful has no restore()")):
            ask(given)
    assert not any(in_tmp.iterdir())


# --- JSON -------------------------------------------------------------------------------------------------------------


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_json_holds_no_numbers_that_are_none():
    value = {"a": [1.5, math.nan, {"b": (-math.inf, 2)}], "c": math.inf, "d": None, "e": True}
    text = received.dumps(value)
    assert json.loads(text, parse_constant=refuse) == {
        "a": [1.5, None, {"b": [None, 2]}],
        "c": None,
        "d": None,
        "e": True,
    }
    assert received.dumps({"a": 0.1, "b": [1e300]}) == json.dumps({"a": 0.1, "b": [1e300]})


def test_the_record_is_strict_json_and_every_reader_copes_with_null(in_tmp):
    key, said = "eval/greedy/return_mean", []
    recorder = Recorder(Path(), said.append)
    recorder.metrics(1, {"loss": math.nan, key: math.inf})
    recorder.metrics(2, {"loss": 2.0, key: 3.0})
    recorder.metrics(3, {"loss": -math.inf, key: math.nan})
    recorder.episodes([{"step": 1, "return": math.nan}])
    for name in ("metrics", "episodes"):
        for line in Path(f"{name}.jsonl").read_text().splitlines():
            json.loads(line, parse_constant=refuse)
    assert Path("metrics.jsonl").read_text().count("null") == 4

    kept = recorder.position()
    recorder.metrics(4, {"loss": math.nan})
    recorder.rewind(kept)
    recorder.metrics(4, {"loss": math.nan})  # the same row as before
    assert not said
    recorder.close()

    steps, values = metrics.thinned(RunRecord(Path()).series(key))
    assert (steps, values) == ([2], [3.0])
    assert math.isnan(metrics.read(RunRecord(Path()), ["final_eval"])["final_eval"])
    assert math.isnan(objective(Path())) and next(iter(newest_rows(Path())))["step"] == 4
    assert read_jsonl(Path("episodes.jsonl"))[0]["step"] == 1


@pytest.mark.parametrize("command", fast_only(["plot"], ["report", "plot"]))
def test_curves_with_gaps_are_drawn(in_tmp, command):
    train(load([*choices("ppo", "healthy"), "evaluation.every=16"]))
    path = Path("run/metrics.jsonl")
    kept = [received.row(line) for line in path.read_text().splitlines()]
    gap = next(row for row in kept if "eval/greedy/return_mean" in row)
    gap["eval/greedy/return_mean"] = math.nan
    path.write_text("".join(received.dumps(row) + "\n" for row in kept))
    assert main([command, "run", "--out", "drawn.html" if command == "report" else "drawn.svg"]) == 0


# --- episodes without an end ------------------------------------------------------------------------------------------


def test_an_evaluation_ends_at_the_bound_and_says_so(in_tmp, capsys):
    train(load([*choices("ppo", "no end"), "evaluation.max_steps=30", "evaluation.episodes=6"]))
    said = "evaluation: 6 of 6 greedy episodes had not ended after 30 steps and count with what they had got by then"
    assert f"step 64: {said}; e.g. evaluation.max_steps=300" in capsys.readouterr().out
    assert without_time("run")[-1]["eval/greedy/unfinished"] == 6
    assert without_time("run")[-1]["eval/greedy/length_mean"] == 30
    capsys.readouterr()
    assert main(["eval", "run", "--episodes", "70", "evaluation.max_steps=10", "--json"]) == 0
    out, error = capsys.readouterr()
    assert json.loads(out, parse_constant=refuse)["greedy"]["unfinished"] == 70
    assert "70 of 70 sampled episodes had not ended after 10 steps" in error


def test_a_bound_cuts_only_the_episodes_that_are_longer():
    """Environments 0 and 1 play episodes of 5 steps; 2 and 3 never end, and are begun anew for their second ones."""
    env, said = faulty_envs.make("healthy"), []
    for one in env.envs[2:]:
        one.env.fault, one.env.everywhere = HEALTHY["no end"], True
    scores = evaluate(Idle(), env, Request(8, Streams(0), CPU, 77, said.append), greedy=True)
    assert scores.lengths.tolist() == [LENGTH] * 4 + [77] * 4
    assert scores.unfinished == 4 and len(said) == 1 and "4 of 8 greedy episodes" in said[0]
    whole = evaluate(Idle(), faulty_envs.make("healthy"), Request(8, Streams(0), CPU, LENGTH), greedy=True)
    assert whole.lengths.tolist() == [LENGTH] * 8 and whole.unfinished == 0
    assert "unfinished" not in whole.summary()


def test_a_long_evaluation_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr("rlmem.acting.collector.FIRST_REPORT", 0.0)
    said = []
    evaluate(Idle(), faulty_envs.make("no end"), Request(4, Streams(0), CPU, 70, said.append), greedy=True)
    assert said[0] == "evaluating: 0 of 4 greedy episodes played, 256 steps taken"


def test_a_rollout_that_waits_for_complete_episodes_says_so(in_tmp, capsys, monkeypatch):
    monkeypatch.setattr("rlmem.acting.collector.FIRST_REPORT", 0.0)
    train(load([*choices("ppo", "no end"), "algo.complete_episodes=true", "evaluation.max_steps=9"]))
    assert "step 16: 4 complete episodes are waited for; the longest has 4 steps so far" in capsys.readouterr().out


def test_an_analysis_of_episodes_without_an_end_is_refused(in_tmp):
    train(load([*choices("ppo", "no end"), "evaluation.max_steps=9"]))
    with pytest.raises(UserError, match=r"run: .* did not end within evaluation.max_steps=9"):
        load_run(Path("run")).play(3)


def test_a_recording_of_episodes_without_an_end_stops():
    env = faulty_envs.make("no end")
    player = uniform(env.single_action_space, 4, np.random.default_rng(0))
    with pytest.raises(Fault, match=r"step 36: environment 0: its episode has not ended after 9 steps"):
        play(env, player, 4, seed=0, max_steps=9)


class Changed(Faulty):
    """A healthy environment that needs a current folder of its own."""

    def reset(self, **how):
        folder = Path("own") if not Path("asset").exists() else Path()
        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        Path("asset").touch()
        return super().reset(**how)

    def step(self, action):
        assert Path("asset").exists()
        return super().step(action)


def test_an_environment_has_its_own_current_folder_and_the_run_keeps_its_own(in_tmp, monkeypatch):
    monkeypatch.setattr(faulty_envs, "Faulty", Changed)
    train(load([*choices("ppo", "healthy"), "total_steps=8"]))
    assert Path.cwd() == in_tmp.resolve() and (in_tmp / "run" / "metrics.jsonl").stat().st_size
    assert (in_tmp / "own" / "asset").exists()
    (in_tmp / "own_later.py").write_text(
        "import gymnasium\ngymnasium.register('Later-v0', 'faulty_envs:Faulty', kwargs={'fault': 'healthy'})"
    )
    assert "own_later:Later-v0" in plan(load(["env=gym", "env.id=own_later:Later-v0"])), "the next one begins here"


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (lambda env: None, "allows no action"),
        (lambda env: 1 / 0, "raised ZeroDivisionError"),
        (lambda env: np.ones(5, bool), "an action mask of 5 numbers; expected "),
    ],
    ids=["nothing", "an exception", "another size"],
)
def test_masks_that_are_none_are_a_fault_of_the_environment(in_tmp, monkeypatch, masks, said):
    monkeypatch.setattr(Faulty, "action_masks", masks, raising=False)
    with pytest.raises(Fault, match=said):
        train(load([*choices("ppo", "healthy"), "total_steps=8"]))
