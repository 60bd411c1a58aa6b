"""Heads of the off-policy algorithms, embeddings with their shortcut, and joint discrete actions."""

import itertools
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlmem.agents.encoder import Embeddings, Encoder
from rlmem.agents.heads import Head, QHead, TanhGaussianHead, TwinQ
from rlmem.agents.layers import HeadLayers
from rlmem.core.spaces import JointActions

BOX = spaces.Box(-1, 1, (3,), np.float32)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def loud(head):
    """`head` with output weights far from zero, as after training."""
    for name, parameter in head.named_parameters():
        if "trunk" not in name:
            torch.nn.init.normal_(parameter)
    return head


def test_plain_values_are_the_output_and_begin_near_zero():
    head = QHead(6, 4, HeadLayers(()), dueling=False)
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(head(x), x @ head.out.weight.T + head.out.bias)
    assert head(x).abs().max() < 0.2


@pytest.mark.parametrize(
    ("init", "hidden", "value", "policy"),
    [("small_output", 1, 0.01, 0.01), ("orthogonal", math.sqrt(2), 1 / 8, 0.01 / 8), ("torch", None, None, None)],
)
def test_first_weights_are_those_of_their_name(init, hidden, value, policy):
    """The root mean square of 64 x 64 orthogonal weights is their gain / 8, and of uniform ones a third of a bound."""
    layers = HeadLayers((64,), "relu", init)
    for head, spread in ((QHead(64, 4, layers), value), (Head(64, 4, layers), policy)):
        layer, phi = head.trunk
        assert isinstance(phi, torch.nn.ReLU)
        gram = layer.weight @ layer.weight.T
        if init == "torch":
            assert head.out.weight.abs().max() < 1 / 8
            assert head.out.weight.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.1)
            assert layer.weight.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.1)
            assert head.out.bias.abs().min() > 0
        else:
            torch.testing.assert_close(gram, hidden**2 * torch.eye(64), atol=1e-5, rtol=0)
            assert head.out.weight.square().mean().sqrt().item() == pytest.approx(spread, rel=0.15)
            assert head.out.bias.abs().max() == 0
        assert (layer.bias.abs().max() == 0) == (init == "orthogonal")


def test_twins_over_continuous_actions_are_independent_and_differentiable_in_the_action():
    twins = loud(TwinQ(6, 3, HeadLayers((8, 8)))).double()
    x, action = torch.randn(2, 5, 6).double(), torch.randn(2, 5, 3).double().requires_grad_()
    q = twins(x, action)
    assert q.shape == (2, 2, 5)
    assert (q[0] - q[1]).abs().min() > 0
    assert torch.autograd.gradcheck(lambda a: twins(x, a), action)
    assert torch.autograd.grad(q.min(0).values.sum(), action)[0].abs().min() > 0


@pytest.mark.parametrize(("features", "actions", "sizes"), [(128, 1, (128,)), (3, 1, (256, 256)), (64, 8, ())])
def test_at_first_the_action_moves_a_value_as_much_as_the_features(features, actions, sizes):
    twins = TwinQ(features, actions, HeadLayers(sizes))
    for head in twins.heads:
        weight = next(head.parameters())
        share = weight[:, features:].square().sum() / weight[:, :features].square().sum()
        assert 0.5 < share < 2


def test_the_gaussian_heads_spread_is_bounded():
    head = TanhGaussianHead(6, 3, HeadLayers((8,)))
    policy = head(torch.randn(2, 5, 6))
    assert policy.mean.shape == policy.log_std.shape == (2, 5, 3)
    assert policy.log_std.abs().max() < 0.2
    head.out.bias.data[:3], head.out.bias.data[3:] = 7, torch.tensor([-100.0, 0.0, 100.0])
    policy = head(torch.zeros(6))
    assert policy.log_std[[0, 2]].tolist() == [-20.0, 2.0]
    assert policy.mean.min() > 6


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(5), spaces.Discrete(3, start=7), spaces.MultiDiscrete([4]), spaces.MultiDiscrete([2, 3, 4])],
    ids=str,
)
def test_joint_actions_number_every_action_once(space):
    joint = JointActions(space)
    if isinstance(space, spaces.Discrete):
        every = torch.arange(int(space.n))
    else:
        every = torch.tensor(list(itertools.product(*(range(n) for n in space.nvec))))
    assert joint.n == len(every)
    assert joint.index(every).tolist() == list(range(joint.n))
    assert torch.equal(joint.action(torch.arange(joint.n)), every)
    rows = every[torch.randint(joint.n, (2, 6))]  # [2, 6] or [2, 6, K]
    assert joint.index(rows).shape == (2, 6)
    assert joint.index(rows.int()).dtype == torch.long
    assert torch.equal(joint.action(joint.index(rows)), rows)


def slots(space, action_space, B=2, T=5):
    """obs, prev_action, prev_reward and start of random slots, starts in every column but the first."""
    draw = {
        spaces.Discrete: lambda s: torch.randint(int(s.n), (B, T)),
        spaces.MultiDiscrete: lambda s: torch.stack([torch.randint(int(n), (B, T)) for n in s.nvec], -1),
        spaces.Box: lambda s: torch.rand(B, T, *s.shape) * 2 - 1,
    }
    start = torch.arange(B * T).view(B, T) % 3 == 2
    return draw[type(space)](space), draw[type(action_space)](action_space), torch.randn(B, T), start


SPACES = [
    (spaces.Discrete(4), spaces.Discrete(2)),
    (BOX, BOX),
    (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([3, 4])),
]


@pytest.mark.parametrize(("space", "action_space"), SPACES, ids=str)
def test_embeddings_are_those_of_each_input_side_by_side(space, action_space):
    encoder = Embeddings(space, action_space, obs_size=7, action_size=5, reward_size=3, start_flag=True)
    obs, action, reward, start = slots(space, action_space)
    x = encoder(obs, action, reward, start)
    assert x.shape == (2, 5, 16)
    assert encoder.output_size == 16

    def one_hot(values, space):
        if isinstance(space, spaces.Box):
            return values
        nvec = [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec
        values = values.reshape(2, 5, len(nvec))
        return torch.cat([torch.nn.functional.one_hot(values[..., k], int(n)) for k, n in enumerate(nvec)], -1)

    none = start[..., None]
    inputs = [one_hot(obs, space), one_hot(action, action_space) * ~none, reward[..., None] * ~none]
    layers = [encoder.obs, encoder.action, encoder.reward]
    parts = [torch.relu(v.float() @ layer.weight.T + layer.bias) for v, layer in zip(inputs, layers, strict=True)]
    torch.testing.assert_close(x, torch.cat([*parts, none.float()], -1))


@pytest.mark.parametrize("make", [Embeddings, lambda *s: Encoder(*s, prev_reward=True)], ids=["embeddings", "mlp"])
@pytest.mark.parametrize(("space", "action_space"), SPACES, ids=str)
def test_an_episodes_first_slot_shows_neither_action_nor_reward(make, space, action_space):
    encoder = make(space, action_space)
    obs, action, reward, start = slots(space, action_space)
    other = slots(space, action_space)
    ours, theirs = encoder(obs, action, reward, start), encoder(obs, other[1], other[2], start)
    assert torch.equal(ours[start], theirs[start])
    assert (ours[~start] - theirs[~start]).abs().sum(-1).min() > 0
    lost = reward.masked_fill(start, torch.nan)
    assert torch.equal(encoder(obs, action, lost, start), ours)


@pytest.mark.parametrize("sizes", [(7, 0, 0), (0, 5, 0), (0, 0, 3), (7, 5, 0), (0, 5, 3)])
def test_a_size_of_zero_leaves_the_input_out(sizes):
    encoder = Embeddings(BOX, spaces.Discrete(4), *sizes)
    inputs = list(slots(BOX, spaces.Discrete(4)))
    inputs[3][:] = False
    x = encoder(*inputs)
    assert x.shape == (2, 5, sum(sizes))
    assert encoder.output_size == sum(sizes)
    for size, i, change in zip(sizes, range(3), (lambda o: -o, lambda a: (a + 1) % 4, lambda r: 5 - r), strict=True):
        changed = [change(v) if k == i else v for k, v in enumerate(inputs)]
        assert torch.equal(encoder(*changed), x) == (size == 0)


def test_embeddings_of_nothing_are_refused():
    with pytest.raises(ValueError, match=r"^obs_size, action_size and reward_size are all 0, [a-z ]+$"):
        Embeddings(BOX, BOX, 0, 0, 0, start_flag=True)


@pytest.mark.parametrize("make", [Embeddings, Encoder])
def test_the_shortcut_is_an_embedding_of_its_own(make):
    encoder = make(BOX, BOX, shortcut_size=6)
    obs = slots(BOX, BOX)[0]
    skip = encoder.shortcut(obs)
    assert (encoder.shortcut_size, skip.shape) == (6, (2, 5, 6))
    torch.testing.assert_close(skip, torch.relu(obs @ encoder.skip.weight.T + encoder.skip.bias))
    skip.sum().backward()
    assert {name for name, p in encoder.named_parameters() if p.grad is not None} == {"skip.weight", "skip.bias"}
    without = make(BOX, BOX)
    assert (without.shortcut_size, without.shortcut(obs).shape) == (0, (2, 5, 0))
    assert not any(name.startswith("skip") for name in without.state_dict())
