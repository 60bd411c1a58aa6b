"""Actions and observations of every type: actions lie in their space, observations are checked before any cast."""

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from helpers import fast_only, small_run
from hypothesis import given, settings
from hypothesis import strategies as st
from rlmem_envs.vector import vectorise
from torch import Tensor, nn

import rlmem
from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import ON_POLICY, ActorCritic
from rlmem.agents.encoder import Encoder
from rlmem.agents.layers import HeadLayers
from rlmem.agents.trunk import Trunk, Trunks
from rlmem.algos.supervised.dataset.file import Recording
from rlmem.algos.supervised.windows import policy_actions
from rlmem.config.compose import load
from rlmem.core.errors import Fault, UserError
from rlmem.core.spaces import in_env, to_env
from rlmem.core.types import Inputs
from rlmem.memory.mlp import MLP
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import plan, train
from rlmem.run.trained import TrainedAgent

CPU = torch.device("cpu")
WHOLE = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(f"float{bits}") for bits in (16, 32, 64)]
POLICY = np.concatenate([np.linspace(-1.5, 1.5, 61), [-1e30, -1, 0, 1, 1e30]]).astype(np.float32)
POLICY.sort()


@st.composite
def bounds(draw: st.DrawFn, dtype: np.dtype) -> tuple[Any, Any]:
    """The bounds of a component: finite, one-sided, infinite, the largest that there are, or equal."""
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    least, most = (int(limits.min), int(limits.max)) if dtype.kind in "iu" else (float(limits.min), float(limits.max))
    numbers = st.integers(least, most) if dtype.kind in "iu" else st.floats(least, most, width=8 * dtype.itemsize)  # type: ignore[arg-type]
    low, high = sorted((draw(numbers), draw(numbers)))
    kinds = ["finite", "huge", "equal"] + ["below", "above", "infinite"] * (dtype.kind != "u")
    kind = draw(st.sampled_from(kinds))
    found = {"finite": (low, high), "huge": (least, most), "equal": (low, low)}
    return (found | {"below": (low, np.inf), "above": (-np.inf, high), "infinite": (-np.inf, np.inf)})[kind]


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    """A Box of one to three components, each with bounds of its own."""
    dtype = draw(st.sampled_from(WHOLE + FLOATS))
    each = [spaces.Box(*draw(bounds(dtype)), (1,), dtype.type) for _ in range(draw(st.integers(1, 3)))]
    box = spaces.Box(
        *(np.concatenate([getattr(one, name) for one in each]) for name in ("low", "high")), dtype=dtype.type
    )
    for name in ("bounded_below", "bounded_above"):  # an array of whole numbers cannot say that it has no bounds
        setattr(box, name, np.concatenate([getattr(one, name) for one in each]))
    return box


class Strict(gym.Env):
    """Refuses every action that is not in its space, in value or type."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, action_space: spaces.Box):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), (action, self.action_space)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 0.0, False, False, {}


def actor(observation_space: spaces.Space, action_space: spaces.Box, gain: float = 1.0) -> ActorCritic:
    """An agent without a memory, whose actions are `gain` times as large."""
    trunk = Trunk(Encoder(observation_space, action_space, 8), MLP(8, 8))
    agent = ActorCritic(Trunks(trunk), action_space, HeadLayers([8]))
    with torch.no_grad():
        agent.policy.out.weight *= gain
    return agent


@given(boxes(), st.sampled_from([1.0, 100.0, 1e6]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_actions_of_every_box_lie_in_it_and_rise_with_the_policys(box, gain):
    action = np.repeat(POLICY[:, None], len(box.low), 1)
    converted = to_env(box)(action)
    assert all(box.contains(row) for row in converted), converted
    assert (converted[1:] >= converted[:-1]).all()
    bounded = box.bounded_below & box.bounded_above
    small = np.abs(box.high.astype(float) - box.low.astype(float)) < 2**53
    ends = (to_env(box)(np.full((1, len(box.low)), end, np.float32))[0] for end in (-1, 1))
    for reached, bound in zip(ends, (box.low, box.high), strict=True):
        np.testing.assert_allclose(*(x[bounded & small].astype(float) for x in (reached, bound)), rtol=1e-3, atol=1e-6)
    torch.manual_seed(0)
    agent, env = actor(Strict.observation_space, box, gain), vectorise(lambda: Strict(box), 2)
    Collector(env, agent, 0, torch.Generator().manual_seed(0), CPU).collect(4, 8)
    trained = TrainedAgent(agent, Strict.observation_space, box, 0, CPU, ON_POLICY)
    obs = np.ones((2, 2), np.float32)
    state = trained.initial_state(2)
    for greedy in (True, False):
        chosen, after = trained.act(obs, state, greedy=greedy)
        assert chosen.dtype == box.dtype
        assert all(box.contains(row) for row in chosen)
        np.testing.assert_array_equal(chosen, to_env(box)(after.prev_action.numpy()))


class ToEnv(nn.Module):
    """The part of an exported step that turns policy actions into those of several Boxes."""

    def __init__(self, boxes: list[spaces.Box]):
        super().__init__()
        self.boxes = boxes

    def forward(self, *actions: Tensor) -> list[Tensor]:
        return [in_env(box)(action) for box, action in zip(self.boxes, actions, strict=True)]


@pytest.mark.slow
def test_onnx_files_act_in_every_box_as_the_agent(tmp_path):
    every = [spaces.Box(0, int(np.iinfo(dtype).max), (1,), dtype.type) for dtype in WHOLE if dtype.kind == "u"]
    every += [spaces.Box(-100, 100, (1,), np.int8), spaces.Box(-(2**63), np.inf, (1,), np.int64)]
    every += [spaces.Box(-5e4, 6e4, (1,), dtype.type) for dtype in FLOATS] + [spaces.Box(0, np.inf, (1,), np.float16)]
    actions = [torch.from_numpy(POLICY[:, None]) for _ in every]
    program = torch.export.export(ToEnv(every), tuple(actions))
    torch.onnx.export(program, (), dynamo=True, verbose=False, opset_version=18).save(tmp_path / "boxes.onnx")  # type: ignore[union-attr]
    session = onnxruntime.InferenceSession(tmp_path / "boxes.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {one.name: POLICY[:, None] for one in session.get_inputs()})
    for box, found in zip(every, outputs, strict=True):
        assert found.dtype == box.dtype
        np.testing.assert_array_equal(found, to_env(box)(POLICY[:, None]), err_msg=str(box))


@pytest.mark.parametrize("box", [spaces.Box(0, 1, (1,), np.int64), spaces.Box(-3, 4, (1,), np.int8)], ids=str)
def test_each_whole_number_has_an_equal_part_of_the_policys_range(box):
    values, counts = np.unique(to_env(box)(np.linspace(-1, 1, 8000, dtype=np.float32)[:, None]), return_counts=True)
    assert values.tolist() == [*range(box.low[0], box.high[0] + 1)]
    assert np.ptp(counts) <= 2


def test_actions_between_float_bounds_have_the_numbers_of_earlier_versions():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        low, high = np.sort(rng.normal(scale=10, size=(2, 50)), 0).astype(dtype)
        action = rng.normal(size=(200, 50)).astype(np.float32)
        before = (low + (np.clip(action, -1, 1) + 1) * ((high - low) / 2)).astype(dtype)
        box = spaces.Box(low, high, dtype=dtype)
        np.testing.assert_array_equal(to_env(box)(action), np.clip(before, low, high))


def test_an_action_that_is_not_a_number_is_refused():
    for space, action in ((spaces.Box(-1, 1, (1,), np.int64), [[0.0], [np.nan]]), (spaces.Discrete(3), [0, 3])):
        with pytest.raises(Fault, match=r"^environment 1: the agent's action (\[nan\]|3) does not fit (Box|Discrete)"):
            to_env(space)(np.array(action))


def test_recorded_actions_become_the_policys_whatever_the_bounds():
    box = spaces.Box(np.array([-100, 7, 0], np.int8), np.array([100, 7, 3], np.int8), dtype=np.int8)
    played = np.array([[-100, 7, 0], [100, 7, 3], [0, 7, 1]], np.float32)
    recording = Recording(played, played, *(np.zeros(3, kind) for kind in (np.float32, bool, bool)))
    policy = policy_actions(recording, box).numpy()
    assert np.abs(policy).max() <= 1
    np.testing.assert_array_equal(to_env(box)(policy), played)


class Doors(gym.Env):
    """Doors numbered from 4 and a lamp, or a panel of lights."""

    def __init__(self, panel: bool = False):
        doors = spaces.Tuple((spaces.Discrete(3, start=4), spaces.Discrete(2)))
        self.observation_space = spaces.MultiBinary([2, 3]) if panel else doors
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.look(), {}

    def look(self):
        self.seen = self.observation_space.sample()
        return self.seen

    def step(self, action):
        return self.look(), 0.0, bool(self.np_random.random() < 0.2), False, {}


@pytest.fixture(scope="module", autouse=True)
def registered():
    for kind in (Doors, Numbers):
        gym.register(f"rlmem-test/{kind.__name__}-v0", kind)
    yield
    for kind in (Doors, Numbers):
        del gym.registry[f"rlmem-test/{kind.__name__}-v0"]


SMALL = ["memory=gru", "memory.hidden_size=8", "env=gym", "env.num_envs=2", "total_steps=64", "device=cpu"]
SMALL += ["algo.rollout_slots=16", "algo.num_minibatches=1", "algo.epochs=1", "evaluation.episodes=1"]


@pytest.mark.parametrize("panel", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_act_reads_what_the_environment_gives_as_training_does(in_tmp, panel):
    env_id = ["env.id=rlmem-test/Doors-v0", f"env.kwargs.panel={str(panel).lower()}"]
    run = rlmem.Run(small_run(*env_id, "evaluation.max_steps=20", base=SMALL))
    agent, env = run.agent(), run.make_env(3)
    shown, _ = env.reset(seed=0)
    games = [one.unwrapped for one in env.envs]  # type: ignore[attr-defined]
    vector = gym.vector.SyncVectorEnv([lambda: Doors(panel)] * 3)
    for _ in range(5):
        start, zero = torch.ones(3, dtype=torch.bool), torch.zeros(3)
        inputs = Inputs(torch.from_numpy(shown), torch.zeros(3, dtype=torch.int64), zero, start)
        with torch.no_grad():
            expected, _, _ = agent.network.act(inputs, agent.network.initial_state(3), None)
        raw = [game.seen for game in games]
        assert [int(agent.act(one, agent.initial_state())[0]) for one in raw] == expected.tolist()
        together = gym.vector.utils.concatenate(vector.single_observation_space, raw, vector._observations)
        assert agent.act(together, agent.initial_state(3))[0].tolist() == expected.tolist()
        shown, *_ = env.step(expected.numpy())


class Numbers(gym.Env):
    """Shows one number, and one other number in the third step; gives one reward, on a grid if there is a shape."""

    def __init__(self, dtype: str = "float32", usual: float = 1, other: float = 1, reward: float = 1.0, shape=(2,)):
        dtype_of = np.dtype(dtype)
        limits: Any = np.iinfo(dtype_of) if dtype_of.kind in "iu" else None
        low, high = (-np.inf, np.inf) if limits is None else (int(limits.min), int(limits.max))
        self.observation_space = spaces.Box(low, high, tuple(shape), dtype_of.type)
        self.action_space, self.reward, self.shown = spaces.Discrete(2), reward, (usual, other)
        self.wide = {"i": np.int64, "u": np.uint64, "f": np.float64}[dtype_of.kind]

    def look(self):
        return np.full(self.observation_space.shape, self.shown[self.t == 3], self.wide)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action):
        self.t += 1
        return self.look(), self.reward, self.t == 8, False, {}


def numbers(**kwargs: Any) -> list[str]:
    return ["env.id=rlmem-test/Numbers-v0", *(f"env.kwargs.{key}={value}" for key, value in kwargs.items())]


@pytest.mark.parametrize(("dtype", "algo"), fast_only([("uint64", "ppo")], [("uint32", "pqn"), ("uint64", "ppo")]))
def test_wide_unsigned_observations_are_learnt_from_in_full(in_tmp, dtype, algo):
    most = int(np.iinfo(dtype).max)
    run = rlmem.Run(small_run(*numbers(dtype=dtype, usual=3, other=min(most, 2**62)), f"algo={algo}", base=SMALL))
    obs, _ = run.make_env(1).reset(seed=0)
    assert obs.dtype == dtype
    run.agent().act(obs[0], run.agent().initial_state())


REFUSED = {
    "int16": (70000, "observation 70000; expected int16"),
    "uint16": (65536, "observation 65536; expected uint16"),
    "uint64": (2**64 - 1, "observation 18446744073709551615; expected int64"),
    "float16": (7e4, "observation 70000.0; expected a finite number of float16"),
    "float32": (1e39, "observation 1e+39; expected a finite number of float32"),
    "float64": (1e39, "observation 1e+39; expected a finite number of float32"),
}


@pytest.mark.parametrize("dtype", REFUSED)
def test_a_number_that_cannot_be_represented_is_refused_before_it_is_cast(dtype):
    number, line = REFUSED[dtype]
    env = vectorise(lambda: Numbers(dtype, 1, number), 2)
    agent = actor(env.single_observation_space, spaces.Box(-1, 1, (1,)))
    trained = TrainedAgent(agent, env.single_observation_space, spaces.Box(-1, 1, (1,)), 0, CPU, ON_POLICY)
    game = Numbers(dtype, 1, number)
    game.t = 3
    with pytest.raises(UserError, match=re.escape(line)):
        trained.act(game.look(), trained.initial_state())
    encoder = Encoder(env.single_observation_space, spaces.Discrete(2), 8)
    discrete = ActorCritic(Trunks(Trunk(encoder, MLP(8, 8))), spaces.Discrete(2), HeadLayers([8]))
    with pytest.raises(Fault) as failed:
        Collector(env, discrete, 0, None, CPU).collect(8, 64)
    assert line in str(failed.value)
    assert "environment 0, step 3 of its episode" in str(failed.value)


@pytest.mark.parametrize(
    ("kwargs", "what"),
    [({"reward": 1e30}, "reward of size 1e+30"), ({"other": 1e30}, "observation of size 1e+30")],
    ids=["reward", "observation"],
)
def test_a_loss_that_is_not_finite_names_the_huge_number(in_tmp, kwargs, what):
    with pytest.raises(Fault) as failed:
        train(load([*SMALL, *numbers(**kwargs), "algo.reward_scale=1.0", "run_dir=run"]))
    assert f"environment 0 gave a{'n' * what.startswith('o')} {what} at step " in str(failed.value)
    assert "algo.lr" not in str(failed.value)


def test_huge_rewards_are_scaled_by_what_they_are(in_tmp):
    small_run(*numbers(reward=1e38), "algo.reward_scale=null", base=SMALL)
    rows = [row for row in read_jsonl(Path("run/metrics.jsonl")) if "ppo/reward_scale" in row]
    assert 0 < rows[-1]["ppo/reward_scale"] < 1e-37
    assert rows[-1]["ppo/value_loss"] > 1e-3


@pytest.mark.parametrize(
    ("encoder", "shape", "line"),
    [
        ("mlp", [7, 7, 20], "reads     one row of 980 numbers"),
        ("cnn", [7, 7, 20], "reads     an image of 7 x 20 with 7 channels, on the first axis"),
        ("cnn", [9, 9, 4], "reads     an image of 9 x 9 with 4 channels, on the last axis"),
    ],
)
def test_the_summary_says_how_a_grid_is_read(in_tmp, encoder, shape, line):
    assert line in plan(load([*SMALL, *numbers(shape=shape), f"encoder={encoder}"]))
