"""Exported agents: files that do what the agent does, for every memory, without rlmem."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from helpers import small_run
from test_algorithm_matrix import CONTINUOUS, DISCRETE, LIVED, REPLAYED, SMALL

import rlmem
from rlmem.commands.cli import main
from rlmem.config.paths import conf_dir
from rlmem.errors import Fault, UserError

MEMORIES = sorted(path.stem for path in (conf_dir() / "memory").glob("*.yaml"))
ALGOS = {"ppo": (DISCRETE, LIVED["ppo"]), "dqn": (DISCRETE, REPLAYED), "sac": (CONTINUOUS, REPLAYED)}
FAST = {("gru", "ppo"), ("ffm", "dqn"), ("gpt", "sac"), ("shm", "ppo"), ("mlp", "dqn"), ("lru", "sac")}
CASES = [
    pytest.param(*case, marks=[] if case in FAST else [pytest.mark.slow], id="-".join(case))
    for case in product(MEMORIES, ALGOS)
]
READS = ["encoder.prev_action=true", "encoder.prev_reward=true", "encoder.start_flag=true"]


def trained(memory: str, algo: str = "ppo", *overrides: str) -> rlmem.Run:
    env, settings = ALGOS[algo]
    width = ["memory.hidden_size=16"] if "hidden_size:" in (conf_dir() / f"memory/{memory}.yaml").read_text() else []
    return rlmem.Run(
        small_run(env, f"memory={memory}", *width, f"algo={algo}", *settings, *READS, *overrides, base=SMALL)
    )


@pytest.mark.parametrize(("memory", "algo"), CASES)
def test_every_memory_exports_and_does_what_the_agent_does(in_tmp, memory, algo):
    path = trained(memory, algo).export(episodes=2)
    compared = json.loads(path.with_suffix(".json").read_text())["compared"]
    assert (compared["steps"], compared["environments"]) == (256, 8)
    assert compared["largest"] < 1e-5
    assert compared["actions"] == 0
    assert compared["of"] == (0 if algo == "sac" else 2048)


def test_an_exported_agent_needs_no_rlmem_and_forgets_at_a_start(in_tmp):
    run = trained("gru")
    policy = onnxruntime.InferenceSession(run.export(episodes=2))
    inputs = {i.name: i for i in policy.get_inputs()}
    assert list(inputs) == ["obs", "start", "reward", "state_prev_action", "state"]
    names = [output.name for output in policy.get_outputs()]
    assert names == ["action", "next_state_prev_action", "next_state"]
    agent, rng = run.agent(), np.random.default_rng(0)
    for n in (1, 5):  # any number of environments
        state = agent.initial_state(n)
        own = {"state_prev_action": np.full(n, 3), "state": np.full((n, 16), np.nan, np.float32)}
        for step in range(40):
            start = np.full(n, step == 0) | (rng.random(n) < 0.1)
            obs, reward = rng.integers(0, 4, n), rng.normal(size=n).astype(np.float32)
            action, state = agent.act(obs, state, start=start, reward=reward)
            did, *after = policy.run(names, own | {"obs": obs, "start": start, "reward": reward})
            own = dict(zip(own, after, strict=True))
            np.testing.assert_array_equal(did, action)
            np.testing.assert_allclose(own["state"], state.memory[0], atol=1e-5)


def test_the_card_says_what_the_agent_is_and_earns(in_tmp, capsys):
    run = trained("ffm")
    capsys.readouterr()
    assert main(["export", "run", "--format", "torch", "--out", "a/b.pt2", "--episodes", "3", "--license", "CC0"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("a/b.pt2: ") and "0 of 2,048 actions differed; the card is a/b.md" in said
    card = json.loads(Path("a/b.json").read_text())
    assert card["license"] == "CC0" and card["format"] == "torch" and card["opset"] is None
    assert card["inputs"]["state"]["shape"][0::3] == ["N", 2]  # a complex matrix
    assert card["config"]["memory"] == run.config["memory"]
    row = card["evaluation"]
    assert card["returns"]["greedy"]["mean"] == row["greedy"]["return_mean"]
    assert card["returns"]["greedy"]["low"] < row["greedy"]["return_mean"] < card["returns"]["greedy"]["high"]
    assert "# ffm, ppo on repeat_first" in Path("a/b.md").read_text()
    module = torch.export.load("a/b.pt2").module()
    inputs = [
        torch.zeros(2, *tensor["shape"][1:], dtype=getattr(torch, tensor["type"])) for tensor in card["inputs"].values()
    ]
    assert module(*inputs)[0].shape == (2,)


def test_what_cannot_be_exported_is_one_clear_line(in_tmp, capsys, monkeypatch):
    run = trained("gru")
    with monkeypatch.context() as patched:
        patched.setattr("rlmem.api.exporting.write._apart", lambda found, expected: 0.5)
        with pytest.raises(Fault, match=r"departs from the agent by 5\.0e-01 within 256 steps; it is not kept"):
            run.export(episodes=2)
    assert list((run.path / "export").iterdir()) == []
    monkeypatch.setattr(torch, "sigmoid", torch.special.bessel_j0)
    with pytest.raises(UserError, match=r"--format onnx: .*bessel_j0.*; e\.g\. --format torch"):
        run.export(episodes=2)
