"""Rates and memory while environments, rollouts and rows grow."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.memory import MemoryBench
from rlmem.bench.figure3 import Rows
from rlmem.bench.skeleton import Bench, Numbers, Table, check_names, progress, quotient
from rlmem.bench.timing import CPU, Run, Times, peak_bytes
from rlmem.bench.train import training_loop
from rlmem.config.catalog import catalog
from rlmem.errors import UserError, one_line

Case = tuple[str, str, int, int]
"""What is measured, the option of conf/memory, rows, and the slots of a row."""
TRAINING, UNROLL = "training", "unroll"
FEW_ENVS = 16
EPISODE = 100
"""Slots of an episode in the row that is unrolled."""


@dataclass
class GrowthBench(Bench):
    """How the rate and memory of PPO change with its environments and slots, and those of an unroll with its length.

    Training is an iteration of `algo=ppo env=repeat_previous`, acting, learning and recording; an unroll is forward and
    backward of a memory of 256 over one row of episodes of 100 slots. Memory is what is added at the peak.

    models: options of conf/memory
    envs: numbers of environments, with rollouts of the fewest of `slots`
    slots: of a rollout, with 16 environments
    lengths: slots of the row that is unrolled
    """

    name = "growth"
    refused = frozenset({"device"})
    budget: float = 60.0
    models: Sequence[str] = ("ffm", "gru")
    envs: Sequence[int] = (16, 64, 256, 1024, 4096)
    slots: Sequence[int] = (128, 512, 2048, 8192)
    lengths: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000)

    def measure(self, result: Numbers) -> Iterator[None]:
        if odd := [length for length in self.lengths if length % EPISODE]:
            raise UserError(
                f"--lengths {odd[0]}: expected whole episodes of {EPISODE} slots; e.g. --lengths 1000,10000"
            )
        check_names("", "memory", self.models, catalog()["memory"])
        sizes = [(n, min(self.slots)) for n in self.envs] + [(FEW_ENVS, n) for n in self.slots]
        cases = [(TRAINING, model, *size) for model in self.models for size in dict.fromkeys(sizes)]
        cases += [(UNROLL, model, 1, length) for model in self.models for length in self.lengths]
        result["cases"] = []
        for case in progress(cases, "sizes"):
            result["cases"].append(self.numbers(case))
            yield

    def numbers(self, case: Case) -> Numbers:
        """Slots a second and bytes a slot, or a note of what failed."""
        what, model, rows, slots = case
        times, peak = Times(), None
        with tempfile.TemporaryDirectory() as folder:
            try:
                times = self.turns({what: small_and_whole(case, folder)[1]})[what]
                peak = peak_bytes(small_and_whole, (case, folder), CPU)
            except Exception as error:
                times.note = one_line(error)
        found = {
            "slots_per_second": quotient(rows * slots, times.median),
            "bytes_per_slot": quotient(peak, rows * slots),
        }
        return {"what": what, "memory": model, "rows": rows, "slots": slots, **found, "note": times.note}

    def tables(self, result: Numbers) -> Iterator[Table]:
        for what, title in (TRAINING, "an iteration of PPO"), (UNROLL, "forward and backward of one row"):
            keys = ("memory", "rows", "slots", "slots_per_second", "bytes_per_slot")
            rows = [[case[key] for key in keys] for case in result["cases"] if case["what"] == what]
            numbers = {"slots a second": "slots a second", "bytes a slot": "bytes a slot"}
            yield Table(title, ["memory", "rows", "slots of a row"], numbers, rows)

    def notes(self, result: Numbers) -> Iterator[str]:
        for case in result["cases"]:
            if case["note"]:
                yield f"{case['what']}, {case['memory']}, {case['rows']:,} x {case['slots']:,}: {case['note']}"


def small_and_whole(case: Case, folder: str) -> tuple[Run, Run]:
    """A small version of what is measured, called before memory is, and the whole.

    folder: an empty one for runs
    """
    what, model, rows, slots = case
    if what == UNROLL:
        bench = MemoryBench(models=[model])
        return bench.small_and_whole(bench.node(model), Rows("tape", slots // EPISODE, EPISODE))
    run = [
        f"memory={model}",
        "algo=ppo",
        "env=repeat_previous",
        "evaluation.every=null",
        "total_steps=1e9",
        "device=cpu",
    ]

    def iterate(num_envs: int, slots: int) -> Run:
        where = Path(tempfile.mkdtemp(dir=folder))
        return training_loop([*run, f"env.num_envs={num_envs}", f"algo.rollout_slots={slots}"], where).iterate

    return lambda: iterate(8, 16)(), iterate(rows, slots)
