"""Decision models: frames that are dropped, returns to go, acting as in training, exact resume, and learning."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import entry
from recordings import provide_recording, recording
from rlmem_envs.occlusion.cartpole import CartPole
from rlmem_envs.occlusion.pendulum import Pendulum
from small_runs import DECIDE

import rlmem
from rlmem.acting.collector import Collector
from rlmem.algos.supervised.dataset.file import read, write
from rlmem.algos.supervised.dataset.play import play
from rlmem.algos.supervised.decision_agent import AGES, DecisionAgent, Dropping
from rlmem.algos.supervised.windows import Drops, Ranges, Trajectories
from rlmem.analysis import analyze
from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.core.types import Inputs
from rlmem.record.recorder import read_jsonl
from rlmem.run.assemble import Parts, assemble
from rlmem.run.dataset import from_runs
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import resume, train

MEMORIES = {
    "dt": ["memory=gpt", "memory.window=6", "algo.drop_information=true"],
    "drnn": ["memory=lstm"],
    "dlrnn": ["memory=lru", "memory.block=ffn"],
}
FIRST, LENGTH = torch.tensor([0, 5, 6]), torch.tensor([5, 1, 30])
EPISODES = Ranges(FIRST, LENGTH)


def run_of(*overrides: str, run_dir: str = "run") -> Path:
    provide_recording()
    train(load([*DECIDE, *MEMORIES["drnn"], f"run_dir={run_dir}", *overrides]))
    return Path(run_dir)


def parts_of(*overrides: str) -> Parts:
    provide_recording()
    parts = assemble(load([*DECIDE, *overrides]))
    parts.algo.feed(parts.env, parts.streams, parts.device)
    parts.agent.know(parts.algo.trajectories.seen, -50.0)
    return parts


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- dropped frames, returns to go and windows


def test_the_first_frame_of_an_episode_is_kept_and_each_other_dropped_with_the_probability():
    drops = Drops(EPISODES, 0.8, 1, generator())
    found = torch.stack([drops.received() for _ in range(4000)])
    row = torch.arange(36)
    assert (found[:, FIRST] == FIRST).all()
    assert (found <= row).all() and (found >= FIRST.repeat_interleave(LENGTH)).all(), "of its own episode"
    fresh = (found == row).double().mean(0)
    others = torch.ones(36, dtype=torch.bool)
    others[FIRST] = False
    assert (fresh[others] - 0.2).abs().max() < 5 * (0.2 * 0.8 / 4000) ** 0.5
    three = (found[:, 20] == 17).double().mean()
    assert three == pytest.approx(0.2 * 0.8**3, abs=5 * (0.1 / 4000) ** 0.5), "frames are dropped independently"


@pytest.mark.parametrize("probability", [0.0, 0.999999])
def test_at_the_ends_every_frame_is_received_or_the_first_one_alone(probability):
    received = Drops(EPISODES, probability, 1, generator()).received()
    assert torch.equal(received, FIRST.repeat_interleave(LENGTH) if probability else torch.arange(36))


def test_frames_are_dropped_anew_after_a_number_of_updates_and_a_resumed_run_goes_on():
    drops = Drops(EPISODES, 0.5, 3, generator())
    found = [drops.received() for _ in range(7)]
    assert torch.equal(found[0], found[2]) and torch.equal(found[3], found[5])
    assert not torch.equal(found[2], found[3]) and not torch.equal(found[5], found[6])
    first = Drops(EPISODES, 0.5, 3, generator())
    for _ in range(4):
        first.received()
    other = Drops(EPISODES, 0.5, 3, generator(1))
    other.load_state_dict(first.state_dict())
    assert all(torch.equal(other.received(), expected) for expected in found[4:])


def test_the_return_to_go_is_what_is_still_to_be_earned_in_the_episode():
    data = recording(episodes=3, steps=10)
    found = Trajectories.of(data, Pendulum(1).single_action_space, [0, 1, 2])
    rewards = data.rewards.reshape(3, 10).astype(np.float64)
    np.testing.assert_allclose(found.to_go.view(3, 10), rewards[:, ::-1].cumsum(1)[:, ::-1], rtol=1e-5)
    np.testing.assert_allclose(found.to_go[::10], data.returns, rtol=1e-5)


def test_a_window_repeats_observation_and_return_of_the_newest_frame_and_has_every_action():
    data = recording(episodes=4, steps=10)
    found = Trajectories.of(data, Pendulum(1).single_action_space, [0, 1])
    received = Drops(found.episodes, 0.7, 1, generator()).received()
    window = found.frames(300, 6, received, generator(1))
    row_of = {tuple(action): row for row, action in enumerate(found.action.tolist())}
    row = torch.tensor([row_of[tuple(action)] for action in window.target.flatten(0, 1).tolist()]).view(300, 6)
    assert torch.equal(row, row[:, :1] + torch.arange(6)) and (row[:, 0] // 10 == row[:, -1] // 10).all()
    assert {*(row[:, 0] % 10).tolist()} == {*range(5)}, "every place that leaves room"
    frames, inputs = window.inputs.obs, window.inputs
    assert torch.equal(frames[..., :2], found.seen[received[row]]) and (frames[:, 0, -1] > 0).any()
    assert torch.equal(frames[..., 2], found.to_go[received[row]])
    assert torch.equal(frames[..., 3], (row - received[row]).float())
    assert torch.equal(inputs.prev_action[:, 1:], found.action[row[:, :-1]]), "actions are never dropped"
    assert inputs.start[:, 0].all() and not inputs.start[:, 1:].any() and not inputs.prev_reward.any()
    assert window.mask.all() and window.due == 1800


def test_episodes_that_are_shorter_than_a_window_are_padded_behind_their_last_slot():
    found = Trajectories.of(recording(episodes=4, steps=3), Pendulum(1).single_action_space, [0, 1, 2])
    window = found.frames(10, 6, torch.arange(12), generator())
    assert window.mask.sum(1).tolist() == [3] * 10 and window.due == 30


# --- acting


@pytest.mark.parametrize("memory", MEMORIES)
def test_acting_is_what_was_learnt_on_the_same_frames(in_tmp, memory):
    """An episode played with dropped frames, and the window of the same slots cut from its recording."""
    parts = parts_of(*MEMORIES[memory])
    agent, shown, kept_of, actions = parts.agent, [], [], []

    def watched(inputs, kept, state, act=agent.act_with):
        shown.append(inputs)
        kept_of.append(kept)
        action, log_prob, state = act(inputs, kept, state)
        actions.append(action)
        return action, log_prob, state

    agent.act_with = watched
    behind = Dropping(agent, 0.6, generator())
    collector = Collector(Pendulum(4, horizon=20), behind, 0, None, torch.device("cpu"))
    collector.collect(slots=42, budget=2**62)  # two episodes, each with the slot of its final observation
    begins = torch.stack([inputs.start for inputs in shown], 1)
    assert begins[0].nonzero().flatten().tolist() == [0, 21]
    for t in (0, 2, 5, 12, 20, 21, 23, 41):
        first = max(t - 5, 21 * (t // 21))
        frames, prev = [], []
        for slot in range(first, t + 1):
            newest = torch.tensor(
                [max(s for s in range(21 * (slot // 21), slot + 1) if kept_of[s][n] or begins[n, s]) for n in range(4)]
            )
            earned = [sum(shown[s].prev_reward[n] for s in range(21 * (slot // 21), newest[n] + 1)) for n in range(4)]
            seen = torch.stack([shown[newest[n]].obs[n] for n in range(4)])
            to_go = -50.0 - torch.tensor([float(x) for x in earned])
            frames.append(torch.cat([seen, to_go[:, None], (slot - newest)[:, None]], -1))
            prev.append(shown[slot].prev_action)
        frames, prev = torch.stack(frames, 1).float(), torch.stack(prev, 1)
        start = torch.zeros(4, t + 1 - first, dtype=torch.bool)
        start[:, 0] = True
        features, _ = agent.read(Inputs(frames, prev, torch.zeros(4, t + 1 - first), start), ())
        torch.testing.assert_close(actions[t], agent.greedy(features[:, -1]), atol=1e-5, rtol=1e-4)
    dropped = 1 - torch.stack(kept_of)[1:21].float().mean()
    assert 0.4 < dropped < 0.8 and len({tuple(kept.tolist()) for kept in kept_of}) > 8, "each environment by itself"


def test_an_agent_that_is_told_reads_the_age_of_the_frame_and_others_do_not(in_tmp):
    for told in (True, False):
        agent: DecisionAgent = parts_of("memory=lstm", f"algo.drop_information={str(told).lower()}").agent
        frames = torch.zeros(1, 1, 5)
        rows = []
        for age in (0, 1, AGES - 1, AGES + 7):
            frames[..., -1] = age
            inputs = Inputs(frames, torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))
            rows.append(agent.read(inputs, ())[0])
        assert torch.equal(rows[0], rows[1]) != told
        assert torch.equal(rows[2], rows[3]), "old frames are alike"


def test_an_evaluation_plays_the_same_episodes_at_every_rate_and_drops_more_at_higher_ones(in_tmp, monkeypatch):
    run_dir = run_of("algo.eval_drops=[0,0,0.3,0.9]", "total_steps=500", "evaluation.every=null")
    original, seen = Dropping.act, {}

    def watched(self, inputs, state, *rest):
        result = original(self, inputs, state, *rest)
        key = (self.probability, id(self))
        seen.setdefault(key, []).append((inputs.obs[:, :], inputs.start, result[2]["frames"][:, -1, -1]))
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Dropping, "act", watched)
        found = evaluate_run(run_dir, episodes=4)
    assert found["drop_0"]["return_mean"] != found["drop_0.9"]["return_mean"]
    slots = {rate: played for (rate, _), played in seen.items()}
    first = {rate: played[0][0] for rate, played in slots.items()}
    assert torch.equal(first[0.0], first[0.9]), "the same first observations"
    ages = {rate: torch.stack([age for *_, age in played]) for rate, played in slots.items()}
    starts = torch.stack([start for _, start, _ in slots[0.9]])
    assert not ages[0.0].any() and not ages[0.9][starts].any()
    assert (ages[0.3] <= ages[0.9]).all() and ages[0.9].mean() > 3


# --- runs


def test_the_score_of_a_run_is_the_mean_over_the_rates_on_the_scale_of_two_returns(in_tmp):
    run_dir = run_of("algo.random_return=-200", "algo.expert_return=-100", "total_steps=500", "evaluation.every=null")
    row = read_jsonl(run_dir / "metrics.jsonl")[-1]
    mean = (row["eval/drop_0/return_mean"] + row["eval/drop_0.5/return_mean"]) / 2
    assert row["eval/score"] == pytest.approx(mean + 200) == row["eval/best"]
    data = read(Path("p.hdf5"))
    agent = rlmem.load(run_dir).network
    assert agent.target_return == pytest.approx(data.returns.max()), "the highest of the data"
    np.testing.assert_allclose(agent.mean, data.observations.mean(0), atol=1e-5)
    np.testing.assert_allclose(agent.std, data.observations.std(0), atol=1e-5)


def test_the_learning_rate_rises_and_stays(in_tmp):
    parts = parts_of("memory=lstm")
    feed, rates = parts.algo.feed(parts.env, parts.streams, parts.device), []
    parts.algo.setup(parts.agent)
    for _ in range(22):
        parts.algo.update(feed.next(10**9), parts.agent.initial_state(8))
        rates.append(parts.algo.optim.param_groups[0]["lr"])
    assert rates[:2] == pytest.approx([0.0005, 0.001]) and rates[19:] == pytest.approx([0.01] * 3)


def test_discrete_actions_and_a_partial_view_are_learnt_from_the_same_files(in_tmp, capsys):
    write(Path("c.hdf5"), recording(CartPole, episodes=20, steps=30))
    cartpole = ["env=cartpole_p", "env.horizon=30", "algo.dataset=c.hdf5", "total_steps=1000"]
    row = read_jsonl(run_of(*cartpole) / "metrics.jsonl")[-2]
    assert 0 <= row["train/accuracy"] <= 1 and row["train/loss"] > 0
    assert main(["eval", "run", "--episodes", "2"]) == 0
    assert "drop_0.5" in capsys.readouterr().out
    rows = read_jsonl(Path("run/metrics.jsonl"))
    assert "eval/drop_0.5/return_mean" in rows[-1] and all(entry(name) for row in rows for name in row)


def test_its_agent_acts_in_python_and_records_a_data_set_but_is_not_exported_or_analysed(in_tmp):
    run_dir = run_of("total_steps=500", "evaluation.every=null")
    agent, env = rlmem.load(run_dir), rlmem.make_env("pendulum", num_envs=2, horizon=20)
    obs, _ = env.reset(seed=0)
    state = agent.initial_state(2)
    action, state = agent.act(obs, state)
    with pytest.raises(UserError, match="this agent reads the reward"):
        agent.act(obs, state)
    obs, reward, *_ = env.step(action)
    before = state.memory["to_go"].numpy()
    _, state = agent.act(obs, state, reward=reward)
    np.testing.assert_allclose(state.memory["to_go"], before - reward, rtol=1e-5)
    assert len(from_runs([str(run_dir)], 3, Path("again.hdf5"), 0, greedy=True).returns) == 3
    with pytest.raises(UserError, match=r"cannot be loaded without algo.dataset=p.hdf5, which is not pushed; e.g. "):
        rlmem.Run(run_dir).push()
    assert not (run_dir / "eval.jsonl").exists(), "nothing was played"
    with pytest.raises(UserError, match="reads the last slots of an episode again"):
        rlmem.Run(run_dir).export()
    with pytest.raises(UserError, match="reads windows"):
        analyze("sensitivity", run_dir)


def test_only_learning_needs_the_data_set(in_tmp):
    run_dir = run_of("total_steps=500", "evaluation.every=null")
    Path("p.hdf5").rename("elsewhere.hdf5")
    assert rlmem.load(run_dir).network.target_return < 0
    assert "drop_0.5" in evaluate_run(run_dir, episodes=2)
    assert len(from_runs([str(run_dir)], 2, Path("again.hdf5"), 0, greedy=True).returns) == 2
    with pytest.raises(UserError, match=r"p\.hdf5: no such file"):
        resume(run_dir, ["total_steps=1000"])


def test_the_digest_tells_episodes_of_other_lengths_apart(in_tmp):
    whole, digests = recording(), []
    cut = whole.timeouts.copy()
    cut[7] = True
    for timeouts in (whole.timeouts, cut):
        Path("p.hdf5").unlink(missing_ok=True)
        write(Path("p.hdf5"), replace(whole, timeouts=timeouts))
        digests.append(parts_of("memory=lstm").algo.digest)
    assert digests[0] != digests[1]


# --- learning


@pytest.mark.slow
def test_a_small_model_swings_up_the_pendulum_from_recorded_play(in_tmp):
    """Of a player that sees everything and errs by up to the largest torque."""
    env = Pendulum(50, horizon=200)
    rng, errs = np.random.default_rng(Streams(0).int("player")), np.linspace(0, 2, 50)[:, None]

    def player(obs, reward, start):
        return np.clip(env.oracle() + errs * rng.standard_normal((50, 1)), -2, 2).astype(np.float32)

    write(Path("p.hdf5"), play(env, player, 100, 0))
    run_dir = run_of(
        "memory.hidden_size=32", "encoder.hidden_size=32", "env.horizon=200", "algo.context=10", "algo.batch_size=64",
        "algo.lr=0.003", "algo.drop=0.5", "algo.warmup_updates=100", "total_steps=1000000", "evaluation.every=null",
        "evaluation.episodes=20", "algo.record_every=64000", "algo.target_return=-300",
    )  # fmt: skip
    row = read_jsonl(run_dir / "metrics.jsonl")[-1]
    assert row["eval/drop_0.5/return_mean"] > -600, "random play has -1,229"
