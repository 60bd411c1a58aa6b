"""Processor time of a step of memoryless training, beside stable-baselines3 in the same process, in turns.

    OMP_NUM_THREADS=1 python benchmarks/peers/speed.py [--rounds 5] [--json benchmarks/peers/speed-2-cores.json]

SAC on Pendulum-v1, an update of 256 transitions per step; PPO on CartPole-v1, 20 epochs over 8 x 32 slots. Both sides
have the same networks. Medians; the machine should be idle.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time

import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

from rlmem.bench.loop import training_loop
from rlmem.bench.skeleton import machine

OURS = ["env=gym", "encoder=plain", "memory=mlp", "memory.layers=0", "evaluation.every=null", "device=cpu"]
CASES: dict[str, tuple[int, list[str], Callable[[], SAC | PPO]]] = {
    "SAC, Pendulum-v1": (
        1500,
        [
            *("env.id=Pendulum-v1", "env.num_envs=1", "algo=sac", "algo.head_sizes=[256,256]", "algo.batch_size=256"),
            *("algo.update_ratio=1", "algo.random_steps=100", "algo.learning_starts=100", "algo.reward_scale=1"),
        ],
        lambda: SAC("MlpPolicy", make_vec_env("Pendulum-v1", 1), device="cpu"),
    ),
    "PPO, CartPole-v1": (
        8192,
        [
            *("env.id=CartPole-v1", "env.num_envs=8", "algo=ppo", "algo.head_sizes=[64,64]", "algo.epochs=20"),
            *("algo.rollout_slots=32", "algo.num_minibatches=1", "algo.reward_scale=1"),
        ],
        lambda: PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=32, batch_size=256, n_epochs=20, device="cpu"),
    ),
}
"""Name -> environment steps, our overrides, and the peer."""


def ours(steps: int, lines: list[str]) -> float:
    """Seconds of a step of rlmem, its record included."""
    loop = training_loop([*OURS, *lines, f"total_steps={steps}"], Path(tempfile.mkdtemp()))
    began = process_time()
    while loop.collector.steps < steps:
        loop.iterate()
    return (process_time() - began) / steps


def theirs(steps: int, make: Callable[[], SAC | PPO]) -> float:
    """Seconds of a step of stable-baselines3."""
    model = make()
    began = process_time()
    model.learn(steps)
    return (process_time() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name, (steps, lines, make) in CASES.items():
        pairs = [(ours(steps, lines), theirs(steps, make)) for _ in range(options.rounds)]
        mine, peer = (1000 * median(side) for side in zip(*pairs, strict=True))
        found[name] = {"rlmem_ms": mine, "stable_baselines3_ms": peer, "ratio": median(a / b for a, b in pairs)}
        print(f"{name}: {mine:.2f} ms a step, stable-baselines3 {peer:.2f} ms, {found[name]['ratio']:.2f}x", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(torch.device("cpu")), "cases": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
