"""Learning curves of stable-baselines3 and sb3-contrib on games that everyone knows, for experiments/familiar.

    OMP_NUM_THREADS=1 python benchmarks/peers/sb3.py [CELL ...] [--seeds 10] [--out experiments/familiar/sb3.csv]

Settings are those of rl-baselines3-zoo 2.9.2 (`rl_zoo3/hyperparams`), with these differences, which the experiments
share: no gSDE (`use_sde`), no normalisation of rewards, and an end soon after a game is learnt: Pendulum's SAC after
10,000 of 20,000 steps, Acrobot's PPO after 200,000 of a million, its DQN after 50,000 of 100,000, LunarLander's PPO
after 500,000 of a million; schedules of exploration are as in the longer run. Every so many steps ten episodes are
played greedily in an environment of their own. Runs that the file holds already are not made again.
"""

import argparse
import csv
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import rlmem_envs  # noqa: F401  (registers the occluded games)
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, sync_envs_normalization

from rlmem.system.hardware import processor

EPISODES = 10
FIELDS = ("game", "algorithm", "seed", "step", "return", "cpu_seconds", "versions", "machine")


class Cell:
    """One game learnt by one algorithm.

    game: the name in the table
    env: Gymnasium's id
    algorithm: the class
    steps: environment steps
    every: environment steps between evaluations
    num_envs: environments that are stepped in turns
    normalise: whether observations are normalised by their running mean and spread
    env_arguments: of the environment's constructor
    settings: arguments of the algorithm's constructor
    """

    def __init__(
        self, game: str, env: str, algorithm: type[BaseAlgorithm], steps: int, every: int, num_envs: int = 1,
        normalise: bool = False, env_arguments: dict[str, Any] | None = None, **settings: Any,
    ):  # fmt: skip
        self.game, self.env, self.algorithm, self.steps, self.every = game, env, algorithm, steps, every
        self.num_envs, self.normalise, self.settings = num_envs, normalise, settings
        self.env_arguments = env_arguments or {}


def linear(first: float) -> Callable[[float], float]:
    """A schedule that falls from `first` to zero over the run."""
    return lambda left: left * first


def cartpole(game: str, env: str, algorithm: type[BaseAlgorithm], **more: Any) -> Cell:
    """PPO's settings for CartPole-v1."""
    return Cell(
        game, env, algorithm, 100_000, 5000, num_envs=8, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98,
        n_epochs=20, ent_coef=0.0, learning_rate=linear(1e-3), clip_range=linear(0.2), **more,
    )  # fmt: skip


def pendulum(game: str, env: str, algorithm: type[BaseAlgorithm], **more: Any) -> Cell:
    """PPO's settings for Pendulum-v1."""
    return Cell(
        game, env, algorithm, 100_000, 5000, num_envs=4, n_steps=1024, gae_lambda=0.95, gamma=0.9, n_epochs=10,
        ent_coef=0.0, learning_rate=1e-3, **more,
    )  # fmt: skip


LSTM = {
    "ortho_init": False, "activation_fn": torch.nn.ReLU, "lstm_hidden_size": 64, "enable_critic_lstm": True,
    "net_arch": {"pi": [64], "vf": [64]},
}  # fmt: skip
POSITION = {"observe": "position"}

CELLS = {
    "pendulum_sac": Cell("pendulum", "Pendulum-v1", SAC, 10_000, 1000, learning_rate=1e-3),
    "pendulum_td3": Cell(
        "pendulum", "Pendulum-v1", TD3, 20_000, 1000, gamma=0.98, buffer_size=200_000, learning_starts=10_000,
        gradient_steps=1, train_freq=1, learning_rate=1e-3, policy_kwargs={"net_arch": [400, 300]},
        action_noise=NormalActionNoise(np.zeros(1), 0.1 * np.ones(1)),
    ),
    "cartpole_dqn": Cell(
        "cartpole", "CartPole-v1", DQN, 50_000, 2500, learning_rate=2.3e-3, batch_size=64, buffer_size=100_000,
        learning_starts=1000, gamma=0.99, target_update_interval=10, train_freq=256, gradient_steps=128,
        exploration_fraction=0.16, exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]},
    ),
    "acrobot_dqn": Cell(
        "acrobot", "Acrobot-v1", DQN, 50_000, 5000, learning_rate=6.3e-4, batch_size=128, buffer_size=50_000,
        learning_starts=0, gamma=0.99, target_update_interval=250, train_freq=4, gradient_steps=-1,
        exploration_fraction=0.24, exploration_final_eps=0.1, policy_kwargs={"net_arch": [256, 256]},
    ),
    "cartpole_ppo": cartpole("cartpole", "CartPole-v1", PPO),
    "pendulum_ppo": pendulum("pendulum", "Pendulum-v1", PPO),
    "acrobot_ppo": Cell(
        "acrobot", "Acrobot-v1", PPO, 200_000, 10_000, num_envs=16, normalise=True, n_steps=256, gae_lambda=0.94,
        gamma=0.99, n_epochs=4, ent_coef=0.0,
    ),
    "lander_ppo": Cell(
        "lander", "LunarLander-v3", PPO, 500_000, 25_000, num_envs=16, n_steps=1024, batch_size=64, gae_lambda=0.98,
        gamma=0.999, n_epochs=4, ent_coef=0.01,
    ),
    "position_cartpole_ppo": cartpole(
        "position_cartpole", "rlmem/CartPole-v0", RecurrentPPO, normalise=True, policy_kwargs=LSTM,
        env_arguments=POSITION | {"horizon": 500},
    ),
    "position_pendulum_ppo": pendulum(
        "position_pendulum", "rlmem/Pendulum-v0", RecurrentPPO, normalise=True, policy_kwargs=LSTM,
        env_arguments=POSITION,
    ),
}  # fmt: skip


class Curve(BaseCallback):
    """Plays episodes every so many steps and keeps their mean return."""

    def __init__(self, envs: VecEnv, every: int):
        super().__init__()
        self.envs, self.every = envs, every
        self.points: list[tuple[int, float, float]] = []
        self.playing = 0.0
        self.began = process_time()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.every * (len(self.points) + 1):
            self.play()
        return True

    def play(self) -> None:
        begins = process_time()
        if isinstance(self.envs, VecNormalize):
            sync_envs_normalization(self.training_env, self.envs)
        mean, _ = evaluate_policy(self.model, self.envs, EPISODES, warn=False)
        self.playing += process_time() - begins
        self.points.append((self.num_timesteps, float(np.mean(mean)), process_time() - self.began - self.playing))


def train(cell: Cell, seed: int) -> list[tuple[int, float, float]]:
    """Train once: environment steps, mean return, and processor seconds without the evaluations so far."""
    make = partial(make_vec_env, cell.env, env_kwargs=cell.env_arguments)
    envs, played = make(cell.num_envs, seed=seed), make(1, seed=seed + 1_000_000)
    if cell.normalise:
        envs, played = VecNormalize(envs, norm_reward=False), VecNormalize(played, norm_reward=False, training=False)
    policy = "MlpLstmPolicy" if cell.algorithm is RecurrentPPO else "MlpPolicy"
    model = cell.algorithm(policy, envs, seed=seed, device="cpu", **cell.settings)
    curve = Curve(played, cell.every)
    model.learn(cell.steps, callback=curve)
    return curve.points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(CELLS)}; default: all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("experiments/familiar/sb3.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    packages = ("stable-baselines3", "sb3-contrib", "gymnasium", "torch", "numpy")
    versions = " ".join(f"{package}={version(package)}" for package in packages)
    done = set()
    if options.out.exists():
        with options.out.open(newline="") as file:
            done = {(row["game"], row["algorithm"], int(row["seed"])) for row in csv.DictReader(file)}
    else:
        options.out.write_text(",".join(FIELDS) + "\n")
    for seed in range(options.seeds):
        for name in options.cells or CELLS:
            cell = CELLS[name]
            game, algorithm = cell.game, name.removeprefix(f"{cell.game}_")
            if (game, algorithm, seed) in done:
                continue
            points = train(cell, seed)
            with options.out.open("a", newline="") as file:
                rows = ((game, algorithm, seed, s, f"{r:.5g}", f"{t:.1f}", versions, processor()) for s, r, t in points)
                csv.writer(file, lineterminator="\n").writerows(rows)
            print(name, seed, [f"{value:.0f}" for _, value, _ in points], f"{points[-1][2]:.0f} s", flush=True)


if __name__ == "__main__":
    main()
