"""How soon a trained agent acts: what a program that uses one waits for.

Measured are, for PPO with `memory=gru` of 256 units on `repeat_previous`, on one thread:

- load: `import rlmem`, `rlmem.load` and the first action in a fresh interpreter, in seconds;
- act: `agent.act` for one environment, in milliseconds;
- onnx: the exported file in onnxruntime for one environment;
- step: a slot of an evaluation of one environment, the environment's own step included.

The last three take turns in one process; the ratios to `step` are what to read. What is trained here for a moment
acts as slowly as what was trained for long.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime

import rlmem
from rlmem.acting.collector import Collector
from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable
from rlmem.evidence.bench.timing import CPU, Run

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


@dataclass
class LatencyBench(Bench):
    """Seconds until the first action, and milliseconds of an action, of the exported file and of an evaluation."""

    name = "latency"
    refused = frozenset({"device", "threads"})
    rounds: int = 9
    budget: float = 60.0
    threads: int | None = 1

    def measure(self, result: Numbers) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            run_dir, file = Path(folder) / "gru", Path(folder) / "agent.onnx"
            small = ["memory=gru", "memory.hidden_size=256", "env=repeat_previous", "total_steps=2000"]
            run = rlmem.train(*small, "env.num_envs=16", run_dir=str(run_dir))
            agent = run.agent()
            run.export(out=str(file))
            result["load_seconds"] = median(first_action(run_dir) for _ in range(self.rounds))
            times = self.turns({"act": acting(agent), "onnx": onnx(file), "step": stepping(agent)})
        result["failed"] = {name: time.note for name, time in times.items() if time.median is None}
        result["milliseconds"] = {name: 1e3 * time.median / SLOTS for name, time in times.items() if time.median}
        result["ratios"] = {f"{name} / step": times[name].ratio(times["step"]) for name in ("act", "onnx")}
        yield

    def tables(self, result: Numbers) -> list[PlottedTable]:
        rows = [("load", "s", result["load_seconds"], GOALS["load"], None)]
        for name, value in result["milliseconds"].items():
            rows.append((name, "ms", value, GOALS.get(name), result["ratios"].get(f"{name} / step")))
        columns = {"median": "s or ms", "goal": "s or ms", "/ step": ""}
        return [PlottedTable("until an agent acts", ["", "unit"], columns, rows)]


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
            outputs = dict(zip(names, session.run(names, slot), strict=True))
            slot.update({n.removeprefix("next_"): value for n, value in outputs.items() if n.startswith("next_")})

    return turn


def stepping(agent: rlmem.TrainedAgent) -> Run:
    env = rlmem.make_env("repeat_previous", num_envs=1)
    collector = Collector(env, agent.network, 0, None, CPU)

    def turn() -> None:
        collector.collect(SLOTS, budget=2**62)

    return turn
