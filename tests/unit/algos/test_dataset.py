"""Data sets: what is recorded is what happened, files of others with their quirks, masks, and the command."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rlmem_envs.occlusion.cartpole import CartPole
from rlmem_envs.occlusion.pendulum import Pendulum

from rlmem.algos.supervised.dataset.file import Recording, joined, read, write
from rlmem.algos.supervised.dataset.play import play, uniform
from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.run.dataset import from_random, from_runs
from rlmem.run.train import train

h5py = pytest.importorskip("h5py")

RANDOM = ["generate", "env=cartpole", "env.num_envs=3", "env.horizon=30", "--random", "--episodes", "7", "--seed", "5"]
RUN = [
    "env.num_envs=4", "algo.rollout_slots=32", "algo.epochs=1", "algo.num_minibatches=1", "memory=gru",
    "memory.hidden_size=8", "encoder.hidden_size=8", "total_steps=200", "evaluation.every=null",
    "evaluation.episodes=2", "evaluation.max_steps=30", "threads=1",
]  # fmt: skip


def dataset(*arguments: str) -> int:
    return main(["dataset", *arguments])


def assert_happens_again(found: Recording, make) -> None:
    """Every episode, played again from its first state with its actions, is what was recorded."""
    ends = found.lengths.cumsum()
    env = make()
    for begin, end in zip(ends - found.lengths, ends, strict=True):
        first = found.observations[begin].astype(np.float64)
        hidden = first if isinstance(env, CartPole) else np.array([np.arctan2(first[1], first[0]), first[2]])
        obs, _ = env.reset(seed=0, options={"hidden": {"start": hidden[None]}})
        for t in range(begin, end):
            np.testing.assert_allclose(obs[0], found.observations[t], atol=2e-4)
            action = found.actions[t].astype(np.int64) if isinstance(env, CartPole) else found.actions[t][None]
            obs, reward, terminated, truncated, _ = env.step(action)
            np.testing.assert_allclose(reward[0], found.rewards[t], atol=1e-3)
            assert (terminated[0], truncated[0] and not terminated[0]) == (found.terminals[t], found.timeouts[t])


def test_random_play_is_what_happens_in_the_environment(in_tmp):
    assert dataset(*RANDOM, "--out", "r.hdf5") == 0
    found = read(Path("r.hdf5"))
    assert len(found.lengths) == 7
    assert found.lengths.sum() == len(found.rewards)
    assert found.terminals.sum() + found.timeouts.sum() == 7 and 0 < found.timeouts.sum() < 7
    assert set(found.actions.ravel()) == {0.0, 1.0}
    assert_happens_again(found, lambda: CartPole(1, horizon=30))
    assert np.array_equal(found.returns, found.lengths)


def test_the_same_seed_records_the_same_and_another_does_not(in_tmp):
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        assert dataset(*RANDOM[:-1], seed, "--out", f"{name}.hdf5") == 0
    a, b, c = (read(Path(f"{name}.hdf5")).digest("observations") for name in "abc")
    assert a == b != c


def test_every_environment_plays_its_share_so_that_short_episodes_do_not_count_more():
    """Of two environments one plays long episodes: half of what is recorded is theirs."""
    env = CartPole(2, horizon=200)
    steady = lambda obs, reward, start: np.array([obs[0] @ [0.05, 0.11, 1.0, 0.27] > 0, 0]).astype(np.int64)  # noqa: E731
    lengths = play(env, steady, 6, 0).lengths
    assert sorted(lengths)[3:] == [200] * 3
    assert max(sorted(lengths)[:3]) < 20


def test_a_runs_episodes_show_all_of_the_state_though_its_agent_sees_a_part(in_tmp):
    train(load([*RUN, "env=pendulum_p", "env.horizon=12", "run_dir=p"]))
    found = from_runs(["p"], 6, Path("p.hdf5"), 3, greedy=False)
    assert found.observations.shape == (72, 3)
    assert found.timeouts.sum() == 6 and not found.terminals.any()
    assert_happens_again(found, lambda: Pendulum(1, horizon=12))
    again = from_runs(["p"], 6, Path("again.hdf5"), 3, greedy=False)
    greedy = from_runs(["p"], 6, Path("greedy.hdf5"), 3, greedy=True)
    assert np.array_equal(found.actions, again.actions)
    assert not np.array_equal(found.actions, greedy.actions)
    assert np.array_equal(found.observations[0], greedy.observations[0]), "the same first states"


def test_a_game_with_a_twin_is_recorded_as_its_agent_sees_it(in_tmp):
    """Only where a part of the state is shown does the file hold all of it."""
    train(load([*RUN, "env=wind", "env.episode_steps=10", "run_dir=w"]))
    assert from_runs(["w"], 2, Path("w.hdf5"), 0, greedy=False).observations.shape == (20, 2)
    twin = from_random(["env=wind", "env.observe=full"], 1, Path("twin.hdf5"), 0)
    assert twin.observations.shape[1] > 2


def test_an_off_policy_run_is_recorded_with_the_noise_of_its_end(in_tmp):
    steps = ["algo.random_steps=100", "algo.learning_starts=150", "algo.batch_size=20", "total_steps=200"]
    small = ["env.num_envs=4", "memory=mlp", "memory.hidden_size=8", "encoder.hidden_size=8", "algo.head_sizes=[8]"]
    last = ["evaluation.every=null", "evaluation.episodes=2", "evaluation.max_steps=30", "threads=1", "run_dir=t"]
    train(load(["algo=td3", "env=pendulum", "env.horizon=10", *small, *steps, *last]))
    noisy, greedy = (from_runs(["t"], 4, Path(f"{g}.hdf5"), 0, greedy=g) for g in (False, True))
    spread = np.abs(noisy.actions[:, 0][::10] - greedy.actions[:, 0][::10])  # first steps: the same observations
    assert 0 < spread.max() < 2


def test_several_runs_are_levels_one_after_another(in_tmp):
    for name in ("low", "high"):
        train(load([*RUN, "env=cartpole", "env.horizon=20", f"run_dir={name}", f"seed={len(name)}"]))
    assert dataset("generate", "low", "high", "--episodes", "3", "--out", "both.hdf5") == 0
    found = read(Path("both.hdf5"))
    levels = json.loads(found.attrs["levels"])
    assert [level["policy"] for level in levels] == ["low", "high"]
    assert [level["episodes"] for level in levels] == [3, 3]
    assert sum(level["transitions"] for level in levels) == len(found.rewards)
    assert levels[1]["return_mean"] == pytest.approx(found.returns[3:].mean())
    alone = from_runs(["low"], 3, Path("low.hdf5"), 0, greedy=False)
    assert np.array_equal(alone.observations, found.observations[: len(alone.observations)])


# --- files of others


def tables(number: int, **others: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {
        "observations": rng.normal(size=(number, 3)),
        "actions": rng.uniform(-1, 1, (number, 1)),
        "rewards": np.arange(number, dtype=np.float64),
        "terminals": np.zeros(number),
    }
    return made | others


def file_of(arrays: dict[str, np.ndarray], name: str = "other.hdf5") -> Path:
    with h5py.File(name, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array)
    return Path(name)


def at(number: int, *places: int) -> np.ndarray:
    flags = np.zeros(number, bool)
    flags[list(places)] = True
    return flags


def test_episodes_end_at_terminals_and_at_timeouts_and_the_unfinished_tail_is_dropped(in_tmp):
    """Also where what is known of a step is a column."""
    columns = {"rewards": np.arange(9.0)[:, None], "terminals": at(9, 7)[:, None], "timeouts": at(9, 3)[:, None]}
    found = read(file_of(tables(9, **columns)))
    assert found.rewards.tolist() == list(range(8))
    assert found.lengths.tolist() == [4, 4] and len(found.observations) == 8
    assert found.returns.tolist() == [6.0, 22.0]
    assert found.observations.dtype == np.float32


def test_without_timeouts_episodes_end_after_a_thousand_steps_of_their_own(in_tmp):
    found = read(file_of(tables(3300, terminals=at(3300, 499, 2499))))
    assert found.lengths.tolist() == [500, 1000, 1000]  # the second limit is where the terminal is, and 800 are left
    assert found.timeouts.nonzero()[0].tolist() == [1499]
    found = read(file_of(tables(3300, terminals=at(3300, 2600)), "second.hdf5"))
    assert found.lengths.tolist() == [1000, 1000, 601]


def test_what_else_a_file_holds_is_left_alone(in_tmp):
    arrays = tables(6, timeouts=at(6, 5)) | {"infos/qpos": np.zeros((6, 9)), "metadata/algorithm": np.zeros(1)}
    path = file_of(arrays | {"next_observations": np.full((6, 3), np.nan)})
    assert len(read(path).lengths) == 1


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"terminals": None}, "has no terminals; expected the layout of D4RL"),
        ({"timeouts": np.zeros(20, bool), "terminals": np.zeros(20)}, "no episode ends in its 20 transitions"),
        ({"rewards": np.zeros((20, 2))}, r"rewards has shape \[20, 2\]; expected \[20\] or \[20, 1\]"),
        ({"rewards": np.zeros(19)}, r"rewards has shape \[19\]"),
        ({"actions": np.zeros((21, 1))}, "20 observations and 21 actions"),
        ({"actions": np.zeros(20)}, "must be tables"),
        ({"observations": np.full((20, 3), np.inf)}, "not finite"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_reason(in_tmp, arrays, said):
    made = tables(20, timeouts=at(20, 19)) | arrays
    path = file_of({name: array for name, array in made.items() if array is not None})
    with pytest.raises(UserError, match=said):
        read(path)


def test_an_import_is_held_to_its_environment(in_tmp, capsys):
    file_of(tables(12, timeouts=at(12, 5)[:, None]))
    assert dataset("import", "other.hdf5", "env=cartpole", "--out", "c.hdf5") == 2
    assert "observations of 3 numbers, and env=cartpole has 4" in capsys.readouterr().err
    assert not Path("c.hdf5").exists()
    assert dataset("import", "other.hdf5", "env=pendulum_v", "--out", "p.hdf5") == 0
    assert "1 episodes of 6 to 6 steps, 6 transitions" in capsys.readouterr().out
    assert dataset("info", "p.hdf5", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["intact"] and told["transitions"] == 6
    assert told["attrs"]["env_config"]["observe"] == "full"
    assert told["attrs"]["levels"][0]["file"] == "other.hdf5"


def test_a_file_comes_back_as_it_was_written_and_is_not_overwritten(in_tmp):
    recording = play(
        Pendulum(2, horizon=5), uniform(Pendulum(1).single_action_space, 2, np.random.default_rng(0)), 4, 0
    )
    write(Path("data/x.hdf5"), joined([recording, recording]))
    found = read(Path("data/x.hdf5"))
    for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
        assert np.array_equal(getattr(found, name), np.concatenate([getattr(recording, name)] * 2))
    assert found.attrs["sha256_observations"] == found.digest("observations") != recording.digest("observations")
    with pytest.raises(UserError, match=r"is there already.*--out data/x_2\.hdf5"):
        write(Path("data/x.hdf5"), recording)
    assert [path.name for path in Path("data").iterdir()] == ["x.hdf5"]
    with pytest.raises(UserError, match=r"--out data/x\.hdf5/y\.hdf5: cannot be written"):
        write(Path("data/x.hdf5/y.hdf5"), recording)


def test_info_notices_observations_that_were_changed(in_tmp, capsys):
    write(Path("x.hdf5"), read(file_of(tables(6, timeouts=at(6, 5)))))
    with h5py.File("x.hdf5", "a") as file:
        file["observations"][0, 0] += 1
    assert dataset("info", "x.hdf5") == 0
    assert "not those that were written" in capsys.readouterr().out


def test_without_h5py_one_line_names_the_extra(in_tmp, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert dataset(*RANDOM, "--out", "r.hdf5") == 2
    assert "pip install '.[data]' in a clone of rlmem" in capsys.readouterr().err


ODD = {
    "a group": lambda file: file.create_group("rewards"),
    "nothing": lambda file: file.__setitem__("rewards", h5py.Empty("f4")),
    "text": lambda file: file.__setitem__("rewards", np.full(4, b"1.0")),
    "lists": lambda file: file.create_dataset("rewards", (4,), h5py.vlen_dtype(np.float32)),
    "a link to nothing": lambda file: file.__setitem__("rewards", h5py.SoftLink("/nowhere")),
    "a link to a file": lambda file: file.__setitem__("rewards", h5py.ExternalLink("other.hdf5", "/rewards")),
    "more than there is": lambda file: file.create_dataset("rewards", (2**40,), "f8", chunks=(1000,)),
}


@pytest.mark.parametrize("kind", ODD)
def test_rewards_that_are_no_numbers_are_refused_in_one_line(in_tmp, capsys, kind):
    file_of(tables(4, terminals=at(4, 3)))
    file_of(tables(4, terminals=at(4, 3)), "odd.hdf5")
    with h5py.File("odd.hdf5", "a") as file:
        del file["rewards"]
        ODD[kind](file)
    assert dataset("info", "odd.hdf5") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "odd.hdf5: " in said


@pytest.mark.parametrize("levels", ["[" * 50_000, "9" * 5000, b"\xff"], ids=range(3))
def test_any_attributes_are_shown_and_none_controls_the_terminal(in_tmp, capsys, levels):
    with h5py.File(file_of(tables(4, terminals=at(4, 3))), "a") as file:
        file.attrs["levels"], file.attrs["title\x1b[31m"] = levels, "\x1b]0;x\x07"
    for more in ([], ["--json"]):
        assert dataset("info", "other.hdf5", *more) == 0
        said = capsys.readouterr().out
        assert "\x1b" not in said and "\x07" not in said and "x1b]0;x" in said.replace("u001b", "x1b")
