"""`rlmem bench train`: environment steps per second, learning included, beside sb3-contrib's RecurrentPPO."""

from __future__ import annotations

import os
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from rlmem.bench.output import unwritable, write
from rlmem.config.compose import load
from rlmem.errors import UserError, extra
from rlmem.loops.on_policy import OnPolicyLoop
from rlmem.record.progress import Progress
from rlmem.record.recorder import Recorder
from rlmem.run.assemble import assemble
from rlmem.run.make_loop import make_loop
from rlmem.system.hardware import processor

ENVS, SLOTS, EPOCHS, MINIBATCHES, WIDTH, HEADS = 16, 128, 4, 4, 256, 64
SETTING = (
    f"popgym RepeatPreviousEasy, {ENVS} environments, rollouts of {SLOTS}, {EPOCHS} epochs of {MINIBATCHES} "
    f"minibatches, memory {WIDTH}, heads {HEADS}-{HEADS}"
)
GOALS = {"rlmem lstm segment": ("sb3 lstm", 3.0), "rlmem ffm tape": ("sb3 shared lstm", 4.0)}
"""Ours, the peer it is measured against, and the ratio it must reach; sb3's padded sequences are our segments."""


class Ours:
    """rlmem's own training loop, record and all."""

    def __init__(self, memory: str, batching: str, scratch: Path, threads: int):
        self.threads = threads
        config = load(
            [
                f"memory={memory}",
                f"batching={batching}",
                f"env.num_envs={ENVS}",
                f"algo.rollout_slots={SLOTS}",
                f"algo.epochs={EPOCHS}",
                f"algo.num_minibatches={MINIBATCHES}",
                f"memory.hidden_size={WIDTH}",
                f"algo.head_sizes=[{HEADS},{HEADS}]",
                "total_steps=100000000",
                "device=cpu",
            ]
        )
        run_dir = scratch / f"{memory}-{batching}"
        run_dir.mkdir()
        quiet = Progress(config.values["total_steps"], run_dir / "log.txt", console=Console(quiet=True))
        recorder = Recorder(run_dir, quiet.say)
        self.loop = cast(OnPolicyLoop, make_loop(config, assemble(config), run_dir, recorder, quiet))
        self.flops = self._flops_of_an_update()

    def iterate(self) -> int:
        before = self.loop.collector.steps
        with threads(self.threads):
            self.loop.iterate()
        return self.loop.collector.steps - before

    def _flops_of_an_update(self) -> float:
        """Matrix-product operations of one update."""
        with threads(1):
            rollout, _ = self.loop.collector.collect(SLOTS, 2**62)
        # oneDNN's LSTM is one operation that the counter does not know; without it the products are counted.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about Intel GPUs, from the flag
            with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
                self.loop.algo.update(rollout, self.loop.batching, 0.0)
        return counter.get_total_flops()

    def forget_times(self) -> None:
        self.loop.learn_time = self.loop.elapsed = 0.0
        self.loop.collector.seconds.update(env=0.0, act=0.0)


class StableBaselines:
    """sb3-contrib's RecurrentPPO on the same game, with its own defaults where nothing is said."""

    def __init__(self, shared: bool):
        from popgym.envs import RepeatPreviousEasy
        from sb3_contrib import RecurrentPPO
        from stable_baselines3.common.vec_env import DummyVecEnv

        lstm = {"shared_lstm": True, "enable_critic_lstm": False} if shared else {}
        self.model = RecurrentPPO(
            "MlpLstmPolicy",
            DummyVecEnv([RepeatPreviousEasy] * ENVS),
            n_steps=SLOTS,
            batch_size=ENVS * SLOTS // MINIBATCHES,
            n_epochs=EPOCHS,
            policy_kwargs={
                "lstm_hidden_size": WIDTH,
                "net_arch": [HEADS, HEADS],
                **lstm,
            },
            device="cpu",
        )

    def iterate(self) -> int:
        self.model.learn(ENVS * SLOTS, reset_num_timesteps=False)
        return ENVS * SLOTS


def main(rounds: int = 5, learn_threads: int | None = None, json_path: Path | None = None) -> dict[str, Any]:
    """Measure round-robin, print the table, return (and write) the numbers.

    Every contestant is warmed up once, then runs one iteration of 2,048 slots per round; rates are medians.
    sb3-contrib uses all cores, its default; rlmem acts with one thread and learns with `learn_threads` (None: all
    cores). Raises UserError without sb3-contrib.
    """
    try:
        import sb3_contrib  # noqa: F401
    except ImportError as error:
        raise UserError(f"bench train: needs sb3-contrib as the peer; e.g. {extra('bench')}") from error
    if json_path is not None and (problems := unwritable(json_path)):
        raise UserError(*problems)
    learn_threads = learn_threads or torch.get_num_threads()
    with tempfile.TemporaryDirectory() as scratch:
        ours = {
            f"rlmem {memory} {batching}": Ours(memory, batching, Path(scratch), learn_threads)
            for memory in ("lstm", "gru", "ffm")
            for batching in ("segment", "tape")
        }
        peers = {"sb3 lstm": StableBaselines(False), "sb3 shared lstm": StableBaselines(True)}
        rates = measure({**peers, **ours}, rounds)
        peak = matmul_rate()
        result = {
            "setting": SETTING,
            "steps_per_second": rates,
            "ratios": {f"{name} / {peer}": rates[name] / rates[peer] for name, (peer, _) in GOALS.items()},
            "time_shares": {name: ours_.loop.shares() for name, ours_ in ours.items()},
            "matmul_share_while_learning": {name: matmul_share(ours_, rounds, peak) for name, ours_ in ours.items()},
            "matmul_gflops": peak / 1e9,
            "machine": machine() | {"learn_threads": learn_threads},
        }
    if json_path is not None:
        write(result, json_path)
    report(result)
    return result


def measure(contestants: dict[str, Any], rounds: int) -> dict[str, float]:
    """Median environment steps per second of each, taken in turns so that all see the same machine."""
    for contestant in contestants.values():
        contestant.iterate()
        if isinstance(contestant, Ours):
            contestant.forget_times()
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            began = perf_counter()
            steps = contestant.iterate()
            rates[name].append(steps / (perf_counter() - began))
    return {name: statistics.median(values) for name, values in rates.items()}


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def matmul_rate(size: int = 2048, seconds: float = 1.0) -> float:
    """Floating-point operations per second of a large float32 matrix product on all cores."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 * rate(lambda: torch.mm(a, b), seconds)


def rate(function: Callable[[], Any], seconds: float) -> float:
    """Best calls per second over repeated calls for at least `seconds`."""
    function()
    best, began = 0.0, perf_counter()
    while perf_counter() - began < seconds:
        start = perf_counter()
        function()
        best = max(best, 1 / (perf_counter() - start))
    return best


def matmul_share(ours: Ours, rounds: int, peak: float) -> float:
    """Fraction of the whole machine's matrix-product rate that learning reached."""
    return ours.flops * rounds / ours.loop.learn_time / peak


def machine() -> dict[str, Any]:
    packages = ("torch", "sb3-contrib", "popgym", "gymnasium", "numpy")
    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "versions": {package: version(package) for package in packages},
    }


def report(result: dict[str, Any]) -> None:
    table = Table(title=result["setting"], title_justify="left")
    for column in ("", "steps/s", "env", "act", "learn", "matmul rate reached"):
        table.add_column(column, justify="left" if not column else "right")
    for name, steps in result["steps_per_second"].items():
        shares = result["time_shares"].get(name, {})
        reached = result["matmul_share_while_learning"].get(name)
        cells = [f"{shares[part]:.0%}" if shares else "" for part in ("env", "act", "learn")]
        table.add_row(name, f"{steps:,.0f}", *cells, "" if reached is None else f"{reached:.0%}")
    console = Console()
    console.print(table)
    for name, (peer, goal) in GOALS.items():
        ratio = result["ratios"][f"{name} / {peer}"]
        verdict = "reached" if ratio >= goal else "missed"
        console.print(f"{name} / {peer}: {ratio:.1f}x (goal {goal:.0f}x: {verdict})")
