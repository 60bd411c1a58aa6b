"""Rates and memory of PPO while its environments and rollouts grow."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlmem.bench.skeleton import Bench, Numbers, Table, check_names, progress, quotient
from rlmem.bench.timing import CPU, Run, Times, peak_bytes
from rlmem.bench.train import training_loop
from rlmem.config.catalog import catalog
from rlmem.errors import one_line

FEW_ENVS = 16
KEYS = ("memory", "rows", "slots", "slots_per_second", "bytes_per_slot")


@dataclass
class GrowthBench(Bench):
    """How the rate and memory of PPO change with its environments and slots.

    A case is an iteration of `algo=ppo env=repeat_previous`, acting, learning and recording. Memory is what is added at
    the peak.

    models: options of conf/memory
    envs: numbers of environments, with rollouts of the fewest of `slots`
    slots: of a rollout, with 16 environments
    """

    name = "growth"
    refused = frozenset({"device"})
    budget: float = 60.0
    models: Sequence[str] = ("ffm", "gru")
    envs: Sequence[int] = (16, 64, 256, 1024, 4096)
    slots: Sequence[int] = (128, 512, 2048, 8192)

    def measure(self, result: Numbers) -> Iterator[None]:
        check_names("", "memory", self.models, catalog()["memory"])
        sizes = [(n, min(self.slots)) for n in self.envs] + [(FEW_ENVS, n) for n in self.slots]
        result["cases"] = []
        for model, size in progress([(model, size) for model in self.models for size in dict.fromkeys(sizes)], "sizes"):
            result["cases"].append(self.numbers(model, *size))
            yield

    def numbers(self, model: str, envs: int, slots: int) -> Numbers:
        """Slots a second and bytes a slot, or a note of what failed."""
        times, peak = Times(), None
        with tempfile.TemporaryDirectory() as folder:
            case = (model, envs, slots, folder)
            try:
                times = self.turns({"": small_and_whole(*case)[1]})[""]
                peak = peak_bytes(small_and_whole, case, CPU)
            except Exception as error:
                times.note = one_line(error)
        count = envs * slots
        rates = {"slots_per_second": quotient(count, times.median), "bytes_per_slot": quotient(peak, count)}
        return {"memory": model, "rows": envs, "slots": slots, **rates, "note": times.note}

    def tables(self, result: Numbers) -> list[Table]:
        rows = [[case[key] for key in KEYS] for case in result["cases"]]
        numbers = {"slots a second": "slots a second", "bytes a slot": "bytes a slot"}
        return [Table("an iteration of PPO", ["memory", "environments", "slots"], numbers, rows)]

    def notes(self, result: Numbers) -> list[str]:
        cases = [case for case in result["cases"] if case["note"]]
        return [f"{case['memory']}, {case['rows']:,} x {case['slots']:,}: {case['note']}" for case in cases]


def small_and_whole(model: str, envs: int, slots: int, folder: str) -> tuple[Run, Run]:
    """A small iteration, called before memory is measured, and the whole.

    folder: an empty one for runs
    """
    run = f"memory={model} algo=ppo env=repeat_previous evaluation.every=null total_steps=1e9 device=cpu".split()

    def iterate(num_envs: int, slots: int) -> Run:
        run_dir = Path(tempfile.mkdtemp(dir=folder))
        return training_loop([*run, f"env.num_envs={num_envs}", f"algo.rollout_slots={slots}"], run_dir).iterate

    return lambda: iterate(8, 16)(), iterate(envs, slots)
