"""Watch the resources of a long run: memory, open files and threads over a million steps of DQN.

    python benchmarks/soak.py

The run is `rlmem train` in a process of its own, with evaluations and checkpoints. It is watched from outside through
/proc, so on Linux only. Its replay is full early, so that whatever grows after the first third is a leak.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from chaos import LOG, start

RUN = [
    "algo=dqn", "env=two_step_cue", "memory=gru", "memory.hidden_size=16", "encoder.hidden_size=16", "env.num_envs=64",
    "algo.capacity=50000", "algo.batch_size=200", "algo.update_ratio=0.01", "checkpoint.every=50000",
    "evaluation.every=50000", "threads=1", "run_dir=run",
]  # fmt: skip
ALLOWED = 10.0
"""MB by which memory may grow in the last two thirds: noise of the allocator, less than a leak would show."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks")
    parser.add_argument("overrides", nargs="*", help="of the run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run, looks = start(["train", *RUN, f"total_steps={args.steps}", *args.overrides]), []
        while run.is_alive():
            if look := what_it_holds(run.pid, Path("run") / "metrics.jsonl"):
                looks.append(look)
            time.sleep(args.every)
        if run.exitcode:
            print(LOG.read_text()[-2000:])
            return run.exitcode
    return report(np.array(looks), args.steps)


def what_it_holds(pid: int, metrics: Path) -> tuple[float, float, int, int] | None:
    """(steps, MB, open files, threads) of a process; None while it does not train."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        files = len(os.listdir(f"/proc/{pid}/fd"))
        line = metrics.read_bytes().rpartition(b"\n")[0].splitlines()[-1]  # the last one that is whole
        return json.loads(line)["step"], int(status["VmRSS"].split()[0]) / 1024, files, int(status["Threads"])
    except (OSError, KeyError, IndexError):  # not begun yet, or just ended
        return None


def report(looks: np.ndarray, steps: int) -> int:
    """Print the resources over time, and return 1 if any of them grew, else 0."""
    late = looks[looks[:, 0] > steps / 3]
    wrong = False
    print(f"{len(looks)} looks at a run of {steps:,} steps; slopes are of the last two thirds")
    for column, (what, allowed) in enumerate([("MB resident", ALLOWED), ("open files", 0.5), ("threads", 0.5)], 1):
        slope = np.polyfit(late[:, 0], late[:, column], 1)[0] * 1e6
        wrong |= slope * steps / 1e6 * 2 / 3 > allowed
        first, last, most = late[0, column], late[-1, column], late[:, column].max()
        print(f"  {what:<12} {first:8.1f} -> {last:8.1f}, most {most:8.1f}; slope {slope:+.3f} per million steps")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
