"""The parts of `make gpu`: what each measures, and what it should show.

    python benchmarks/gpu/parts.py PART FILE [--dry]

measures one part in a process of its own and writes its numbers and verdicts as JSON. `--dry` takes tiny sizes, on the
CPU if there is no GPU, to show that the part works.
"""

import argparse
import cProfile
import json
import os
import pstats
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from time import perf_counter, sleep
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
from rlmem.loops.base import Loop
from rlmem.record.recorder import read_jsonl
from rlmem.run.assemble import choose_device
from rlmem.sweep.mps import PIPES, shared_gpus
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

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that the device has, the fastest first."""
        return ("tf32", "float32") if self.device.type == "cuda" else ("float32",)


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
        files = [f"tests/test_{name}.py" for name in ("compile", "gpu", "precision", "scan", "triton", "waiting")]
        few = ["tests/test_gpu.py", "-k", "values and ffm"]
        chosen = few if setting.dry else [*files, "-n", str(min(12, cores())), "--dist", "worksteal"]
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


# POPGym's iterations


GAMES = {
    "gru, easy": ("memory=gru",),
    "ffm, medium": ("memory=ffm", "memory.hidden_size=128", "memory.trace_size=128", "env.level=medium"),
}


def games(setting: Setting) -> list[str]:
    return list(GAMES)[: 1 if setting.dry else None]


FILE: list[Path] = []
"""Where a part's numbers go, if it is run by `run.py`."""


def keep(found: Numbers) -> None:
    """Write down what was found so far: a part may be ended before it is done."""
    for file in FILE:
        aside = file.with_suffix(".aside")
        aside.write_text(json.dumps({"numbers": found, "verdicts": []}))
        aside.replace(file)


@contextmanager
def popgym_loop(setting: Setting, game: str, *more: str) -> Iterator[tuple[Loop, Path]]:
    """The loop of POPGym's published run of a game, in graphs where there are some, and its folder."""
    overrides = ["algo=ppo_popgym", "env=repeat_previous", *GAMES[game]]
    overrides += [f"total_steps={FOREVER}", "evaluation.every=null", f"device={setting.device.type}", *more]
    overrides += [GRAPHS] if setting.graphs else []
    if setting.dry:
        overrides += ["env.num_envs=4", "algo.rollout_slots=16", "algo.epochs=1", "memory.hidden_size=32"]
        overrides += ["encoder.hidden_size=8", *(["memory.trace_size=4"] if "ffm" in game else [])]
    with tempfile.TemporaryDirectory() as folder:
        yield training_loop(overrides, Path(folder)), Path(folder)


def iterations(setting: Setting) -> Numbers:
    """The first iteration of POPGym's published runs and two more, in every precision."""
    found: Numbers = {}
    for game, precision in product(games(setting), setting.precisions):
        try:
            found[f"{game}: {precision}"] = iteration(setting, game, f"precision={precision}")
        except Exception as error:
            found[f"{game}: {precision}"] = {"error": one_line(error)}
        keep(found)
    return found


def iteration(setting: Setting, game: str, *overrides: str) -> Numbers:
    with popgym_loop(setting, game, *overrides) as (loop, folder):
        each: list[dict[str, float]] = []
        for _ in range(3):
            wait(setting.device)
            before, began = {**loop.collector.seconds, "learn": loop.learn_time}, perf_counter()
            steps = loop.collector.steps
            loop.iterate()
            wait(setting.device)
            now = {**loop.collector.seconds, "learn": loop.learn_time}
            spent = {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}
            each.append({"seconds": perf_counter() - began, "steps": loop.collector.steps - steps, **spent})
        rows = [row for row in read_jsonl(folder / "metrics.jsonl") if "update" in row]
        log = (folder / "log.txt").read_text().splitlines()
        return {
            "first": each[0]["seconds"],
            "iterations": each,
            "seconds": min(it["seconds"] for it in each[1:]),
            "ratio_max_dev": max(row["ppo/ratio_max_dev"] for row in rows),
            "value_loss": [row["ppo/value_loss"] for row in rows],
            "log": [line for line in log if "without a graph" in line or "deviat" in line][:5],
        }


def judge_iterations(found: Numbers) -> Verdicts:
    for name, numbers in found.items():
        yield Verdict(f"{name}: an iteration", numbers.get("seconds"), unit="s", note=numbers.get("error", ""))


def rounding(setting: Setting) -> Numbers:
    """The largest deviation of PPO's ratios in two updates, by memory and precision."""
    found: Numbers = {}
    names = ("ffm",) if setting.dry else ("ffm", "gru", "lstm", "lru", "shm")
    sizes = ["memory.hidden_size=8", "encoder.hidden_size=8", "algo.rollout_slots=16"] if setting.dry else []
    for name, precision in product(names, setting.precisions):
        overrides = [*PPO, f"memory={name}", f"precision={precision}", "evaluation.every=null", *sizes]
        try:
            with tempfile.TemporaryDirectory() as folder:
                loop = training_loop([*overrides, f"device={setting.device.type}"], Path(folder))
                for _ in range(2):
                    loop.iterate()
                rows = [row for row in read_jsonl(Path(folder, "metrics.jsonl")) if "update" in row]
            found[f"{name} in {precision}"] = {"deviation": max(row["ppo/ratio_max_dev"] for row in rows)}
        except Exception as error:
            found[f"{name} in {precision}"] = {"error": one_line(error)}
        keep(found)
    return found


def judge_rounding(found: Numbers) -> Verdicts:
    for name, numbers in found.items():
        bound = 2.5e-3 if "tf32" in name else 1e-4
        what, note = f"{name}: ppo/ratio_max_dev", numbers.get("error", "")
        yield Verdict(what, numbers.get("deviation"), bound, True, note=note)


# Where the time of an iteration goes


def profiles(setting: Setting) -> Numbers:
    """Kernels, gaps between them, calls of the driver and Python's functions, of collecting and of learning."""
    found: Numbers = {}
    for game in games(setting):
        try:
            found[game] = profile_of(setting, game)
        except Exception as error:
            found[game] = {"error": one_line(error)}
        keep(found)
    return found


def profile_of(setting: Setting, game: str) -> Numbers:
    with popgym_loop(setting, game, "algo.epochs=4") as (loop, _):
        for _ in range(2):
            loop.iterate()
        found: Numbers = {}
        for how in "device", "python":
            rollouts = []

            def collect(rollouts: list[Any] = rollouts) -> None:
                rollouts.append(loop.collect()[0])

            def learn(rollouts: list[Any] = rollouts) -> None:
                loop.algo.update(rollouts[0], loop.batching, 0.0)

            for name, run in (("collect", collect), ("learn", learn)):
                found[f"{name}, {how}"] = (on_device if how == "device" else in_python)(setting, run)
        return found


def on_device(setting: Setting, run: Callable[[], None]) -> Numbers:
    """Kernels of the device by their time, the gaps between them, and calls of the driver."""
    there = setting.device.type == "cuda"
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if there else activity.CPU]) as profiler:
        wait(setting.device)
        began = perf_counter()
        run()
        wait(setting.device)
        seconds = perf_counter() - began
    events = profiler.profiler.kineto_results.events()
    of_device = torch.autograd.DeviceType.CUDA if there else torch.autograd.DeviceType.CPU
    work = sorted((e.start_ns(), e.duration_ns(), e.name()) for e in events if e.device_type() == of_device)
    calls = [(e.duration_ns(), e.name()) for e in events if e.device_type() != of_device]
    busy, end, gaps = 0, None, []
    for start, duration, name in work:
        if end is not None and start > end:
            gaps.append((start - end, name))
        busy += max(0, start + duration - max(start, end or start))
        end = max(end or 0, start + duration)
    sizes = {"1": 1e3, "5": 5e3, "20": 2e4, "100": 1e5, "1000": 1e6}
    return {
        "seconds": seconds,
        "busy_seconds": busy / 1e9,
        "kernels": len(work),
        "top": top([(duration, name) for _, duration, name in work]),
        "gaps_longer_than_us": {
            size: {"number": sum(g >= ns for g, _ in gaps), "seconds": sum(g for g, _ in gaps if g >= ns) / 1e9}
            for size, ns in sizes.items()
        },
        "after_gaps": top(gaps),
        "calls": top(calls),
    }


def top(timed: list[tuple[int, str]], most: int = 12) -> list[Numbers]:
    """The names with the most time, of pairs of nanoseconds and a name."""
    total: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for ns, name in timed:
        total[name[:120]] += ns
        number[name[:120]] += 1
    return [{"name": name, "number": number[name], "us": ns / 1e3} for name, ns in total.most_common(most)]


def in_python(setting: Setting, run: Callable[[], None]) -> Numbers:
    """The functions in which the host spent most of its time, those that they call apart."""
    profiler, began = cProfile.Profile(), perf_counter()
    profiler.runcall(run)
    wait(setting.device)
    seconds = perf_counter() - began
    rows = []
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (file, line, name), (_, number, own, whole, _) in stats.items():
        place = f"{'/'.join(Path(file).parts[-3:])}:{line} {name}"[-100:]
        rows.append({"name": place, "number": number, "us": 1e6 * own, "whole_us": 1e6 * whole})
    return {"seconds": seconds, "top": sorted(rows, key=lambda row: -row["us"])[:12]}


def judge_profiles(found: Numbers) -> Verdicts:
    for game, numbers in found.items():
        for name in ("collect, device", "learn, device"):
            part = numbers.get(name, {})
            share = part.get("busy_seconds") and part["busy_seconds"] / part["seconds"]
            yield Verdict(f"{game}: {name}: share of time that it is busy", share, note=numbers.get("error", ""))


def wide(setting: Setting) -> Numbers:
    """Runs with many environments."""
    found: Numbers = {}
    cases = (("ffm", 4),) if setting.dry else (("ffm", 4096), ("ffm", 1024), ("gru", 1024))
    more = [GRAPHS] if setting.graphs else []
    for (name, num_envs), precision in product(cases, setting.precisions):
        if name == "gru" and precision == "float32":
            continue
        case = f"ppo {name}, {num_envs} environments, {precision}"
        try:
            overrides = (f"memory={name}", *PPO, f"env.num_envs={num_envs}", f"precision={precision}", *more)
            found[case] = rate(setting, *overrides)
        except Exception as error:
            found[case] = {"error": one_line(error)}
        keep(found)
    return found


# Runs side by side


def side_by_side(setting: Setting) -> Numbers:
    """Runs of one game next to each other on one GPU, with and without CUDA MPS, each in a process of its own."""
    found: Numbers = {}
    for number, mps in ((1, False), (2, True)) if setting.dry else ((8, True), (8, False), (1, False), (4, True)):
        case = f"{number} at once, {'with' if mps else 'without'} MPS"
        try:
            found[case] = at_once(setting, number, mps)
        except Exception as error:
            found[case] = {"error": one_line(error)}
        keep(found)
    return found


def at_once(setting: Setting, number: int, mps: bool) -> Numbers:
    paths = [str(ROOT), str(Path(__file__).parent)]
    program = f"import sys; sys.path[:0] = {paths!r}; import parts; parts.one_of_many()"
    with tempfile.TemporaryDirectory() as name, shared_gpus(number if mps else 1, lambda line: None):
        folder, shares, variables = Path(name), PIPES in os.environ, os.environ | {"OMP_NUM_THREADS": "1"}
        command, arguments = [sys.executable, "-c", program], [name, "dry" if setting.dry else "", setting.device.type]
        logs = [open(folder / f"{i}.err", "w") for i in range(number)]
        runs = [subprocess.Popen([*command, str(i), *arguments], env=variables, stderr=logs[i]) for i in range(number)]
        try:
            until = perf_counter() + 60
            while len(list(folder.glob("*.ready"))) < number and perf_counter() < until:
                if any(run.poll() for run in runs):
                    break
                sleep(0.05)
            (folder / "go").touch()
            for run in runs:
                run.wait(timeout=60)
        finally:
            for run in runs:
                run.kill()
                run.wait()
        each = [json.loads(file.read_text()) for file in folder.glob("*.json")]
        errors = [line for log in logs for line in Path(log.name).read_text().splitlines()[-1:]]
    total = sum(run["steps"] / run["seconds"] for run in each)
    return {
        "steps_per_second": total if len(each) == number else None,
        "runs": each,
        "mps": shares,
        "errors": errors[:8],
    }


def one_of_many() -> None:
    """A run that waits for the others after its second iteration.

    Arguments of the process: its number, a folder, "dry" or "", and the device.
    """
    number, name, dry, device = sys.argv[1:]
    torch.set_num_threads(1)
    setting, folder = Setting(torch.device(device), bool(dry)), Path(name)
    with popgym_loop(setting, "ffm, medium", f"precision={setting.precisions[0]}") as (loop, _):
        for _ in range(2):
            loop.iterate()
        wait(setting.device)
        (folder / f"{number}.ready").touch()
        while not (folder / "go").exists():
            sleep(0.01)
        steps, began = loop.collector.steps, perf_counter()
        while perf_counter() - began < (0.2 if dry else 8):
            loop.iterate()
        wait(setting.device)
        done = {"steps": loop.collector.steps - steps, "seconds": perf_counter() - began}
    (folder / f"{number}.json").write_text(json.dumps(done))


def judge_side_by_side(found: Numbers) -> Verdicts:
    for name, numbers in found.items():
        note = numbers.get("error") or ("" if numbers["mps"] else "MPS was off")
        yield Verdict(f"ffm, medium, {name}", numbers.get("steps_per_second"), unit="steps/s", note=note)


PARTS: dict[str, tuple[Callable[[Setting], Numbers], Callable[[Numbers], Verdicts]]] = {
    "tests": (run_tests, judge_tests),
    "check": (check_memories, judge_check),
    "rounding": (rounding, judge_rounding),
    "limits": (limits, judge_limits),
    "scans": (scans, judge_scans),
    "memories": (memories, judge_memories),
    "training": (training, judge_training),
    "replaying": (replaying, judge_rates),
    "updates": (updates, judge_updates),
    "solving": (solving, judge_solving),
    "published": (published, judge_published),
    "iterations": (iterations, judge_iterations),
    "profiles": (profiles, judge_profiles),
    "wide": (wide, judge_rates),
    "side_by_side": (side_by_side, judge_side_by_side),
}
"""Each takes less than eight minutes on a GPU of a data centre."""
UNTIMED = ("tests", "check", "rounding")
"""Parts that time nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure, judge = PARTS[options.part]
    FILE.append(options.file)
    found = measure(Setting(choose_device("auto"), options.dry))
    verdicts = [as_json(verdict) for verdict in judge(found)]
    options.file.write_text(json.dumps({"numbers": found, "verdicts": verdicts}))


if __name__ == "__main__":
    main()
