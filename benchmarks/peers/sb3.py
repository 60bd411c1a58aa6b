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
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium
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

EPISODES = 10
FIELDS = ("game", "algorithm", "seed", "step", "return", "cpu_seconds", "versions", "machine")


@dataclass(frozen=True)
class Cell:
    """One game learnt by one algorithm.

    game: the name in the table
    env: Gymnasium's id, with the constructor's arguments
    algorithm: the class
    steps: environment steps
    every: environment steps between evaluations
    settings: arguments of the class
    num_envs: environments that are stepped in turns
    normalise: whether observations are normalised by their running mean and spread
    """

    game: str
    env: tuple[str, dict[str, Any]]
    algorithm: type[BaseAlgorithm]
    steps: int
    every: int
    settings: dict[str, Any] = field(default_factory=dict)
    num_envs: int = 1
    normalise: bool = False


def linear(first: float) -> Callable[[float], float]:
    """A schedule that falls from `first` to zero over the run."""
    return lambda left: left * first


CARTPOLE, ACROBOT, PENDULUM, LANDER = (
    (f"{name}", {}) for name in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "LunarLander-v3")
)
POSITION_CARTPOLE = ("rlmem/CartPole-v0", {"observe": "position", "horizon": 500})
POSITION_PENDULUM = ("rlmem/Pendulum-v0", {"observe": "position"})
DQN_ACROBOT = dict(
    learning_rate=6.3e-4, batch_size=128, buffer_size=50_000, learning_starts=0, gamma=0.99, target_update_interval=250,
    train_freq=4, gradient_steps=-1, exploration_fraction=0.24, exploration_final_eps=0.1,
    policy_kwargs={"net_arch": [256, 256]},
)  # fmt: skip
PPO_CARTPOLE = dict(
    n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0, learning_rate=linear(1e-3),
    clip_range=linear(0.2),
)  # fmt: skip
PPO_PENDULUM = dict(n_steps=1024, gae_lambda=0.95, gamma=0.9, n_epochs=10, ent_coef=0.0, learning_rate=1e-3)
LSTM = {
    "ortho_init": False, "activation_fn": torch.nn.ReLU, "lstm_hidden_size": 64, "enable_critic_lstm": True,
    "net_arch": {"pi": [64], "vf": [64]},
}  # fmt: skip

CELLS = {
    "pendulum_sac": Cell("pendulum", PENDULUM, SAC, 10_000, 1000, {"learning_rate": 1e-3}),
    "pendulum_td3": Cell("pendulum", PENDULUM, TD3, 20_000, 1000, dict(
        gamma=0.98, buffer_size=200_000, learning_starts=10_000, gradient_steps=1, train_freq=1, learning_rate=1e-3,
        action_noise=NormalActionNoise(np.zeros(1), 0.1 * np.ones(1)), policy_kwargs={"net_arch": [400, 300]},
    )),
    "cartpole_dqn": Cell("cartpole", CARTPOLE, DQN, 50_000, 2500, dict(
        learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
        target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16,
        exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]},
    )),
    "cartpole_ppo": Cell("cartpole", CARTPOLE, PPO, 100_000, 5000, PPO_CARTPOLE, num_envs=8),
    "pendulum_ppo": Cell("pendulum", PENDULUM, PPO, 100_000, 5000, PPO_PENDULUM, num_envs=4),
    "acrobot_ppo": Cell(
        "acrobot", ACROBOT, PPO, 200_000, 10_000, dict(n_steps=256, gae_lambda=0.94, gamma=0.99, n_epochs=4, ent_coef=0.0),
        num_envs=16, normalise=True,
    ),
    "acrobot_dqn": Cell("acrobot", ACROBOT, DQN, 50_000, 5000, DQN_ACROBOT),
    "position_cartpole_ppo": Cell(
        "position_cartpole", POSITION_CARTPOLE, RecurrentPPO, 100_000, 5000, PPO_CARTPOLE | {"policy_kwargs": LSTM},
        num_envs=8, normalise=True,
    ),
    "position_pendulum_ppo": Cell(
        "position_pendulum", POSITION_PENDULUM, RecurrentPPO, 100_000, 5000, PPO_PENDULUM | {"policy_kwargs": LSTM},
        num_envs=4, normalise=True,
    ),
    "lander_ppo": Cell(
        "lander", LANDER, PPO, 500_000, 25_000,
        dict(n_steps=1024, batch_size=64, gae_lambda=0.98, gamma=0.999, n_epochs=4, ent_coef=0.01), num_envs=16,
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
        self.points.append((self.num_timesteps, float(mean), process_time() - self.began - self.playing))


def train(cell: Cell, seed: int) -> list[tuple[int, float, float]]:
    """Train once: environment steps, mean return, and processor seconds without the evaluations so far."""
    name, arguments = cell.env
    make = partial(make_vec_env, name, env_kwargs=arguments)
    envs, played = make(cell.num_envs, seed=seed), make(1, seed=seed + 1_000_000)
    if cell.normalise:
        envs, played = VecNormalize(envs, norm_reward=False), VecNormalize(played, norm_reward=False, training=False)
    policy = "MlpLstmPolicy" if cell.algorithm is RecurrentPPO else "MlpPolicy"
    model = cell.algorithm(policy, envs, seed=seed, device="cpu", **cell.settings)  # type: ignore[arg-type]
    curve = Curve(played, cell.every)
    model.learn(cell.steps, callback=curve)
    return curve.points


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


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
