"""Kill training runs at random moments, and compare their results with uninterrupted twins, bit for bit.

    python benchmarks/chaos.py --kills 30 --seed 0

Each cell of the matrix (algorithm x batching x memory) is trained once without a kill. Its twin runs the same command
with `on_exists=resume` again and again, each time killed with SIGKILL, until it has been killed often enough and is
left to finish. Then metrics.jsonl (without time/*), episodes.jsonl and the hash of all parameters must be equal. A kill
comes at a random moment of the remaining run; half of them then wait until a checkpoint is half written. Runs are
forked from this process, which has imported everything already, so that a run takes a second instead of five.
"""

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from rlmem.commands.cli import main as rlmem
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl

SMALL = [
    "env.num_envs=4", "memory.hidden_size=16", "encoder.hidden_size=16", "algo.head_sizes=[16]", "threads=1",
    "total_steps=2000", "checkpoint.every=100", "evaluation.every=500", "evaluation.episodes=4",
]  # fmt: skip
ON_POLICY = ["env=repeat_first", "algo.rollout_slots=20"]
OFF_POLICY = [
    "algo.batch_size=60", "algo.random_steps=100", "algo.learning_starts=100", "algo.record_every=100",
    "algo.update_ratio=0.05",
]  # fmt: skip
ALGORITHMS = {
    "ppo": ["algo=ppo", "algo.num_minibatches=2", "algo.epochs=1", *ON_POLICY],
    "impala": ["algo=impala", *ON_POLICY],
    "dqn": ["algo=dqn", "env=count_recall", "env.max_episode_steps=20", *OFF_POLICY],
    "sac": ["algo=sac", "env=position_only_pendulum", "env.max_episode_steps=20", *OFF_POLICY],
    "td3": ["algo=td3", "env=position_only_pendulum", "env.max_episode_steps=15", *OFF_POLICY],
}
BATCHING = {"tape": ["batching=tape"], "segment": ["batching=segment", "batching.length=10"]}
MEMORIES = ("ffm", "lru", "gru", "gpt", "shm", "linear_attention")
"""Two linear recurrences, one of complex traces; a stepped cell; a window; a random matrix; outer products."""
LOG = Path("log.txt")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--per-cell", type=int, default=3, help="kills of one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memories", default=",".join(MEMORIES))
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    args = parser.parse_args()
    cells = list(product(args.algorithms.split(","), BATCHING, args.memories.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        return chaos(args.kills, args.per_cell, args.seed, cells)


def chaos(kills: int, per_cell: int, seed: int, cells: list[tuple[str, str, str]]) -> int:
    """Kill runs `kills` times, in the current folder, and return how many runs differ from their twins."""
    torch.set_num_threads(1)
    draw, tally, wrong = random.Random(seed), Counter[str](), 0
    draw.shuffle(cells)
    for number, (algorithm, batching, memory) in enumerate(cells * (1 + kills // len(cells))):
        if tally["kills"] >= kills:
            break
        name = f"{number}-{algorithm}-{batching}-{memory}"
        cut, whole = Path(name), Path(f"{name}-whole")
        command = ["train", f"memory={memory}", *ALGORITHMS[algorithm], *BATCHING[batching], *SMALL, f"seed={number}"]
        again = [*command, f"run_dir={cut}", "on_exists=resume"]
        codes = [finish([*command, f"run_dir={whole}"])]
        for _ in range(min(per_cell, kills - tally["kills"])):
            kill_once(again, cut, written(whole), draw, tally)
        codes.append(finish(again))
        pairs = [] if any(codes) else zip(result(whole).items(), result(cut).items(), strict=True)
        different = "failed" if any(codes) else next((part for (part, a), (_, b) in pairs if a != b), None)
        wrong += different is not None
        print(f"{name}: {tally['kills']} kills so far, {f'DIFFERS: {different}' if different else 'equal'}", flush=True)
    print(
        f"{tally['kills']} kills, {tally['while writing']} of them while a checkpoint was being written, "
        f"{tally['before a checkpoint']} before the first one: {wrong} runs differ from their twins"
    )
    return wrong


def start(arguments: list[str]) -> BaseProcess:
    """Fork a process that runs `rlmem ARGUMENTS` and appends what it prints to LOG; nothing is imported again."""

    def command() -> None:
        with open(LOG, "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.exit(rlmem(arguments))

    process = multiprocessing.get_context("fork").Process(target=command)
    process.start()
    return process


def finish(arguments: list[str]) -> int | None:
    """Run `rlmem ARGUMENTS` to its end and return its exit code."""
    process = start(arguments)
    process.join()
    return process.exitcode


def kill_once(arguments: list[str], run_dir: Path, whole: int, draw: random.Random, tally: Counter[str]) -> None:
    """Continue a run and kill it before its record reaches `whole` bytes; a run that ends before is not counted.

    One in six is killed within its first second, while it may still read its configuration or checkpoint.
    """
    early, writing, moment = draw.random() < 1 / 6, draw.random() < 0.5, time.monotonic() + draw.random()
    size = draw.uniform(written(run_dir), whole)
    process = start(arguments)
    while process.is_alive():
        due = time.monotonic() >= moment if early else written(run_dir) >= size and (not writing or torn(run_dir))
        if due:
            process.kill()
            process.join()
            first = not Checkpoints(run_dir / "checkpoints").paths()
            tally.update({"kills": 1, "while writing": torn(run_dir), "before a checkpoint": first})
            return


def written(run_dir: Path) -> int:
    """The size of the record so far, in bytes."""
    return sum(path.stat().st_size for path in run_dir.glob("metrics.jsonl"))


def torn(run_dir: Path) -> bool:
    """Whether a checkpoint is half written."""
    return any(run_dir.glob("checkpoints/*.partial"))


def result(run_dir: Path) -> dict[str, Any]:
    """What a finished run left behind, without times: its record, and the bytes of all that was learnt."""
    rows = read_jsonl(run_dir / "metrics.jsonl")
    state = Checkpoints(run_dir / "checkpoints").load()[1]
    networks = {"agent": state["agent"], "target": state["algo"].get("target", {})}
    return {
        "metrics.jsonl": [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows],
        "episodes.jsonl": (run_dir / "episodes.jsonl").read_bytes(),
        "parameters": {
            (network, name): tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            for network, tensors in networks.items()
            for name, tensor in tensors.items()
        },
    }


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
