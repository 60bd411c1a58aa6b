"""Batches written out by hand, small agents in float64, and the same networks and optimisers written out once more.

Nothing below `Copy` calls rlmem: features and heads are plain products, slot after slot and episode after episode.
"""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from helpers import make_memory, make_trunks
from replayed import OBS, disturb
from torch.nn import functional as F

from rlmem.agents.encoder import Encoder
from rlmem.agents.trunk import Trunk
from rlmem.core.types import Batch

DOUBLE, HIDDEN = torch.float64, 4
NOISE = torch.tensor([-1.3, 0.7], dtype=DOUBLE)
"""What every draw of a normal action of two dimensions is, in whatever shape slots are drawn together."""


@dataclass
class Piece:
    """Consecutive slots of one episode: n actions, n + 1 observations.

    obs: [n + 1, 3]
    action: [n] or [n, 2]
    reward, weight, log_prob: [n]
    terminated: whether the last action ended the episode; otherwise it was truncated, or goes on unseen
    before: where it does not begin at the episode's start, the previous action and reward and the states [H] of the
        actor's and the critic's memory
    allowed: [n + 1, 3], the action masks; None: there are none
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    weight: torch.Tensor
    log_prob: torch.Tensor
    terminated: bool
    before: tuple | None = None
    allowed: torch.Tensor | None = None


def piece(n, ending, space, source, inside=False):
    """A random piece of n actions, in numbers of float32, which stable-baselines3 keeps.

    ending: terminated, truncated or cut
    source: draws the numbers
    inside: whether it begins inside an episode
    """
    draw = lambda *shape: torch.randn(*shape, generator=source).double()  # noqa: E731

    def actions(*shape):
        if isinstance(space, spaces.Discrete):
            return torch.randint(int(space.n), shape, generator=source)
        return torch.randn(*shape, 2, generator=source).mul(0.6).clamp(-1, 1).double()

    before = (actions(1)[0], draw(1)[0], (draw(HIDDEN).tanh(), draw(HIDDEN).tanh())) if inside else None
    weight = torch.rand(n, generator=source).double() + 0.5
    rewards = (16 * draw(n)).round() / 8
    log_prob = (-0.9 if isinstance(space, spaces.Discrete) else -3.0) + draw(n)
    return Piece(draw(n + 1, 3), actions(n), rewards, weight, log_prob, ending == "terminated", before)


def with_masks(pieces, source):
    """Forbid one or two of three actions in every slot, others than in the slot before, and never the one taken."""
    for p in pieces:
        first, two = torch.randint(3, (1,), generator=source), torch.rand(len(p.obs), generator=source) < 0.5
        p.allowed = torch.ones(len(p.obs), 3, dtype=torch.bool)
        for t in range(len(p.obs)):
            p.allowed[t, (first + t) % 3] = False
            p.allowed[t, (first + t + 1) % 3] = two[t]
        for t, action in enumerate(p.action):
            p.action[t] = action if p.allowed[t, action] else (first[0] + t + 2) % 3
    return pieces


def lay_out(rows, separate=False):
    """The pieces of each row one after another as a Batch [B, T]; slots that must have no effect hold nonsense."""
    B, T = len(rows), max(sum(len(p.obs) for p in row) for row in rows)
    like = rows[0][0].action
    full = lambda value: torch.full((B, T), value, dtype=DOUBLE)  # noqa: E731
    false = torch.zeros(B, T, dtype=torch.bool)
    batch = Batch(
        obs=torch.full((B, T, 3), 3.0, dtype=DOUBLE), prev_action=like.new_ones(B, T, *like.shape[1:]),
        prev_reward=full(5.0), start=false.clone(), action=like.new_ones(B, T, *like.shape[1:]),
        reward=full(torch.nan), terminated=~false, mask=false.clone(),
        state0=tuple(torch.full((B, HIDDEN), torch.nan, dtype=DOUBLE) for _ in range(1 + separate)),
        behaviour={"weight": full(1e4), "log_prob": full(9.0)},
    )  # fmt: skip
    for b, row in enumerate(rows):
        at = 0
        for p in row:
            n = len(p.action)
            acted, after = slice(at, at + n), slice(at + 1, at + n + 1)
            batch.obs[b, at : at + n + 1] = p.obs
            batch.prev_action[b, after], batch.prev_reward[b, after] = p.action, p.reward
            batch.action[b, acted], batch.reward[b, acted] = p.action, p.reward
            batch.terminated[b, acted], batch.mask[b, acted] = False, True
            batch.terminated[b, at + n - 1] = p.terminated
            batch.behaviour["weight"][b, acted], batch.behaviour["log_prob"][b, acted] = p.weight, p.log_prob
            if p.before is None:
                batch.start[b, at] = True
            else:
                assert at == 0, "a piece from inside an episode begins a row"
                batch.prev_action[b, at], batch.prev_reward[b, at], states = p.before
                for kept, state in zip(batch.state0, (states if separate else states[1:]), strict=True):
                    kept[b] = state
            at += n + 1
    if rows[0][0].allowed is not None:
        masks = torch.ones(B, T, 3, dtype=torch.bool)
        for b, row in enumerate(rows):
            every = torch.cat([p.allowed for p in row])
            masks[b, : len(every)] = every
        batch.obs = {"observation": batch.obs, "action_mask": masks}
    return batch


def make_agent(algo, space, leaf=None):
    """A small agent with Elman's network for a memory, in float64, all of whose weights are of order one.

    leaf: of observations, that it reads; None: they are one part
    """

    def make_trunk():
        encoder = Encoder(OBS, space, hidden_size=5, prev_reward=True)
        return Trunk(encoder, make_memory("elman", encoder.output_size, hidden_size=HIDDEN), leaf)

    torch.manual_seed(0)
    agent = algo.make_agent(make_trunks(make_trunk, algo.separate), space).double()
    disturb(agent, 1, 0.4)
    return agent


class Copy:
    """The weights of a network by name, and the network written out: `w` as leaves of a graph of their own."""

    def __init__(self, network, learns=True):
        self.w = {name: p.detach().clone().requires_grad_(learns) for name, p in network.named_parameters()}
        self.shared = not any(name.startswith("trunks.trunks.1.") for name in self.w)

    def linear(self, name, x):
        return self.w[f"{name}.weight"] @ x + self.w[f"{name}.bias"]

    def head(self, hidden, out, x):
        """Hidden layers with LeakyReLU, then a linear layer."""
        return self.linear(out, F.leaky_relu(self.linear(f"{hidden}.0", x), 0.01))

    def features(self, piece, critic=True):
        """What the critic's or the actor's heads read, [H] of each slot: an encoder, then Elman's network."""
        own = critic and not self.shared
        name = f"trunks.trunks.{int(own)}"
        fresh = piece.before is None
        h = torch.zeros(HIDDEN, dtype=DOUBLE) if fresh else piece.before[2][1 if self.shared else int(own)]
        found = []
        for t, obs in enumerate(piece.obs):
            if t == 0:
                action, reward = (torch.zeros_like(piece.action[0]), 0.0) if fresh else piece.before[:2]
            else:
                action, reward = piece.action[t - 1], piece.reward[t - 1]
            starts = fresh and t == 0
            if not action.is_floating_point():
                action = torch.zeros(3) if starts else F.one_hot(action, 3)
            x = torch.cat([obs, action.double(), torch.tensor([reward, float(starts)], dtype=DOUBLE)])
            x = self.linear(f"{name}.encoder.features", x)
            x = (x - x.mean()) / ((x - x.mean()).square().mean() + 1e-5).sqrt()
            x = F.leaky_relu(self.linear(f"{name}.encoder.hidden", x), 0.01)
            rnn = {
                key: self.w[f"{name}.memory.rnn.{key}_l0"] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            h = torch.tanh(rnn["weight_ih"] @ x + rnn["bias_ih"] + rnn["weight_hh"] @ h + rnn["bias_hh"])
            found.append(h)
        return found

    def names(self, *prefixes):
        return [name for name in self.w if name.startswith(prefixes)]


class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1)."""

    def __init__(self, lr, eps):
        self.lr, self.eps, self.moments = lr, eps, {}

    def step(self, w, gradients):
        """Move the weights w by their gradients, both by name; names that are not there have no step."""
        for name, g in gradients.items():
            m, v, k = self.moments.get(name, (0.0, 0.0, 0))
            m, v, k = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2, k + 1
            self.moments[name] = m, v, k
            move(w[name], -self.lr * (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)).sqrt() + self.eps))


class RMSProp:
    """RMSProp with momentum, as in torch: epsilon outside of the root (docs/algorithms.md)."""

    def __init__(self, lr, eps, decay, momentum):
        self.lr, self.eps, self.decay, self.momentum, self.moments = lr, eps, decay, momentum, {}

    def step(self, w, gradients):
        for name, g in gradients.items():
            v, velocity = self.moments.get(name, (0.0, 0.0))
            v = self.decay * v + (1 - self.decay) * g**2
            velocity = self.momentum * velocity + g / (v.sqrt() + self.eps)
            self.moments[name] = v, velocity
            move(w[name], -self.lr * velocity)


@torch.no_grad()
def move(weight, by):
    weight.add_(by)


def gradients_of(loss, w, names, limit=None):
    """{name: gradient}, clipped to a global norm of `limit` (Pascanu et al. 2013, arXiv:1211.5063, algorithm 1).

    Torch and stable-baselines3 add 1e-6 to the norm.
    """
    found = torch.autograd.grad(loss, [w[name] for name in names], retain_graph=True)
    norm = float(np.sqrt(sum(float(g.square().sum()) for g in found)))
    factor = 1.0 if limit is None or norm <= limit else limit / (norm + 1e-6)
    return {name: factor * g for name, g in zip(names, found, strict=True)}


def assert_equal(network, expected, what, of=lambda parameter: parameter.detach(), atol=1e-6):
    """Every parameter of a network (or its gradient) is as `expected` says, by name; others have none."""
    for name, parameter in network.named_parameters():
        value = of(parameter)
        if name not in expected:
            assert value is None or not value.any(), f"{what}: {name} should have none"
            continue
        difference = (value - expected[name]).abs().max().item()
        assert difference <= atol, f"{what}: {name} differs by {difference:.2g}"


def drawn_as_noise(monkeypatch):
    """Every normal draw is NOISE, times a standard deviation if torch is told one."""
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda shape, **kinds: NOISE.expand(shape))
    monkeypatch.setattr(
        torch.Tensor, "normal_", lambda self, mean=0, std=1, generator=None: self.copy_(mean + std * NOISE)
    )
