"""popjaxrl: its PPO with a GRU on its own RepeatPreviousEasy, compiled whole, one update a turn.

Each call begins with fresh weights and environments, since its training returns no state to go on from; what that adds
is small beside 16 minibatches.
"""

import jax
from algorithms.ppo_gru import make_train
from envs.wrappers import AliasPrevActionV2

from envs import make


def train(setting, turn):
    env, parameters = make("RepeatPreviousEasy")
    steps = setting.envs * setting.slots
    config = {
        "LR": setting.lr,
        "NUM_ENVS": setting.envs,
        "NUM_STEPS": setting.slots,
        "TOTAL_TIMESTEPS": steps,
        "UPDATE_EPOCHS": setting.epochs,
        "NUM_MINIBATCHES": setting.minibatches,
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.01,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5,
        "ENV": AliasPrevActionV2(env),
        "ENV_PARAMS": parameters,
        "ANNEAL_LR": False,
        "DEBUG": False,
    }
    update = jax.jit(make_train(config))
    key, done = jax.random.PRNGKey(0), 0
    while True:
        turn(done)
        key, one = jax.random.split(key)
        jax.block_until_ready(update(one))
        done += steps
