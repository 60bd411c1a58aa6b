"""The parts of `make gpu`: what each measures, and what it should show.

    python benchmarks/gpu/parts.py PART FILE [--dry]

measures one part in a process of its own and writes its numbers and verdicts as JSON. `--dry` takes tiny sizes, on the
CPU if there is no GPU, to show that the part works.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any
from xml.etree import ElementTree

import torch

from benchmarks.memory import MemoryBench
from benchmarks.solve import Peer, SolveBench
from benchmarks.update import UpdateBench
from rlmem.bench.scan import ScanBench
from rlmem.bench.skeleton import Bench, Numbers
from rlmem.bench.timing import Stopwatch, wait
from rlmem.bench.train import training_loop
from rlmem.config.catalog import catalog
from rlmem.errors import one_line
from rlmem.run.assemble import choose_device
from rlmem.system.hardware import cores, installed_version

ROOT = Path(__file__).parents[2]
FOREVER = 10**9  # environment steps


@dataclass(frozen=True)
class Setting:
    """Where and how large: `dry` for sizes that take seconds on a CPU."""

    device: torch.device
    dry: bool

    @property
    def seconds(self) -> float:
        """How long a rate is measured."""
        return 0.2 if self.dry else 3.0

    @property
    def graphs(self) -> bool:
        """Whether `compile=graphs` is measured: it is refused without a GPU."""
        return self.device.type == "cuda"


@dataclass(frozen=True)
class Verdict:
    """A number, and the goal that it should reach, if there is one. A number that could not be measured is a failure.

    value: the number; None if it could not be measured
    goal: what it should be at least, or at most; without a goal the number is only reported
    at_most: whether the number should be at most the goal
    unit: of the number
    note: why it could not be measured, or what else is to be known
    """

    what: str
    value: float | None
    goal: float | None = None
    at_most: bool = False
    unit: str = ""
    note: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the number was measured and reached its goal; None if it has none."""
        if self.value is None:
            return False
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def as_json(verdict: Verdict) -> Numbers:
    return asdict(verdict) | {"held": verdict.held}


Verdicts = Iterator[Verdict]


# Correctness


def run_tests(setting: Setting) -> Numbers:
    """The tests marked gpu. A dry run takes one of them: they all belong to `make test`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "tests.xml")
        files = [f"tests/test_{name}.py" for name in ("compile", "gpu", "scan", "triton", "waiting")]
        few = ["tests/test_gpu.py", "-k", "values and ffm"]
        chosen = few if setting.dry else [*files, "-n", str(min(8, cores())), "--dist", "worksteal"]
        options = ["-m", "gpu", "-p", "no:cacheprovider", f"--junitxml={report}", *chosen]
        done = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, text=True)
        if done.returncode not in (0, 1) or not report.exists():  # 1: some failed
            raise RuntimeError(f"pytest ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = {
        f"{case.get('classname')}.{case.get('name')}": str(bad.get("message"))[:300]
        for case in cases
        for bad in case
        if bad.tag in ("failure", "error")
    }
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - skipped - len(failed), "skipped": skipped, "failed": failed}


def judge_tests(found: Numbers) -> Verdicts:
    yield Verdict("tests marked gpu that passed", found["passed"], 1, note=f"{found['skipped']} skipped")
    yield Verdict(
        "tests marked gpu that failed", len(found["failed"]), 0, at_most=True, note=", ".join(found["failed"])
    )


CHECKING = 420.0
"""Seconds for all memories; those that are not done by then count as broken."""


def check_memories(setting: Setting) -> Numbers:
    """`rlmem check` of every memory: the properties that do not hold, by memory."""
    names, end = ["mlp"] if setting.dry else catalog()["memory"], perf_counter() + CHECKING

    def check(name: str) -> dict[str, str]:
        command = [sys.executable, "-m", "rlmem", "check", f"memory={name}", f"device={setting.device.type}", "--json"]
        left = end - perf_counter()
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=max(left, 0.1))
            found = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return {"check": "not done in time"}
        except json.JSONDecodeError:
            return {"check": done.stderr.strip()[-500:]}
        broken = [it for it in found["properties"] if not it["passed"] and it["published"] is None]
        return {it["name"]: it["detail"] for it in broken}

    with ThreadPoolExecutor(cores()) as pool:
        broken = dict(zip(names, pool.map(check, names), strict=True))
    return {"memories": len(names), "broken": {name: what for name, what in broken.items() if what}}


def judge_check(found: Numbers) -> Verdicts:
    yield Verdict("memories that `rlmem check` measured", found["memories"], 1)
    broken = found["broken"]
    what = "memories that break their contract"
    yield Verdict(what, len(broken), 0, at_most=True, note=", ".join(broken))


# Kernels


def measured(bench: Bench) -> Numbers:
    """The numbers of a benchmark."""
    found: Numbers = {}
    for _ in bench.measure(found):
        pass
    return found


def limits(setting: Setting) -> Numbers:
    """The machine: bytes per second of a copy, read and written, and operations per second of matrix products."""
    n, size = (2**20, 256) if setting.dry else (2**30, 8192)
    watch, device = Stopwatch(device=setting.device), setting.device
    pair = torch.ones(2, n, device=device)
    found: Numbers = {
        "copy_bytes_per_second": pair.nbytes / fastest(watch, lambda: pair[0].copy_(pair[1])),
        "products": {},
    }
    for name, dtype, tf32 in (
        ("float32", torch.float32, False), ("tf32", torch.float32, True), ("bfloat16", torch.bfloat16, False)
    ):  # fmt: skip
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a = torch.randn(size, size, device=device).to(dtype)
        found["products"][name] = 2 * size**3 / fastest(watch, lambda a=a: a @ a)
    torch.backends.cuda.matmul.allow_tf32 = False
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        found |= {"memory_bytes": about.total_memory, "multiprocessors": about.multi_processor_count}
        if program := shutil.which("nvidia-smi"):
            query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
            found["driver"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    return found


def fastest(watch: Stopwatch, run: Callable[[], object]) -> float:
    """The seconds of the fastest of ten calls, after three to warm up."""
    return min([watch.seconds(run) for _ in range(13)][3:])


def judge_limits(found: Numbers) -> Verdicts:
    yield Verdict("a copy, read and written", found["copy_bytes_per_second"] / 1e9, unit="GB/s")
    for name, rate in found["products"].items():
        yield Verdict(f"a large product in {name}", rate / 1e12, unit="TFLOP/s")


def scans(setting: Setting) -> Numbers:
    shapes = ((2, 64, 8),) if setting.dry else ((16, 1024, 256), (64, 4096, 256), (1, 65536, 256))
    bench = ScanBench(rounds=2 if setting.dry else 7, budget=5, device=setting.device, shapes=shapes)
    return {"device": setting.device.type, **measured(bench)}


def judge_scans(found: Numbers) -> Verdicts:
    """Those of the engine that `auto` takes; half the speed of copying is what a kernel should reach."""
    best = {"cuda": "triton", "cpu": "native"}[found["device"]]
    for row in found["scans"]:
        if row["engine"] == best:
            what = f"{best} scan of {row['shape']}, {row['kind']}, {row['decay']}: share of the speed of copying"
            yield Verdict(what, row["copy_share"], 0.5, note=row["note"])


def memories(setting: Setting) -> Numbers:
    small: dict[str, Any] = {"models": ("ffm",), "lengths": (8,), "slots": 32, "hidden_size": 16, "rounds": 2}
    models = ("ffm", "gru", "lstm", "lru", "gpt", "shm", "s6", "mlstm")
    large: dict[str, Any] = {"models": models, "lengths": (128, 1024), "slots": 65536, "rounds": 5}
    return measured(MemoryBench(device=setting.device, budget=4, **small if setting.dry else large))


def judge_memories(found: Numbers) -> Verdicts:
    for name, model in found["models"].items():
        for cell in model.get("cells", []):
            seconds, peer = cell["seconds"], cell["peer_seconds"]
            what = f"{name}, {cell['scheme']} of {cell['length']}: share of torch.nn.GRU's time"
            yield Verdict(what, seconds and peer and seconds / peer, note=cell["note"])
        if "error" in model:
            yield Verdict(name, None, note=model["error"])


# Training


def rate(setting: Setting, *overrides: str) -> Numbers:
    """Environment steps per second of a run, learning included, once kernels are compiled and graphs recorded."""
    sizes = ["memory.hidden_size=8", "encoder.hidden_size=8"] if setting.dry else []
    with tempfile.TemporaryDirectory() as folder:
        fixed = [f"device={setting.device.type}", f"total_steps={FOREVER}", "evaluation.every=null"]
        loop = training_loop([*overrides, *fixed, *sizes], Path(folder))
        while not loop.updates:  # from a replay, none is due before an episode has ended
            loop.iterate()
        for _ in range(2):  # graphs are recorded
            loop.iterate()
        if setting.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(setting.device)
        wait(setting.device)
        spent = lambda: {part: share * loop.elapsed for part, share in loop.shares().items()}  # noqa: E731
        steps, before, began = loop.collector.steps, spent(), perf_counter()
        while perf_counter() - began < setting.seconds:
            loop.iterate()
        wait(setting.device)
        seconds = perf_counter() - began
        found: Numbers = {"steps_per_second": (loop.collector.steps - steps) / seconds}
        if setting.device.type == "cuda":
            found["peak_bytes"] = torch.cuda.max_memory_allocated(setting.device)
        log = Path(folder, "log.txt").read_text().splitlines()
        found["without_graph"] = [line.partition("compile=graphs: ")[2] for line in log if "without a graph" in line]
        return found | {"shares": {part: (now - before[part]) / seconds for part, now in spent().items()}}


PPO, DQN = ("algo=ppo", "env=repeat_previous"), ("algo=dqn", "env=repeat_first", "batching=tape")
REPLAYED = ("algo.update_ratio=0.02", "algo.batch_size=1000", "algo.learning_starts=20000", "algo.record_every=20000")
GRAPHS, GRAPHED = "compile=graphs", ", in graphs"


def rates(setting: Setting, cases: dict[str, tuple[str, ...]]) -> Numbers:
    """The rates of some runs with more and more environments, without and with graphs."""
    found: Numbers = {}
    for name, overrides in cases.items():
        for num_envs in (4,) if setting.dry else (64, 1024, 4096):
            for how, more in (("", ()), (GRAPHED, (GRAPHS,))):
                if more and not setting.graphs:
                    continue
                case = f"{name}, {num_envs} environments{how}"
                try:
                    found[case] = rate(setting, *overrides, f"env.num_envs={num_envs}", *more)
                except Exception as error:
                    found[case] = {"error": one_line(error)}
    return found


def training(setting: Setting) -> Numbers:
    """PPO with FFM and GRU, with more and more environments, and sb3-contrib's PPO with 64."""
    found = rates(setting, {"ppo ffm": ("memory=ffm", *PPO), "ppo gru": ("memory=gru", *PPO)})
    if not setting.dry and installed_version("sb3-contrib"):
        peer = Peer(SolveBench(device=setting.device), seed=0)
        peer.learn(1)  # a rollout and an update
        before, began = peer.steps, perf_counter()
        peer.learn(16_384)
        found["sb3-contrib, 64 environments"] = {"steps_per_second": (peer.steps - before) / (perf_counter() - began)}
    return found


def judge_training(found: Numbers) -> Verdicts:
    yield from judge_rates(found)
    ours, peer = (found.get(f"{name}, 64 environments", {}) for name in ("ppo ffm", "sb3-contrib"))
    if "steps_per_second" in ours and peer:
        ratio = ours["steps_per_second"] / peer["steps_per_second"]
        yield Verdict("ppo ffm beside sb3-contrib's shared LSTM, 64 environments", ratio, 4.0, unit="x")


def judge_rates(found: Numbers) -> Verdicts:
    """A graph that costs more than it spares would be of no use."""
    for name, numbers in found.items():
        note = numbers.get("error", "") or "; ".join(numbers.get("without_graph", ()))
        yield Verdict(name, numbers.get("steps_per_second"), unit="steps/s", note=note)
        if "steps_per_second" in numbers and (with_them := found.get(name + GRAPHED, {}).get("steps_per_second")):
            yield Verdict(f"{name}: what graphs gain", with_them / numbers["steps_per_second"], 1.0, unit="x")


def replaying(setting: Setting) -> Numbers:
    """DQN with GRU, with more and more environments."""
    small = ("algo.learning_starts=200", "algo.random_steps=100", "algo.record_every=100")
    return rates(setting, {"dqn gru": ("memory=gru", *DQN, *REPLAYED, *(small if setting.dry else ()))})


def updates(setting: Setting) -> Numbers:
    small: dict[str, Any] = {"models": ("gru",), "lengths": (10,), "hidden_size": 8, "transitions": 400, "num_envs": 2}
    small |= {"rounds": 1}
    large: dict[str, Any] = {"models": ("gru", "lstm", "ffm"), "lengths": (50,), "rounds": 5}
    return measured(UpdateBench(device=setting.device, budget=8, **small if setting.dry else large))


def judge_updates(found: Numbers) -> Verdicts:
    for name, rows in found["models"].items():
        for row in rows:
            rate = row["seconds"] and 1 / row["seconds"]
            yield Verdict(f"sac {name}, {row['layout']}", rate, unit="updates/s", note=row["note"])


def solving(setting: Setting) -> Numbers:
    small: dict[str, Any] = {"models": ("gru",), "most_steps": 8192, "every": 8192}
    large: dict[str, Any] = {"models": ("gru", "lstm"), "most_steps": 1_000_000}
    sizes = ("memory.hidden_size=8", "encoder.hidden_size=8") if setting.dry else ()
    how = (*sizes, *([GRAPHS] if setting.graphs else []))
    choice = small if setting.dry else large
    return measured(SolveBench(device=setting.device, rounds=1, threads=1, peer=False, overrides=how, **choice))


def judge_solving(found: Numbers) -> Verdicts:
    for name, runs in found["runs"].items():
        for run in runs:
            end = "until 0.9 on repeat_previous" if run["solved"] else f"and not solved after {run['steps']:,} steps"
            yield Verdict(f"ppo {name}: seconds {end}", run["seconds"], unit="s")


PUBLISHED, PATIENCE = 15_000_000, 30.0


def published(setting: Setting) -> Numbers:
    """POPGym's published run of PPO with a GRU, or as much of it as `PATIENCE` seconds allow."""
    total, patience = (4096, 60.0) if setting.dry else (PUBLISHED, PATIENCE)
    overrides = [
        "algo=ppo_popgym",
        "memory=gru",
        "env=repeat_previous",
        f"total_steps={total}",
        "evaluation.every=null",
    ]
    overrides += [GRAPHS] if setting.graphs else []
    if setting.dry:
        overrides += ["algo.rollout_slots=16", "algo.epochs=1", "memory.hidden_size=8", "encoder.hidden_size=8"]
    with tempfile.TemporaryDirectory() as folder:
        loop = training_loop([*overrides, f"device={setting.device.type}"], Path(folder))
        began = perf_counter()
        loop.iterate()  # kernels are compiled, and graphs recorded
        wait(setting.device)
        first, begun = loop.collector.steps, perf_counter()
        while loop.collector.steps < total and (loop.collector.steps == first or perf_counter() - begun < patience):
            loop.iterate()
        wait(setting.device)
        steps, end = loop.collector.steps, perf_counter()
        recent = sum(loop.recent) / max(1, len(loop.recent))
    left = max(total - steps, 0) * (end - begun) / max(steps - first, 1)
    whole = end - began + left
    return {"steps": steps, "complete": steps >= total, "whole_seconds": whole, "recent_return": recent}


def judge_published(found: Numbers) -> Verdicts:
    note = "" if found["complete"] else f"estimated from {found['steps']:,} steps"
    yield Verdict("POPGym's published run of 15 million steps", found["whole_seconds"], 60.0, True, "s", note)


PARTS: dict[str, tuple[Callable[[Setting], Numbers], Callable[[Numbers], Verdicts]]] = {
    "tests": (run_tests, judge_tests),
    "check": (check_memories, judge_check),
    "limits": (limits, judge_limits),
    "scans": (scans, judge_scans),
    "memories": (memories, judge_memories),
    "training": (training, judge_training),
    "replaying": (replaying, judge_rates),
    "updates": (updates, judge_updates),
    "solving": (solving, judge_solving),
    "published": (published, judge_published),
}
"""Each takes less than eight minutes on a GPU of a data centre."""
UNTIMED = ("tests", "check")
"""Parts that time nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure, judge = PARTS[options.part]
    found = measure(Setting(choose_device("auto"), options.dry))
    verdicts = [as_json(verdict) for verdict in judge(found)]
    options.file.write_text(json.dumps({"numbers": found, "verdicts": verdicts}))


if __name__ == "__main__":
    main()
