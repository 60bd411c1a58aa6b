"""Regular languages: the tables against brute force, recorded strings, lengths, and what a blind guess earns."""

import json
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from helpers import ROOT
from rlmem_envs.languages.dfa import DFA
from rlmem_envs.languages.regular import RegularLanguage
from rlmem_envs.languages.tables import TABLES

from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import train


def permuted(string: tuple[int, ...]) -> int:
    """Where five things in a row go: each letter moves all of them at once."""
    place = list(range(5))
    for letter in string:
        place = [(p + 1) % 5 if letter == 0 else (p + 1) % 4 if p < 4 else 4 for p in place]
    return place[0]


MEANING = {
    "parity": lambda s: sum(s) % 2,
    "even_pairs": lambda s: int(sum(a != b for a, b in pairwise(s)) % 2 == 0),
    "sym5": permuted,
    "cycle_navigation": lambda s: (s.count(1) - s.count(2)) % 5,
    "tomita_5": lambda s: int(s.count(0) % 2 == s.count(1) % 2 == 0),
    "tomita_6": lambda s: int((s.count(0) - s.count(1)) % 3 == 0),
}
"""The class of a string in words of its own, without an automaton."""


def label(dfa: DFA, string: tuple[int, ...]) -> int:
    state = dfa.start
    for letter in string:
        state = dfa.next[state, letter]
    return dfa.label[state]


@pytest.mark.parametrize("language", TABLES)
def test_every_automaton_decides_its_language(language):
    dfa = DFA.read(language)
    K = len(dfa.letters)
    for length in range(9 if K == 2 else 7):
        strings = list(product(range(K), repeat=length))
        expected = [MEANING[language](string) for string in strings]
        assert [label(dfa, string) for string in strings] == expected
        shares = np.bincount(expected, minlength=dfa.classes) / len(strings)
        np.testing.assert_allclose(dfa.class_shares(length), shares, atol=1e-12)


@pytest.mark.recorded_env("regular")
def test_recorded_strings_are_read_alike(path: Path):
    """All strings of a file at once: observations, rewards, ends and the automaton's states."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    groups = sorted({tuple(name.split("/")[:2]) for name in arrays if name.count("/") == 2})
    assert groups
    for language, mode in groups:
        params = json.loads(str(arrays[f"{language}/params"]))
        names = json.loads(str(arrays[f"{language}/state_names"]))
        prefix = f"{language}/{mode}/"
        own = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
        replay(params, mode, names, SimpleNamespace(**own))


def replay(params: dict, mode: str, names: list[str], recorded: SimpleNamespace) -> None:
    N, n = recorded.symbols.shape
    length = "fixed" if mode == "eval" else "uniform"
    env = RegularLanguage(N, params["language"], n=params["n"], length=length, min_length=params["l_min"])
    end = env.single_observation_space.n - 1
    assert (end, env.single_action_space.n) == (params["symbols"].index("E"), params["num_actions"])
    obs, _ = env.reset(options={"hidden": {"symbols": recorded.symbols, "length": recorded.length}})
    success = np.zeros(N, bool)
    for t in range(n):
        on, answering = t < recorded.length, t == recorded.length - 1
        np.testing.assert_array_equal(np.eye(end + 1)[obs[on]], recorded.observations[on, t])
        np.testing.assert_array_equal(env.oracle()[answering], recorded.label[answering])
        obs, reward, terminated, truncated, info = env.step(np.where(on, recorded.actions[:, t], 0))
        q = env.reached
        state = np.where(answering, [f"{label}E" for label in env._dfa.label[q]], np.array(env._dfa.states)[q])
        np.testing.assert_array_equal(state[on], np.array(names)[recorded.dfa_state[on, t]])
        np.testing.assert_allclose(reward[on], recorded.rewards[on, t], atol=1e-9)
        np.testing.assert_array_equal(terminated[on], recorded.terminated[on, t])
        np.testing.assert_array_equal(truncated[on], recorded.truncated[on, t])
        np.testing.assert_array_equal(np.eye(end + 1)[obs[answering]], recorded.observations[answering, t + 1])
        success |= info.get("success", False) & on
    np.testing.assert_array_equal(success, recorded.success)


def read_strings(env: RegularLanguage, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The letters that are shown, and the lengths of the episodes that end, in so many steps of random play."""
    shown, lengths, rng = [], [], np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        shown.append(obs[obs < env._end])
        ended = env.over.copy()
        obs, _, terminated, _, _ = env.step(rng.integers(0, env.single_action_space.n, env.num_envs))
        lengths.append(env.t[terminated & ~ended])
    return np.concatenate(shown), np.concatenate(lengths)


def test_letters_are_fair_and_lengths_uniform():
    """Within four standard errors. Counting the first episodes only would favour short ones: all of equal count."""
    env = RegularLanguage(4000, "cycle_navigation", n=10, min_length=3)
    letters, _ = read_strings(env, 11)
    counts = np.bincount(letters, minlength=3)
    assert abs(counts / counts.sum() - 1 / 3).max() < 4 * (2 / 9 / counts.sum()) ** 0.5
    env.reset(seed=1)
    lengths = np.bincount(env.length, minlength=11)[3:]
    assert lengths.sum() == 4000 and len(lengths) == 8
    assert abs(lengths / 4000 - 1 / 8).max() < 4 * (7 / 64 / 4000) ** 0.5


def test_lengths_in_training_and_evaluation():
    _, lengths = read_strings(RegularLanguage(50, "parity", n=7), 40)
    assert set(lengths) == set(range(2, 8))
    _, lengths = read_strings(RegularLanguage(50, "parity", n=7, length="fixed"), 40)
    assert set(lengths) == {7}


def test_every_letter_may_ask_for_an_answer():
    env = RegularLanguage(3, "parity", n=3, answer="every")
    obs, _ = env.reset(seed=0, options={"hidden": {"symbols": np.tile([1, 0, 2], (3, 1))}})
    for t, answers in enumerate([[1, 0, 1], [1, 1, 2]]):
        assert (obs == [1, 0][t]).all() and (env.oracle() == 1).all() and env.asked().all()
        obs, reward, terminated, _, info = env.step(answers)
        assert reward.tolist() == [[0.5, 0, 0.5], [0.5, 0.5, -0.5]][t]
    assert terminated.all() and info["success"].tolist() == [True, False, False]
    assert env.scores().memoryless == pytest.approx(1 / 2 + 5 / 24), "the first letter tells the class"


OWN = {
    "start": "none",
    "transitions": {
        "none": {"a": "one", "b": "none"},
        "one": {"a": "two", "b": "one"},
        "two": {"a": "two", "b": "two"},
    },
    "labels": {"none": 0, "one": 1, "two": 0},
}
"""Strings with exactly one a."""


def test_a_table_of_ones_own_is_a_language(in_tmp):
    """In a yaml, where states and letters may be numbers, and on the command line."""
    yaml = "transitions: {0: {a: 1, b: 0}, 1: {a: 2, b: 1}, 2: {a: 2, b: 2}}, labels: {0: 0, 1: 1, 2: 0}"
    (in_tmp / "env").mkdir()
    (in_tmp / "env" / "one_a.yaml").write_text(f"defaults: [_regular]\nlanguage: {{start: 0, {yaml}}}\n")
    composed = load(["env=one_a", f"hydra.searchpath=[file://{in_tmp}]"]).values["env"]["language"]
    typed = load(["env=parity", f"env.language={{start: 0, {yaml}}}"]).values["env"]["language"]
    for string in product(range(2), repeat=4):
        for table in (OWN, composed, typed):
            assert label(DFA.read(table), string) == (string.count(0) == 1)
    assert DFA.read(OWN).letters == ("a", "b")


def test_what_is_no_automaton_is_refused_in_one_line():
    for change, message in yaml.safe_load((ROOT / "tests/data/refused_models.yaml").read_text())["automata"]:
        with pytest.raises(ValueError, match=message) as refusal:
            RegularLanguage(1, OWN | change)
        assert "\n" not in str(refusal.value)


def test_a_run_is_evaluated_at_the_full_length_and_at_greater_ones(in_tmp):
    small = ["memory=gru", "memory.hidden_size=4", "encoder.hidden_size=4", "algo.rollout_slots=16", "env.num_envs=2"]
    budget = ["total_steps=32", "evaluation.episodes=2", "evaluation.every=null"]
    train(load(["env=parity", "env.n=6", *small, *budget, "run_dir=run"]))
    assert evaluate_run(Path("run"), episodes=4)["greedy"]["length_mean"] == 6
    longer = evaluate_run(Path("run"), episodes=4, overrides=["env.n=40"])
    assert longer["greedy"]["length_mean"] == 40
    with pytest.raises(UserError, match="observation space"):
        evaluate_run(Path("run"), overrides=["env.language=cycle_navigation"])
