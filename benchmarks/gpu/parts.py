"""The parts of `make gpu`, each of which tests or measures one thing.

    python benchmarks/gpu/parts.py PART FILE [--dry]

runs one part in a process of its own and writes its numbers and verdicts as JSON. `--dry` takes tiny sizes, on the CPU
if there is no GPU, to show that the part works.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.memory import MemoryBench
from rlmem.config.catalog import catalog
from rlmem.core.errors import one_line
from rlmem.core.hardware import cores, installed_version
from rlmem.evidence.bench.scan import ScanBench
from rlmem.evidence.bench.skeleton import Bench, Numbers
from rlmem.evidence.bench.timing import wait
from rlmem.evidence.bench.train import recurrent_ppo, training_loop
from rlmem.run.assemble import choose_device

ROOT = Path(__file__).parents[2]
FOREVER = 10**9
"""Environment steps that no run takes."""
CHECKING = 420.0
"""Seconds for the contract of all memories; those that are not done by then count as broken."""
PUBLISHED = 15_000_000
"""Environment steps of POPGym's published run."""
PPO, DQN = ("algo=ppo", "env=repeat_previous"), ("algo=dqn", "env=repeat_first", "batching=tape")
REPLAYED = ("algo.update_ratio=0.02", "algo.batch_size=1000", "algo.learning_starts=20000", "algo.record_every=20000")
GRAPHS, GRAPHED = "compile=graphs", ", in graphs"


@dataclass(frozen=True)
class Setting:
    """Where and how large: `dry` for sizes that take seconds on a CPU."""

    device: torch.device
    dry: bool

    @property
    def graphs(self) -> tuple[str, ...]:
        """The override for graphs; none without a GPU, where they are refused."""
        return (GRAPHS,) if self.device.type == "cuda" else ()

    @property
    def narrow(self) -> tuple[str, ...]:
        """Overrides that make the network of a dry run small."""
        return ("memory.hidden_size=8", "encoder.hidden_size=8") if self.dry else ()


@dataclass(frozen=True)
class Verdict:
    """A number, and the goal that it should reach, if there is one. A number that could not be measured is a failure.

    value: the number; None if it could not be measured
    goal: the least or the greatest value that is accepted; without a goal the number is only reported
    at_most: whether the goal is the greatest value
    unit: of the number
    note: why it could not be measured, or what else is to be known
    """

    what: str
    value: float | None
    goal: float | None = None
    at_most: bool = False
    unit: str = ""
    note: str = ""

    def as_json(self) -> Numbers:
        """Its fields, and whether the number reached its goal (`held`; None without a goal)."""
        held: bool | None = self.value is not None
        if self.value is not None and self.goal is not None:
            held = self.value <= self.goal if self.at_most else self.value >= self.goal
        return vars(self) | {"held": None if held and self.goal is None else held}


Verdicts = Iterator[Verdict]


def run_tests(setting: Setting, numbers: Numbers) -> Verdicts:
    """The tests marked gpu. A dry run takes one of them: they all belong to `make test`."""
    marked = [str(file) for file in ROOT.glob("tests/**/test_*.py") if "pytest.mark.gpu" in file.read_text()]
    every = [*marked, "-n", str(min(12, cores())), "--dist", "worksteal"]
    chosen = ["tests/runs/test_gpu.py", "-k", "values and ffm"] if setting.dry else every
    options = ["-rfE", "-m", "gpu", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: some failed
        raise RuntimeError(f"pytest ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|skipped)\b", done.stdout.splitlines()[-1])}
    failed = dict(re.findall(r"^(?:FAILED|ERROR) (\S+)(?: - (.{,300}))?", done.stdout, re.MULTILINE))
    numbers |= {"passed": counts.get("passed", 0), "skipped": counts.get("skipped", 0), "failed": failed}
    yield Verdict("tests marked gpu that passed", numbers["passed"], 1, note=f"{numbers['skipped']} skipped")
    yield Verdict("tests marked gpu that failed", len(failed), 0, at_most=True, note=", ".join(failed))


def check_memories(setting: Setting, numbers: Numbers) -> Verdicts:
    """`rlmem check` of every memory: the properties that do not hold, by memory."""
    names, end = ["mlp"] if setting.dry else list(catalog()["memory"]), perf_counter() + CHECKING

    def check(name: str) -> dict[str, str]:
        command = [sys.executable, "-m", "rlmem", "check", f"memory={name}", f"device={setting.device.type}", "--json"]
        left = max(end - perf_counter(), 0.1)
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=left)
            properties = json.loads(done.stdout)["properties"]
        except subprocess.TimeoutExpired:
            return {"check": "not done in time"}
        except json.JSONDecodeError:
            return {"check": done.stderr.strip()[-500:]}
        return {it["name"]: it["detail"] for it in properties if not it["passed"] and it["published"] is None}

    with ThreadPoolExecutor(cores()) as pool:
        results = dict(zip(names, pool.map(check, names), strict=True))
    broken = {name: properties for name, properties in results.items() if properties}
    numbers |= {"memories": len(names), "broken": broken}
    yield Verdict("memories that `rlmem check` measured", len(names), 1)
    yield Verdict("memories that break their contract", len(broken), 0, at_most=True, note=", ".join(broken))


def measure(bench: Bench, numbers: Numbers) -> None:
    """Fill in the numbers of a benchmark."""
    for _ in bench.measure(numbers):
        pass


def scans(setting: Setting, numbers: Numbers) -> Verdicts:
    """Those of the engine that `auto` takes; half the speed of copying is what a kernel should reach."""
    shapes = ((2, 64, 8),) if setting.dry else ((16, 1024, 256), (64, 4096, 256), (1, 65536, 256))
    measure(ScanBench(rounds=2 if setting.dry else 7, budget=5, device=setting.device, shapes=shapes), numbers)
    best = {"cuda": "triton", "cpu": "native"}[setting.device.type]
    for row in numbers["scans"]:
        if row["engine"] == best:
            problem = f"{best} scan of {row['shape']}, {row['kind']}, {row['decay']}: share of the speed of copying"
            yield Verdict(problem, row["copy_share"], 0.5, note=row["note"])


def memories(setting: Setting, numbers: Numbers) -> Verdicts:
    """Forward and backward of memories, compared with cuDNN's GRU."""
    small: dict[str, Any] = {"models": ("ffm",), "lengths": (8,), "slots": 32, "hidden_size": 16, "rounds": 2}
    models = ("ffm", "gru", "lstm", "lru", "gpt", "shm", "s6", "mlstm")
    large: dict[str, Any] = {"models": models, "lengths": (128, 1024), "slots": 65536, "rounds": 5}
    measure(MemoryBench(device=setting.device, budget=4, **small if setting.dry else large), numbers)
    for name, model in numbers["models"].items():
        for cell in model.get("cells", []):
            seconds, peer = cell["seconds"], cell["peer_seconds"]
            problem = f"{name}, {cell['scheme']} of {cell['length']}: share of torch.nn.GRU's time"
            yield Verdict(problem, seconds and peer and seconds / peer, note=cell["note"])
        if "error" in model:
            yield Verdict(name, None, note=model["error"])


def rate(setting: Setting, *overrides: str) -> Numbers:
    """Environment steps per second of a run, learning included, once kernels are compiled and graphs recorded."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = (f"device={setting.device.type}", f"total_steps={FOREVER}", "evaluation.every=null")
        loop = training_loop([*overrides, *fixed, *setting.narrow], Path(folder))
        while not loop.updates:  # from a replay, none is due before an episode has ended
            loop.iterate()
        for _ in range(2):  # graphs are recorded
            loop.iterate()
        if setting.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(setting.device)
        wait(setting.device)
        steps, began = loop.collector.steps, perf_counter()
        while perf_counter() - began < (0.2 if setting.dry else 3.0):
            loop.iterate()
        wait(setting.device)
        numbers: Numbers = {"steps_per_second": (loop.collector.steps - steps) / (perf_counter() - began)}
        if setting.device.type == "cuda":
            numbers["peak_bytes"] = torch.cuda.max_memory_allocated(setting.device)
        log = Path(folder, "log.txt").read_text().splitlines()
    numbers["without_graph"] = [line.partition(f"{GRAPHS}: ")[2] for line in log if "without a graph" in line]
    return numbers


def rates(setting: Setting, runs: dict[str, tuple[str, ...]]) -> Numbers:
    """The rates of some runs with more and more environments, without and with graphs."""
    numbers: Numbers = {}
    for name, overrides in runs.items():
        for num_envs in (4,) if setting.dry else (64, 1024, 4096):
            for graphed, more in {"": (), GRAPHED: setting.graphs}.items():
                if graphed and not more:
                    continue
                case = f"{name}, {num_envs} environments{graphed}"
                try:
                    numbers[case] = rate(setting, *overrides, f"env.num_envs={num_envs}", *more)
                except Exception as error:
                    numbers[case] = {"error": one_line(error)}
    return numbers


def judge_rates(numbers: Numbers) -> Verdicts:
    """A graph that costs more than it spares would be of no use."""
    for name, case in numbers.items():
        note = case.get("error", "") or "; ".join(case.get("without_graph", ()))
        yield Verdict(name, case.get("steps_per_second"), unit="steps/s", note=note)
        if "steps_per_second" in case and (with_them := numbers.get(name + GRAPHED, {}).get("steps_per_second")):
            yield Verdict(f"{name}: what graphs gain", with_them / case["steps_per_second"], 1.0, unit="x")


def training(setting: Setting, numbers: Numbers) -> Verdicts:
    """PPO with FFM and GRU, with more and more environments, and sb3-contrib's PPO with 64."""
    numbers |= rates(setting, {"ppo ffm": ("memory=ffm", *PPO), "ppo gru": ("memory=gru", *PPO)})
    if not setting.dry and installed_version("sb3-contrib"):
        peer = recurrent_ppo(64, 128, 4, 8, [128, 128], shared=True, device=setting.device)
        peer.learn(1)  # a rollout and an update
        began = perf_counter()
        peer.learn(16_384, reset_num_timesteps=False)
        numbers["sb3-contrib, 64 environments"] = {"steps_per_second": 16_384 / (perf_counter() - began)}
    yield from judge_rates(numbers)
    ours, theirs = (numbers.get(f"{name}, 64 environments", {}) for name in ("ppo ffm", "sb3-contrib"))
    if "steps_per_second" in ours and theirs:
        ratio = ours["steps_per_second"] / theirs["steps_per_second"]
        yield Verdict("ppo ffm beside sb3-contrib's shared LSTM, 64 environments", ratio, 4.0, unit="x")


def replaying(setting: Setting, numbers: Numbers) -> Verdicts:
    """DQN with GRU, with more and more environments."""
    small = ("algo.learning_starts=200", "algo.random_steps=100", "algo.record_every=100")
    numbers |= rates(setting, {"dqn gru": ("memory=gru", *DQN, *REPLAYED, *(small if setting.dry else ()))})
    yield from judge_rates(numbers)


def published(setting: Setting, numbers: Numbers) -> Verdicts:
    """POPGym's published run of PPO with a GRU, estimated from its speed."""
    small = ("algo.rollout_slots=16", "algo.epochs=1") if setting.dry else ()
    numbers |= rate(setting, "algo=ppo_popgym", "memory=gru", "env=repeat_previous", *setting.graphs, *small)
    seconds, note = PUBLISHED / numbers["steps_per_second"], "estimated from some iterations"
    yield Verdict("POPGym's published run of 15 million steps", seconds, 60.0, True, "s", note)


PARTS: dict[str, Callable[[Setting, Numbers], Verdicts]] = {
    "tests": run_tests,
    "check": check_memories,
    "scans": scans,
    "memories": memories,
    "training": training,
    "replaying": replaying,
    "published": published,
}
"""Name -> a function that fills in the numbers of a part and judges them, in less than eight minutes on a GPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    numbers: Numbers = {}
    setting = Setting(choose_device("auto"), options.dry)
    verdicts = [verdict.as_json() for verdict in PARTS[options.part](setting, numbers)]
    options.file.write_text(json.dumps({"numbers": numbers, "verdicts": verdicts}))


if __name__ == "__main__":
    main()
