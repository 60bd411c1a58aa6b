"""Learning curves of stable-baselines3 and sb3-contrib on games that everyone knows, for experiments/familiar.

    OMP_NUM_THREADS=1 python benchmarks/peers/sb3.py [CELL ...] [--seeds 10] [--out experiments/familiar/sb3.csv]

The settings, in sb3.yaml, are those of rl-baselines3-zoo 2.9.2 (`rl_zoo3/hyperparams`), with these differences, which
the experiments share: no gSDE (`use_sde`), no normalisation of rewards, and an end soon after a game is learnt:
Pendulum's SAC after 10,000 of 20,000 steps, Acrobot's PPO after 200,000 of a million, its DQN after 50,000 of 100,000,
LunarLander's PPO after 500,000 of a million; schedules of exploration are as in the longer run. Every so many steps ten
episodes are played greedily in an environment of their own. Runs that the file holds already are not made again.
"""

import argparse
import csv
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import rlmem_envs  # noqa: F401  (registers the occluded games)
import torch
import yaml
from sb3_contrib import RecurrentPPO
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, sync_envs_normalization

from rlmem.core.hardware import processor

EPISODES = 10
FIELDS = ("game", "algorithm", "seed", "step", "return", "cpu_seconds", "versions", "machine")


FILE = Path(__file__).with_suffix(".yaml")
CELLS: dict[str, dict[str, Any]] = {
    name: cell for name, cell in yaml.safe_load(FILE.read_text()).items() if not name.startswith(".")
}
CLASSES: dict[str, type[BaseAlgorithm]] = {it.__name__: it for it in (DQN, PPO, SAC, TD3, RecurrentPPO)}


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an algorithm's constructor that the settings of a cell describe."""
    settings = {name: _scheduled(value) for name, value in settings.items()}
    if "noise_std" in settings:
        settings["action_noise"] = NormalActionNoise(np.zeros(1), settings.pop("noise_std") * np.ones(1))
    if "activation_fn" in (policy := settings.get("policy_kwargs", {})):
        settings["policy_kwargs"] = policy | {"activation_fn": getattr(torch.nn, policy["activation_fn"])}
    return settings


def _scheduled(value: Any) -> Any:
    """A schedule that falls from X to zero over the run, if the value is `lin_X`."""
    if not isinstance(value, str):
        return value
    first = float(value.removeprefix("lin_"))
    return lambda left: left * first


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


def train(cell: dict[str, Any], seed: int) -> list[tuple[int, float, float]]:
    """Train once: environment steps, mean return, and processor seconds without the evaluations so far."""
    make = partial(make_vec_env, cell["env"], env_kwargs=cell.get("env_arguments", {}))
    envs, played = make(cell.get("num_envs", 1), seed=seed), make(1, seed=seed + 1_000_000)
    if cell.get("normalise", False):
        envs, played = VecNormalize(envs, norm_reward=False), VecNormalize(played, norm_reward=False, training=False)
    policy = "MlpLstmPolicy" if cell["algorithm"] == "RecurrentPPO" else "MlpPolicy"
    model = CLASSES[cell["algorithm"]](policy, envs, seed=seed, device="cpu", **arguments(cell["settings"]))
    curve = Curve(played, cell["every"])
    model.learn(cell["steps"], callback=curve)
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
            game, algorithm = cell["game"], name.removeprefix(f"{cell['game']}_")
            if (game, algorithm, seed) in done:
                continue
            points = train(cell, seed)
            with options.out.open("a", newline="") as file:
                rows = ((game, algorithm, seed, s, f"{r:.5g}", f"{t:.1f}", versions, processor()) for s, r, t in points)
                csv.writer(file, lineterminator="\n").writerows(rows)
            print(name, seed, [f"{value:.0f}" for _, value, _ in points], f"{points[-1][2]:.0f} s", flush=True)


if __name__ == "__main__":
    main()
