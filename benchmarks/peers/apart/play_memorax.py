"""Memorax: its PPO with a recurrent network each for actor and critic, compiled whole, one update a turn."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct
from gymnax.environments import spaces
from memorax.algorithms import PPO, PPOConfig
from memorax.networks import MLP, RNN, FeatureExtractor, Network, heads

CARDS, SUITS, BACK = 52, 4, 4


@struct.dataclass
class Game:
    """suits: of the deck, in the order of dealing; dealt: cards that were dealt"""

    suits: jax.Array
    dealt: jax.Array


class RepeatPrevious:
    """popgym's RepeatPreviousEasy: name the suit dealt three cards before the last, over one deck.

    popjym, from where Memorax has POPGym's games, is on no package index.
    """

    def action_space(self, params=None):
        return spaces.Discrete(SUITS)

    def reset(self, key, params=None):
        game = Game(jax.random.permutation(key, jnp.arange(CARDS) % SUITS), jnp.ones((), int))
        return self.seen(game), game

    def step(self, key, game, action, params=None):
        right = game.suits[game.dealt - BACK] == action
        reward = jnp.where(game.dealt < BACK, 0.0, jnp.where(right, 1.0, -1.0) / (CARDS - BACK))
        after = game.replace(dealt=game.dealt + 1)
        done = after.dealt == CARDS
        _, fresh = self.reset(key)
        after = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, after)
        return self.seen(after), after, reward, done, {}

    def seen(self, game):
        return jax.nn.one_hot(game.suits[game.dealt - 1], SUITS)


def train(setting, turn):
    config = PPOConfig(
        name="PPO",
        num_envs=setting.envs,
        num_eval_envs=setting.envs,
        num_steps=setting.slots,
        gamma=0.99,
        gae_lambda=0.95,
        num_minibatches=setting.minibatches,
        update_epochs=setting.epochs,
        normalize_advantage=True,
        clip_coef=0.2,
        clip_vloss=True,  # without, the head must have a loss of its own
        ent_coef=0.01,
        vf_coef=0.5,
    )
    cell = nn.OptimizedLSTMCell if setting.memory == "lstm" else nn.GRUCell

    def network(head):
        features = FeatureExtractor(observation_extractor=MLP((setting.encoder, setting.encoder)))
        return Network(features, RNN(cell(setting.width)), nn.Sequential((MLP((setting.heads, setting.heads)), head)))

    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(setting.lr, eps=1e-5))
    actor, critic = network(heads.Categorical(SUITS)), network(heads.VNetwork())
    ppo = PPO(config, RepeatPrevious(), None, actor, critic, optimiser, optimiser)
    key, state = ppo.init(jax.random.key(0))
    steps, done = setting.envs * setting.slots, 0
    while True:
        turn(done)
        key, state, _ = jax.block_until_ready(ppo.train(key, state, steps))
        done += steps
