"""One update equals that of stable-baselines3: its own networks, buffers and `train()`, with rlmem's weights.

The agents have an encoder without weights and a memory that passes the observation on, so that both networks are the
heads; PPO also has LSTMs. Adam's epsilon is of order one: a step then shows the size of a gradient, not only its sign.
"""

from functools import partial
from itertools import product

import gymnasium as gym
import numpy as np
import pytest
import torch
from by_hand import drawn_as_noise, lay_out, piece
from helpers import make_trunks
from replayed import ALGOS, BOX, DISCRETE, OBS, actions_of, disturb, generator
from torch import nn
from torch.utils._pytree import tree_map

from rlmem.agents.encoder import Plain
from rlmem.agents.trunk import Trunk
from rlmem.algos.ppo import PPO
from rlmem.batching import Rollout, Segment, Tape
from rlmem.memory.base import Memory
from rlmem.memory.gru import LSTM

sb3 = pytest.importorskip("stable_baselines3", minversion="2.7", reason="needs stable-baselines3 with n-step targets")

GAMMA = 0.875  # it, its powers and the rewards are exact in float32, which the buffers of stable-baselines3 keep
LR, EPS, TAU = 0.3, 1.0, 0.25


class Observation(Plain):
    """The observation, in float64."""

    def forward(self, *inputs):
        return super().forward(*inputs).double()


class Through(Memory):
    """Passes its input on."""

    def __init__(self, input_size):
        super().__init__(input_size, input_size)

    def initial_state(self, batch_size):
        return ()

    def forward(self, x, state, start):
        return x, ()


def make_agent(algo, space, make_memory=Through):
    torch.manual_seed(0)
    trunks = make_trunks(lambda: Trunk(Observation(OBS, space), make_memory(3)), algo.separate)
    agent = algo.make_agent(trunks, space).double()
    disturb(agent, 1, 0.4)
    return agent


class Flat(sb3.common.torch_layers.FlattenExtractor):
    """The observation, in float64."""

    def forward(self, observations):
        return super().forward(observations).double()


class Told(gym.Env):
    """The pieces of an environment's life one after another, whatever the actions."""

    observation_space = OBS

    def __init__(self, action_space, pieces=()):
        self.action_space, self.pieces, self.number = action_space, pieces, -1

    def reset(self, *, seed=None, options=None):
        self.number, self.at = (self.number + 1) % len(self.pieces), 0
        return self.pieces[self.number].obs[0].float().numpy(), {}

    def step(self, action):
        p = self.pieces[self.number]
        self.at += 1
        ended = self.at == len(p.reward)
        observation, reward = p.obs[self.at].float().numpy(), float(p.reward[self.at - 1])
        return observation, reward, ended and p.terminated, ended and not p.terminated, {}


def make_model(make, env, sizes, **settings):
    """A model of stable-baselines3 in float64 that logs nowhere."""
    policy = {"net_arch": sizes, "activation_fn": nn.LeakyReLU, "features_extractor_class": Flat}
    policy |= {"optimizer_kwargs": {"eps": EPS}} | settings.pop("policy_kwargs", {})
    kind, fixed = settings.pop("policy", "MlpPolicy"), {"device": "cpu", "seed": 0}
    model = make(kind, env, learning_rate=LR, gamma=GAMMA, policy_kwargs=policy, **fixed, **settings)
    model.policy.double()
    model.set_logger(sb3.common.logger.Logger(folder=None, output_formats=[]))
    return model


def layers_of(model, target=False):
    """The layers of stable-baselines3 by the names of ours; two where ours is both of them, one above the other."""
    if isinstance(model, sb3.DQN):
        hidden, _, out = (model.q_net_target if target else model.q_net).q_net
        return {"q.trunk.0": [hidden], "q.out": [out]}
    if isinstance(model, sb3.common.on_policy_algorithm.OnPolicyAlgorithm):
        policy, value = (getattr(model.policy.mlp_extractor, name)[0] for name in ("policy_net", "value_net"))
        heads = {"policy.out": [model.policy.action_net], "critic.1": [model.policy.value_net]}
        lstms = [getattr(model.policy, f"lstm_{name}", None) for name in ("actor", "critic")]
        memories = {f"trunks.trunks.{i}.memory.rnn": [lstm] for i, lstm in enumerate(lstms) if lstm is not None}
        return {"policy.trunk.0": [policy], "critic.0.0": [value]} | heads | memories
    critic = model.critic_target if target else model.critic
    found = {}
    for i, twin in enumerate((critic.qf0, critic.qf1)):
        found |= {f"q.heads.{i}.trunk.0": [twin[0]], f"q.heads.{i}.out": [twin[2]]}
    if isinstance(model, sb3.TD3):
        actor = (model.actor_target if target else model.actor).mu
        return found | {"policy.trunk.0": [actor[0]], "policy.out": [actor[2]]}
    actor = {} if target else {"policy.trunk.0": [model.actor.latent_pi[0]]}  # SAC has no target of the actor
    return found | actor | ({} if target else {"policy.out": [model.actor.mu, model.actor.log_std]})


def scalars_of(model):
    """Parameters of stable-baselines3 that belong to no layer, by the names of ours."""
    if isinstance(model, sb3.SAC):
        return {"log_temperature": model.log_ent_coef}
    return dict(model.policy.named_parameters(prefix="policy", recurse=False))


@torch.no_grad()
def load(model, network, target=False):
    """Give stable-baselines3 the weights of ours."""
    weights = dict(network.named_parameters())
    for name, layers in layers_of(model, target).items():
        for number, layer in enumerate(layers):
            for kind, parameter in layer.named_parameters():
                parameter.copy_(weights[f"{name}.{kind}"].chunk(len(layers))[number])
    for name, parameter in {} if target else scalars_of(model).items():
        parameter.data = weights[name].detach().clone().view(parameter.shape)


@torch.no_grad()
def weights_of(model, target=False):
    """The weights of stable-baselines3 by the names of ours."""
    found = {}
    for name, layers in layers_of(model, target).items():
        for kind, _ in layers[0].named_parameters():
            found[f"{name}.{kind}"] = torch.cat([getattr(layer, kind) for layer in layers])
    return found | ({} if target else {name: parameter.squeeze() for name, parameter in scalars_of(model).items()})


def replayed(space):
    source = generator(1)
    ends = [(4, "truncated"), (5, "terminated"), (1, "truncated"), (3, "truncated"), (1, "terminated"), (4, "cut")]
    return [piece(n, ending, space, source) for n, ending in ends]


def fill(model, pieces):
    """Put the transitions into the replay buffer of stable-baselines3, all of which an update shall read once."""
    buffer = model.replay_buffer
    for number, p in enumerate(pieces):
        for t, action in enumerate(p.action):
            ended = t == len(p.action) - 1 and number < len(pieces) - 1  # the last one goes on
            slots = [p.obs[at][None].float().numpy() for at in (t, t + 1)]
            infos = [{"TimeLimit.truncated": ended and not p.terminated}]
            buffer.add(*slots, action[None].numpy(), p.reward[t][None].numpy(), np.array([ended]), infos)
    buffer.sample = lambda batch_size, env=None: buffer._get_samples(np.arange(buffer.pos), env)


MODELS = {"dqn": sb3.DQN, "sac": sb3.SAC, "td3": sb3.TD3}


def pair(name, n_step, **settings):
    """An algorithm with a batch, and a model of stable-baselines3 with the same weights and transitions."""
    space, usual = actions_of(name), {"gamma": GAMMA, "lr": LR, "adam_eps": EPS, "tau": TAU, "head_sizes": (6,)}
    algo = ALGOS[name](**usual, reward_scale=1.0, n_step=n_step, **settings)
    agent = make_agent(algo, space)
    algo.setup(agent, generator(2))
    disturb(algo.target, 3, 0.2)
    sizes, theirs = [6], {"buffer_size": 100, "tau": TAU, "n_steps": n_step}
    if name == "sac":
        theirs["ent_coef"] = "auto"
    if name == "dqn":
        theirs |= {"max_grad_norm": algo.max_grad_norm, "target_update_interval": 1}
    if name == "td3":
        theirs["target_noise_clip"] = algo.target_noise_clip
    model = make_model(MODELS[name], Told(space), sizes, **theirs)
    if name == "sac":
        # Half of the twins' errors here, all of them in rlmem: the same steps with half of the epsilon.
        model.critic.optimizer.param_groups[0]["eps"] = EPS / 2
        model.ent_coef_optimizer.param_groups[0]["eps"] = EPS
        model.actor.action_dist.epsilon = 0.0  # which it adds to 1 - tanh^2
    load(model, agent)
    load(model, algo.target, target=True)
    pieces = replayed(space)
    fill(model, pieces)
    batch = lay_out([[p] for p in pieces], agent.trunks.separate)
    del batch.behaviour["weight"]
    return algo, batch, model


def freeze_the_critic(model):
    """rlmem takes the actor's loss with the critic before its step, stable-baselines3 with the one after it."""
    model._update_learning_rate = lambda optimizers: None
    model.critic.optimizer.param_groups[0]["lr"] = 0.0


def compare(network, model, only=("",), target=False):
    """All weights, or those whose names begin as told."""
    theirs = weights_of(model, target)
    for name, parameter in network.named_parameters():
        if name.startswith(tuple(only)):
            difference = (parameter - theirs[name]).abs().max().item()
            assert difference < 1e-6, f"{name}{' of the target' * target} differs by {difference:.2g}"


def one_loss(model, name):
    return pytest.approx(float(model.logger.name_to_value[f"train/{name}"]), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("n_step", [1, 3])
def test_dqn(n_step):
    plain = {"double": False, "dueling": False, "max_grad_norm": 0.2}
    algo, batch, model = pair("dqn", n_step, **plain)
    for _ in range(2):
        metrics, _ = algo.update(batch)
        assert metrics["critic_grad_norm"] > 0.2, "the gradient is not clipped"
        model.train(gradient_steps=1)
        model._on_step()  # moves the target network
        assert metrics["loss"].item() == one_loss(model, "loss")
        compare(algo.agent, model)
        compare(algo.target, model, target=True)


@pytest.mark.parametrize("n_step", [1, 3])
def test_sac(n_step, monkeypatch):
    settings = {"temperature": 0.2, "temperature_lr": LR}
    algo, batch, model = pair("sac", n_step, **settings)
    _, _, frozen = pair("sac", n_step, **settings)
    drawn_as_noise(monkeypatch)
    freeze_the_critic(frozen)
    metrics, _ = algo.update(batch)
    model.train(gradient_steps=1)
    assert metrics["critic_loss"].item() / 2 == one_loss(model, "critic_loss")
    compare(algo.agent, model, only=["q.", "log_temperature"])
    compare(algo.target, model, only=["q."], target=True)
    frozen.train(gradient_steps=1)
    assert metrics["actor_loss"].item() == one_loss(frozen, "actor_loss")
    compare(algo.agent, frozen, only=["policy.", "log_temperature"])


@pytest.mark.parametrize("n_step", [1, 3])
def test_td3(n_step, monkeypatch):
    settings = {"action_l2": 0.0, "target_noise_clip": 0.2}
    algo, batch, model = pair("td3", n_step, **settings)
    _, _, frozen = pair("td3", n_step, **settings)
    drawn_as_noise(monkeypatch)
    for number in (1, 2):
        metrics, _ = algo.update(batch)
        if number == 2:
            freeze_the_critic(frozen)
        for each in (model, frozen):
            each.train(gradient_steps=1)
        assert metrics["critic_loss"].item() == one_loss(model, "critic_loss")
        assert ("actor_loss" in metrics) == (number == 2)
        compare(algo.agent, model, only=["q."])
        compare(algo.agent, frozen, only=["policy."])
        compare(algo.target, model, only=["q."], target=True)
        compare(algo.target, frozen, only=["policy."], target=True)
    assert metrics["actor_loss"].item() == one_loss(frozen, "actor_loss")


def keep_in_float64(buffer):
    """Let a rollout buffer keep numbers in float64 from its next reset on."""
    reset = buffer.reset

    def reset_in_float64():
        reset()
        for name, array in vars(buffer).items():
            if name != "observations" and isinstance(array, np.ndarray):
                setattr(buffer, name, array.astype(np.float64))

    buffer.reset = reset_in_float64


def feed_forward():
    return Through, {}, sb3.PPO, {}


def two_lstms():
    contrib = pytest.importorskip("sb3_contrib")
    settings = {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 4}}
    return partial(LSTM, hidden_size=4), {"separate": True}, contrib.RecurrentPPO, settings


def one_lstm():
    """One LSTM that learns from the actor alone."""
    memory, _, model, settings = two_lstms()
    settings["policy_kwargs"] |= {"shared_lstm": True, "enable_critic_lstm": False}
    return memory, {"memory_gradient": "actor"}, model, settings


FORMS = (feed_forward, two_lstms, one_lstm)
PAIRS = [*product(FORMS, ("tape", "segment")), (feed_forward, "slots")]
CASES = [
    pytest.param(*pair, *more, marks=[] if (i + j + j // 2) % 2 else [pytest.mark.slow])
    for i, pair in enumerate(PAIRS)
    for j, more in enumerate(product((DISCRETE, BOX), (False, True)))
]
"""A network, a scheme, actions and whether advantages are normalised; the fast half has every pair of them."""


@pytest.mark.parametrize(("form", "scheme", "space", "normalised"), CASES)
def test_ppo(form, space, scheme, normalised, monkeypatch):
    """From a rollout that stable-baselines3 collects; its log-probabilities are then made those of another policy, so
    that the surrogate is clipped."""
    memory, ours, make, theirs = form()
    source = generator(1)
    rows = [
        [piece(n, ending, space, source) for n, ending in script]
        for script in (
            [(3, "terminated"), (1, "terminated"), (2, "truncated"), (4, "cut")],
            [(5, "truncated"), (1, "truncated"), (2, "terminated"), (2, "cut")],
        )
    ]
    T, N = 10, len(rows)
    # A standard deviation is over N * T here, and over N * T - 1 in stable-baselines3, so that its advantages are
    # `factor` of ours. All else over `factor` makes our loss theirs over `factor`, with the same steps.
    factor = ((N * T - 1) / (N * T)) ** 0.5 if normalised else 1.0
    algo = PPO(
        head_sizes=(6,), gamma=GAMMA, lr=LR, anneal_lr=False, epochs=2, num_minibatches=1, gae_lambda=0.6,
        adam_eps=EPS / factor, max_grad_norm=0.3 / factor, value_coef=0.7 / factor, entropy_coef=0.2 / factor,
        normalize_advantage="minibatch" if normalised else "none", **ours,
    )  # fmt: skip
    agent = make_agent(algo, space, memory)
    algo.setup(agent, generator(2))
    env = sb3.common.vec_env.DummyVecEnv([lambda row=row: Told(space, row) for row in rows])
    env.buf_rews = env.buf_rews.astype(np.float64)
    model = make_model(
        make, env, {"pi": [6], "vf": [6]}, n_steps=T, batch_size=N * T, n_epochs=2, gae_lambda=0.6, max_grad_norm=0.3,
        vf_coef=0.7, ent_coef=0.2, normalize_advantage=normalised, **theirs,
    )  # fmt: skip
    load(model, agent)
    _, callback = model._setup_learn(N * T)
    if theirs:
        model._last_lstm_states = tree_map(torch.Tensor.double, model._last_lstm_states)
        monkeypatch.setattr(np.random, "randint", lambda *_: 0)  # where it would cut the buffer in two
    buffer = model.rollout_buffer
    keep_in_float64(buffer)
    assert model.collect_rollouts(model.env, callback, buffer, T)
    buffer.log_probs += 0.5 * torch.randn(T, N, generator=source).numpy()
    buffer.actions = buffer.actions.astype(np.float32).astype(np.float64)  # as `train` reads them
    for number, row in enumerate(rows):
        begin = 0
        for p in row:
            own = slice(begin, begin := begin + len(p.action))
            taken = torch.from_numpy(buffer.actions[own, number])
            p.action = taken.squeeze(-1).long() if space is DISCRETE else taken
            p.log_prob = torch.from_numpy(buffer.log_probs[own, number])
    model.train()
    streams = lay_out(rows)
    streams.state0 = agent.initial_state(N)
    metrics = algo.update(
        Rollout(streams), {"tape": Tape(), "segment": Segment(None), "slots": Segment(1)}[scheme], 0.0
    )
    assert 0.2 < metrics["ppo/clip_fraction"] < 0.8 and metrics["ppo/grad_norm"] > 0.3
    assert metrics["ppo/clip_fraction"] == one_loss(model, "clip_fraction")
    assert metrics["ppo/value_loss"] == one_loss(model, "value_loss")
    assert -metrics["ppo/entropy"] == one_loss(model, "entropy_loss")
    assert metrics["ppo/policy_loss"] * factor == one_loss(model, "policy_gradient_loss")
    compare(agent, model)
