"""Observations of several parts, action masks, and critics that read and remember what the actor does not."""

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from helpers import entry, fast_only, make_memory
from hydra.utils import instantiate
from leafy import SPACES, Leafy
from rlmem_envs.core.batched import BatchedEnv
from rlmem_envs.registration import make as make_task
from rlmem_envs.replay import ReplayableVectorEnv

import rlmem
from rlmem.acting.autoreset import slot_layout
from rlmem.acting.collector import Collector
from rlmem.acting.observed import observed
from rlmem.agents.heads import Categorical, MultiCategorical, masked
from rlmem.agents.layers import HeadLayers
from rlmem.agents.leaves import Leaves
from rlmem.agents.off_policy import QAgent
from rlmem.agents.trunk import Trunk, Trunks
from rlmem.batching import Replay, Segment
from rlmem.config.compose import load
from rlmem.config.paths import conf_dir
from rlmem.core.errors import Fault, UserError
from rlmem.core.spaces import JointActions, chosen, leaves
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import train
from rlmem.share.write import export

SIZES = [
    "env.num_envs=4", "memory.hidden_size=8", "algo.head_sizes=[8]", "total_steps=100", "evaluation.episodes=2",
    "evaluation.max_steps=20", "evaluation.every=null", "checkpoint.every=40", "threads=1", "run_dir=run",
]  # fmt: skip
REPLAYED = [
    "algo.batch_size=20", "algo.update_ratio=0.1", "algo.random_steps=30", "algo.learning_starts=30",
    "algo.record_every=40",
]  # fmt: skip
LIVED = {
    "ppo": ["algo.rollout_slots=12", "algo.epochs=2", "algo.num_minibatches=2"],
    "impala": ["algo.rollout_slots=12"],
    "pqn": ["algo.rollout_slots=12", "algo.epochs=2", "algo.num_minibatches=2"],
}
ALGOS = (*LIVED, "dqn", "sacd", "sac", "td3")
SCHEMES = {"tape": ["batching=tape"], "segment": ["batching=segment", "batching.length=4"]}


def run(algo, *more, memory="gru", scheme="tape", **game):
    """The directory of a run in `Leafy` environments."""
    env = ["env=gym", "env.id=leafy:Leafy-v0", f"env.action_masks={str(game.get('mask') == 'info').lower()}"]
    env += [f"env.kwargs.{key}={value}" for key, value in game.items() if value is not None]
    how = [f"algo={algo}", f"memory={memory}", *SIZES, *LIVED.get(algo, REPLAYED), *SCHEMES[scheme]]
    return train(load([*how, *env, *more])).run_dir


KINDS = ("box", "image", "discrete", "multi", "dict", "nested")
MASKS = (None, "leaf", "info", "method", "tuple")
CELLS = [
    (algo, kind, mask, actions, memory, scheme)
    for algo in ALGOS
    for kind in KINDS
    for mask in MASKS
    for actions in (("continuous",) if algo in ("sac", "td3") else ("discrete", "multi"))
    if (mask, actions) != ("leaf", "continuous")  # which is refused
    for memory in ("gru", "ffm", "mlp")
    for scheme in SCHEMES
]
FAST = {
    ("ppo", "dict", "leaf", "multi", "gru", "segment"),
    ("impala", "nested", "info", "discrete", "ffm", "tape"),
    ("dqn", "dict", "method", "multi", "gru", "tape"),
    ("sac", "image", None, "continuous", "gru", "segment"),
}
"""Most kinds of observations in parts, of masks and of algorithms; the rest is slow."""


@pytest.mark.parametrize(
    ("algo", "kind", "mask", "actions", "memory", "scheme"),
    fast_only(FAST, CELLS),
)
def test_every_observation_and_mask_trains_or_is_refused(in_tmp, algo, kind, mask, actions, memory, scheme):
    """The environment itself asserts that no forbidden action is taken, greedy or sampled."""
    rows = read_jsonl(run(algo, kind=kind, mask=mask, actions=actions, memory=memory, scheme=scheme) / "metrics.jsonl")
    assert rows[-1]["step"] == 100
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert [name for row in rows for name in row if entry(name) is None] == []
    learnt = [row for row in rows if "batch/transitions" in row]
    assert learnt
    if algo in ("ppo", "impala"):
        assert max(row[f"{algo}/ratio_max_dev"] for row in learnt) <= 1e-5


@pytest.mark.parametrize(
    ("algo", "memory"),
    [
        ("ppo", "mlp"),
        ("sac", "gru"),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in (("td3", "mlp"), ("ppo", "ffm"))),
    ],
)
def test_a_critic_reads_and_remembers_what_the_actor_does_not(in_tmp, capsys, algo, memory):
    env = "position_only_pendulum" if algo != "ppo" else "position_only_cartpole"
    lines = [
        f"algo={algo}", f"env={env}", "env.privileged=true", "algo.separate=true", f"algo.critic_memory={memory}",
        "algo.critic_observation=[observation,privileged]", "memory=lstm", *SIZES, *LIVED.get(algo, REPLAYED),
    ]  # fmt: skip
    run_dir = train(load(lines)).run_dir
    assert "actor reads observation; critic reads observation, privileged" in capsys.readouterr().out
    weights = Checkpoints(run_dir / "checkpoints").load()[1]["agent"]
    reads = {name.split(".")[2] for name in weights if ".encoder.leaves.1." in name}
    assert reads == {"1"}, "the critic alone has an encoder of the full state"
    agent = rlmem.load(run_dir)
    action, state = agent.act(np.zeros(2, np.float32), agent.initial_state())
    again, _ = agent.act({"observation": np.zeros(2, np.float32)}, state)
    assert action in agent.action_space
    assert again in agent.action_space


def test_parts_may_be_left_out_and_read_by_settings_of_their_own(in_tmp):
    given = "encoder.leaves={camera: {convolutions: [[4, 3, 2]], hidden_size: 5}}"
    run_dir = run("ppo", "encoder=dict", "encoder.exclude=[mission,bits]", given, kind="text")
    weights = Checkpoints(run_dir / "checkpoints").load()[1]["agent"]
    assert weights["trunks.trunks.0.encoder.leaves.1.encoder.features.weight"].shape[0] == 5
    assert sorted(rlmem.load(run_dir).observation_space.spaces) == ["box", "camera", "discrete", "multi", "number"]


@pytest.mark.slow
def test_a_critic_encodes_its_own_leaves_by_their_settings_and_one_that_the_actors_encoder_cannot_read(in_tmp):
    def shapes(run_dir):
        weights = Checkpoints(run_dir / "checkpoints").load()[1]["agent"]
        return {name.removeprefix("trunks.trunks."): tuple(weight.shape) for name, weight in weights.items()}

    critic = "algo.separate=true", "algo.critic_observation=[bits,box]"
    given = "encoder.leaves={camera: {hidden_size: 5}, bits: {hidden_size: 7}}"
    found = shapes(run("ppo", "encoder=dict", "encoder.include=[box,camera]", given, *critic))
    assert found["0.encoder.leaves.1.encoder.features.weight"][0] == 5
    assert found["1.encoder.leaves.0.embedding.weight"][0] == 7
    critic = "algo.separate=true", "algo.critic_observation=[action_mask]", "run_dir=other"
    found = shapes(run("ppo", "encoder=cnn", *critic, kind="image", mask="leaf"))
    assert found["1.encoder.leaves.0.embedding.weight"] == (64, 4)


def test_a_mask_without_an_action_names_the_environment(in_tmp):
    with pytest.raises(Fault, match=r"environment \d, step 3 of its episode: its action mask allows no action"):
        run("ppo", mask="method", empty=3)


def test_a_trained_agent_takes_observations_as_environments_give_them(in_tmp):
    run_dir = run("ppo", kind="dict", mask="method", actions="multi")
    agent, env = rlmem.load(run_dir), Leafy("dict", "multi", "tuple")
    assert rlmem.Run(run_dir).config["encoder"]["_target_"] == "rlmem.agents.leaves.Leaves"
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        state, over = agent.initial_state(), False
        while not over:
            action, state = agent.act(obs, state, action_mask=env.action_masks(), greedy=seed > 0)
            obs, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    with pytest.raises(UserError, match="`action_mask` is missing"):
        agent.act(obs, agent.initial_state())
    with pytest.raises(UserError, match="`box` is missing"):
        agent.act({"bits": np.zeros(3)}, agent.initial_state(), action_mask=np.ones(5))
    with pytest.raises(UserError, match="observations have several parts or action masks"):
        export(run_dir)


def test_info_masks_that_are_not_followed_are_said(in_tmp):
    run("ppo", "env.action_masks=false", kind="box", mask="info", strict="false")
    said = "step 0: info holds action masks, which are not followed; e.g. env.action_masks=true"
    assert said in Path("run/log.txt").read_text()


def test_workers_are_asked_for_their_masks_and_vectors_that_cannot_answer_are_refused():
    make = lambda: Leafy("box", "discrete", "method", strict=False)  # noqa: E731
    seen = []
    for vector in (SyncVectorEnv, AsyncVectorEnv):
        with closing(observed(slot_layout(vector([make] * 2)), lambda names: names)) as env:
            slots = [env.reset(seed=0)[0], *(env.step(np.zeros(2, int))[0] for _ in range(20))]
            seen.append(np.array([obs["action_mask"] for obs in slots]))
    np.testing.assert_array_equal(*seen)
    assert 0 < seen[0].mean() < 1
    same_step = slot_layout(SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    with pytest.raises(ValueError, match=r"SyncVectorEnv resets in the same step, so action_masks\(\) says nothing of"):
        observed(same_step, lambda names: names)


@pytest.mark.parametrize(
    "mask", [spaces.Tuple([spaces.MultiBinary(2)] * 2), spaces.MultiBinary(3)], ids=["tuple", "short"]
)
def test_a_leaf_that_is_no_mask_of_the_actions_is_refused(mask):
    make = lambda: Leafy("box", "discrete", "leaf")  # noqa: E731
    env = SyncVectorEnv([make], autoreset_mode=AutoresetMode.NEXT_STEP)
    env.single_observation_space = spaces.Dict({"x": spaces.Discrete(2), "action_mask": mask})
    env.single_action_space = spaces.MultiDiscrete([2, 2])
    with pytest.raises(
        ValueError, match=r"its `action_mask` is .*; expected one array of 4, a number for every action"
    ):
        observed(env, lambda names: names)


def test_masks_of_info_are_followed_only_where_they_are_there():
    make = lambda: Leafy("box", "discrete", "info", strict=False)  # noqa: E731
    vector = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    vector.masks_in_info = True
    env = observed(slot_layout(vector), lambda names: names)
    env.reset(seed=0)
    for _ in range(40):
        obs, _, terminated, truncated, _ = env.step(np.zeros(2, int))
        np.testing.assert_array_equal(obs["action_mask"].any(-1), ~(terminated | truncated))


@pytest.mark.parametrize("sizes", [[6], [2, 3, 4]], ids=["categorical", "multi"])
def test_masked_distributions_are_those_of_sb3_contrib(sizes):
    contrib = pytest.importorskip("sb3_contrib.common.maskable.distributions")
    n, generator = sum(sizes), torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(1000, n, generator=generator, dtype=torch.float64)).requires_grad_()
    allowed = [torch.rand(1000, k, generator=generator) < 0.4 for k in sizes]
    for part in allowed:
        part[torch.arange(1000), torch.randint(part.shape[1], (1000,), generator=generator)] = True
    mask = torch.cat(allowed, 1)
    theirs = (
        contrib.MaskableCategoricalDistribution(n)
        if len(sizes) == 1
        else contrib.MaskableMultiCategoricalDistribution(sizes)
    )
    theirs = theirs.proba_distribution(logits)
    theirs.apply_masking(mask.numpy())
    ours = Categorical(masked(logits, mask)) if len(sizes) == 1 else MultiCategorical(masked(logits, mask), sizes)
    action = ours.sample(generator)
    weight = torch.randn(1000, generator=generator, dtype=torch.float64)
    for name in ("log_prob", "entropy"):
        found, expected = (getattr(d, name)(*([action] if name == "log_prob" else [])) for d in (ours, theirs))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        gradients = [torch.autograd.grad((weight * x).sum(), logits, retain_graph=True)[0] for x in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
        assert not gradients[0][~mask].any()


def test_joint_masks_allow_what_all_components_allow():
    joint, mask = JointActions(spaces.MultiDiscrete([2, 3, 2])), torch.tensor([[1, 0, 0, 1, 1, 1, 1]]).bool()
    allowed = joint.action(joint.mask(mask)[0].nonzero()[:, 0]).tolist()
    assert allowed == [[0, 1, 0], [0, 1, 1], [0, 2, 0], [0, 2, 1]]


@pytest.mark.parametrize(("task", "mask"), [("MineSweeper", True), ("Battleship", True), ("TMaze", False)])
def test_native_games_show_masks_and_full_states_beside_their_observations(task, mask):
    """Everything else stays as it is, for equal actions."""
    given = {"action_mask": True} if mask else {}
    plain = make_task(task, 5, **({"cells": True} if mask else {}))
    shown = make_task(task, 5, privileged=True, **given)
    plain.action_space.seed(0)
    pairs = [(plain.reset(seed=1), shown.reset(seed=1))]
    for _ in range(40):
        actions = plain.action_space.sample()
        if mask:
            before = pairs[-1][1][0]["action_mask"]
            seen_before = ~before[np.arange(5), actions]
        running = ~shown.over
        pairs.append((plain.step(actions), shown.step(actions)))
        if mask:  # what was seen or shot at before pays less than nothing
            assert (pairs[-1][1][1][seen_before & running] < 0).all()
    for (obs, *others), (parts, *same) in pairs:
        np.testing.assert_array_equal(obs, parts["observation"])
        kinds = {name: space.dtype for name, space in shown.single_observation_space.items()}
        assert shown.observation_space.contains({name: part.astype(kinds[name]) for name, part in parts.items()})
        for a, b in zip(others[:-1], same[:-1], strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="offers no full state"):
        BatchedEnv(1, spaces.Discrete(2), spaces.Discrete(2), {}, privileged=True)


def test_a_game_that_can_be_shown_whole_offers_its_full_state_to_critics():
    shown_whole = {}
    for file in (conf_dir() / "env").glob("*.yaml"):
        values = yaml.safe_load(file.read_text())
        if values.get("observe") == "partial":
            shown_whole[file.stem] = values
    assert len(shown_whole) > 20
    for name, values in shown_whole.items():
        assert values.get("privileged") is False, f"conf/env/{name}.yaml offers `observe` alone"
        if "_target_" in values and "???" not in values.values():
            given = {key: value for key, value in values.items() if key not in ("defaults", "evaluation")}
            env = instantiate(given, num_envs=2, privileged=True)
            assert list(env.single_observation_space) == ["observation", "privileged"], name


@pytest.mark.parametrize("mapped", [False, True], ids=["memory", "files"])
def test_a_replay_gives_back_every_leaf_of_every_slot(tmp_path, mapped):
    """Leaves are stored apart, in their own types; the random row of floats says which slot is which."""
    env = ReplayableVectorEnv([lambda: Leafy("dict", "multi", "leaf")] * 3)
    env = observed(env, lambda names: names)
    space = env.single_observation_space
    encoder = Leaves(space, env.single_action_space)
    trunk = Trunk(encoder, make_memory("gru", encoder.output_size))
    agent = QAgent(Trunks(trunk), env.single_action_space, HeadLayers((8,)))
    generator = torch.Generator().manual_seed(0)
    collector = Collector(env, agent, 0, generator, torch.device("cpu"))
    rollout, _ = collector.collect(60, 10**6)
    replay = Replay(10**6, 3, torch.device("cpu"), directory=tmp_path if mapped else None)
    replay.add(rollout)
    fields = {name: array for name, array in replay.slots.arrays.items() if name.startswith("obs/")}
    assert fields.keys() == {f"obs/{name}" for name in space}
    assert fields["obs/camera"].dtype == np.uint8
    assert fields["obs/action_mask"].dtype == bool
    assert isinstance(fields["obs/camera"], np.memmap) == mapped
    again = Replay(10**6, 3, torch.device("cpu"))
    again.load_state_dict(replay.state_dict())
    lived = {name: leaf.flatten(0, 1) for name, leaf in rollout.streams.obs.items()}
    for source in (replay, again):
        batch = source.sample(Segment(4), 50, generator).batch
        shown = {name: leaf.flatten(0, 1) for name, leaf in batch.obs.items()}
        for slot in batch.mask.flatten().nonzero()[:, 0].tolist():
            (where,) = (lived["box"] == shown["box"][slot]).all(-1).nonzero()[:, 0].tolist()
            assert all(torch.equal(shown[name][slot], lived[name][where]) for name in lived)


def test_patterns_choose_leaves():
    names = list(leaves(SPACES["nested"]))
    assert names == ["0/arm", "0/eyes/0", "0/eyes/1", "1"]
    assert chosen(names, ["0/eyes"]) == ["0/eyes/0", "0/eyes/1"]
    assert chosen(names, None, ["0/*"]) == ["1"]
    assert chosen(["observation", "privileged", "action_mask"], None) == ["observation"]
    assert chosen(["observation", "privileged"], ["*"]) == ["observation"]
    assert chosen(["observation", "privileged"], ["privileged"]) == ["privileged"]
    deep = ["0/box", "0/privileged", "privileged/pos", "privileged/speed", "1/action_mask/0"]
    for include in (None, ["*"], ["0"], ["0/*"], ["0/box"], ["0/priv*", "0/b*", "1/*"]):
        assert chosen(deep, include) == ["0/box"], include
    assert chosen(deep, ["privileged"]) == chosen(deep, ["privileged/*"]) == ["privileged/pos", "privileged/speed"]
    assert chosen(deep, ["0", "0/privileged"]) == ["0/box", "0/privileged"]
    assert chosen(deep, ["0", "0/privileged", "privileged/pos"], ["0"]) == ["privileged/pos"]
    with pytest.raises(ValueError, match="no part of the observation is left"):
        chosen(names, None, ["0", "1"])


def test_the_encoder_reads_no_leaf_that_is_left_out():
    encoder = Leaves(SPACES["dict"], spaces.Discrete(2), include=["box", "camera"])
    obs = {
        name: torch.zeros(2, *(space.shape or ()))
        for name, space in SPACES["dict"].items()
        if name in ("box", "camera")
    }
    start = torch.zeros(2, dtype=torch.bool)
    assert encoder(obs, torch.zeros(2, dtype=torch.long), torch.zeros(2), start).shape == (2, 128)
