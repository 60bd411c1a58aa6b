"""How soon a trained agent acts: what a program that uses one waits for.

    python benchmarks/latency.py --json benchmarks/latency.json

Measures, for PPO with `memory=gru` of 256 units on `repeat_previous`, on one thread:

- load: `import rlmem`, `rlmem.load` and the first action in a fresh interpreter, in seconds;
- act: `agent.act` for one environment, in milliseconds;
- onnx: the exported file in onnxruntime for one environment;
- step: a slot of an evaluation of one environment, the environment's own step included.

The last three take turns in one process; the ratios to `step` are what to read. What is trained here for a moment
acts as slowly as what was trained for long.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import onnxruntime
import torch

import rlmem
from rlmem.acting.collector import Collector
from rlmem.bench.skeleton import machine
from rlmem.bench.timing import CPU, Run, Stopwatch, using_threads

GOALS = {"load": 3.0, "act": 0.5, "onnx": 0.15}
"""Seconds, and milliseconds."""
SLOTS = 256
"""The calls of a turn."""
FIRST_ACTION = """
from time import perf_counter
began = perf_counter()
import rlmem
agent = rlmem.load({run!r})
agent.act(0, agent.initial_state())
print(perf_counter() - began)
"""


def first_action(run: Path) -> float:
    """Seconds from the start of a fresh interpreter's work to the first action, without the interpreter's own start."""
    script = FIRST_ACTION.format(run=str(run))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(done.stdout)


def acting(agent: rlmem.TrainedAgent) -> Run:
    def turn() -> None:
        state = agent.initial_state()
        for _ in range(SLOTS):
            _, state = agent.act(0, state)

    return turn


def onnx(file: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": bool}
    names = [output.name for output in session.get_outputs()]
    slot = {i.name: np.zeros([1, *i.shape[1:]], kinds[i.type]) for i in session.get_inputs()}

    def turn() -> None:
        for _ in range(SLOTS):
            found = dict(zip(names, session.run(names, slot), strict=True))
            slot.update({n.removeprefix("next_"): value for n, value in found.items() if n.startswith("next_")})

    return turn


def stepping(agent: rlmem.TrainedAgent) -> Run:
    env = rlmem.make_env("repeat_previous", num_envs=1)
    collector = Collector(env, agent.network, 0, None, CPU)

    def turn() -> None:
        collector.collect(SLOTS, budget=2**62)

    return turn


def measured(rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, using_threads(1):
        run_dir = Path(folder) / "gru"
        small = ["memory=gru", "memory.hidden_size=256", "env=repeat_previous", "total_steps=2000", "env.num_envs=16"]
        run = rlmem.train(*small, run_dir=str(run_dir))
        agent, file = run.agent(), Path(folder) / "agent.onnx"
        run.export(out=str(file))
        load = [first_action(run_dir) for _ in range(rounds)]
        turns = {"act": acting(agent), "onnx": onnx(file), "step": stepping(agent)}
        times = Stopwatch(rounds=rounds, budget=60).turns(turns)
    if failed := [f"{name}: {time.note}" for name, time in times.items() if time.median is None]:
        sys.exit("; ".join(failed))
    ms = {name: 1e3 * median(time.seconds) / SLOTS for name, time in times.items()}
    pairs = {name: [a / b for a, b in zip(times[name].seconds, times["step"].seconds, strict=False)] for name in ms}
    ratios = {f"{name} / step": median(pairs[name]) for name in ("act", "onnx")}
    setting = {"rounds": rounds, "slots": SLOTS, "memory": "gru", "hidden_size": 256, "threads": 1}
    return {
        "setting": setting, "machine": machine(CPU), "load_seconds": median(load), "milliseconds": ms, "ratios": ratios,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how soon a trained agent acts.")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant (9)")
    parser.add_argument("--json", type=Path, help="file of the numbers")
    args = parser.parse_args()
    torch.manual_seed(0)
    began = perf_counter()
    result = measured(args.rounds)
    found = {"load": result["load_seconds"], **result["milliseconds"]}
    for name, value in found.items():
        goal = f" (goal {GOALS[name]:g}: {'reached' if value <= GOALS[name] else 'missed'})" if name in GOALS else ""
        print(f"{name:5} {value:8.3f} {'s' if name == 'load' else 'ms'}{goal}")
    for name, value in result["ratios"].items():
        print(f"{name}: {value:.2f}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
        print(f"wrote {args.json} after {perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
