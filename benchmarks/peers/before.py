"""Processor time of training beside that of an earlier commit, in turns in one process.

The commit is checked out into a temporary work tree. Both packages are loaded side by side, each under
its own `sys.modules`, and take turns: an iteration of the loop each, acting, learning and recording included. Ratios
are medians over rounds of the earlier commit's time by this one's, so above 1 is faster, then their spread, and
those of acting and learning alone. `--commit HEAD --now algo.epochs=2` sets options of this one's runs alone.
"""

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import process_time
from types import ModuleType
from typing import Any

from rlmem.core.errors import UserError
from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, check_names

ROOT = Path(__file__).parents[2]
OURS = ("rlmem", "rlmem_envs")
PPO = ["algo=ppo", "env=repeat_previous", "evaluation.every=null"]
SAC = ["algo=sac", "env=position_only_pendulum", "env.level=easy", "memory.hidden_size=128", "env.num_envs=8"]
SAC += ["algo.random_steps=1000", "algo.learning_starts=1000", "algo.update_ratio=0.03125", "algo.record_every=512"]
SAC += ["evaluation.every=null"]
DQN = ["algo=dqn", "env=repeat_previous", "memory.hidden_size=128", "env.num_envs=8", "algo.random_steps=1000"]
DQN += ["algo.learning_starts=1000", "algo.update_ratio=0.03125", "algo.record_every=512", "evaluation.every=null"]
POPGYM = ["algo=ppo_popgym", "env=repeat_previous", "evaluation.every=null", "algo.epochs=2"]
"""Two of thirty epochs, so that a turn takes half a minute."""
CASES: dict[str, list[str]] = {
    "ffm": ["memory=ffm", *PPO],
    "lstm": ["memory=lstm", *PPO],
    "gru": ["memory=gru", *PPO],
    "gpt": ["memory=gpt", *PPO],
    "popgym_ffm": ["memory=ffm", *POPGYM],
    "popgym_gru": ["memory=gru", *POPGYM],
    "sac_gru_segment": ["memory=gru", *SAC, "batching=segment", "batching.length=64", "algo.batch_size=4096"],
    "dqn_gru_tape": ["memory=gru", *DQN, "batching=tape", "algo.batch_size=4096"],
    "sac_gru_tape": ["memory=gru", *SAC, "batching=tape", "algo.batch_size=4096"],
}
"""Name -> overrides of a run."""


@dataclass
class BeforeBench(Bench):
    """An iteration of training of both commits in each round.

    commit: the earlier one, of rlmem 0.2.0 or later
    cases: names of CASES
    now: options of this commit's runs alone
    """

    name = "before"
    refused = frozenset({"device", "threads", "budget"})
    rounds: int = 7
    threads: int | None = 1
    commit: str = "72d28dda"
    cases: Sequence[str] = tuple(CASES)
    now: Sequence[str] = ()

    def measure(self, result: Numbers) -> Iterator[None]:
        check_names("--cases ", "case", self.cases, CASES)
        warnings.filterwarnings("ignore", ".*Overriding environment")  # both versions register theirs
        git, result["cases"] = ["git", "-C", str(ROOT)], {}
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder, "tree")
            added = subprocess.run(
                [*git, "worktree", "add", "--detach", tree, self.commit], capture_output=True, text=True
            )
            if added.returncode:
                raise UserError(f"--commit {self.commit}: {added.stderr.strip()}; e.g. --commit HEAD~1")
            try:
                before, now = Version(tree), Version(ROOT)
                for name in self.cases:
                    result["cases"][name] = compare(before, now, CASES[name], list(self.now), self.rounds)
                    yield
            finally:
                subprocess.run([*git, "worktree", "remove", "--force", tree], check=True)

    def tables(self, result: Numbers) -> list[PlottedTable]:
        rows = []
        for name, case in result["cases"].items():
            it, parts = case["all"], (case[part]["ratio"] for part in ("act", "learn"))
            rows.append((name, it["ratio"], it["least"], it["most"], *parts, it["before_us"], it["now_us"]))
        columns = dict.fromkeys(("ratio", "least", "most", "acting", "learning"), "times as fast")
        columns |= dict.fromkeys(("before", "now"), "us a step")
        return [PlottedTable("beside an earlier commit", ["case"], columns, rows)]


class Version:
    """The package as it is in a folder, with modules of its own.

    root: a work tree
    """

    def __init__(self, root: Path):
        self.root, self.modules = root, dict[str, ModuleType]()
        self.finders = [it for it in sys.meta_path if type(it).__module__.partition(".")[0] not in OURS]

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Within, `import rlmem` finds this one."""
        paths = [str(self.root), str(self.root / "envs")]
        outside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in OURS}
        sys.modules.update(self.modules)
        sys.path[:0] = paths
        finders = sys.meta_path[:]
        sys.meta_path[:] = self.finders
        try:
            yield
        finally:
            del sys.path[:2]
            self.finders, sys.meta_path[:] = sys.meta_path[:], finders
            mine = [name for name in sys.modules if name.partition(".")[0] in OURS]
            self.modules = {name: sys.modules.pop(name) for name in mine}
            sys.modules.update(outside)

    def iteration(self, overrides: list[str], folder: Path) -> Callable[[], dict[str, float]]:
        """A function that runs an iteration of a training loop, and returns seconds per step: all, by the processor's
        clock, and those of acting and learning.
        """
        with self.loaded():
            names = ("rlmem.evidence.bench.train", "rlmem.bench.train", "rlmem.bench.loop")  # of earlier commits, too
            files = {name: Path(self.root, f"{name.replace('.', '/')}.py") for name in names}
            there = (name for name, file in files.items() if file.exists())
            module = import_module(next(name for name in there if "def training_loop" in files[name].read_text()))
            if not str(module.__file__).startswith(str(self.root)):
                raise RuntimeError(f"{module.__file__} was loaded, which is not in {self.root}")
            loop = module.training_loop(["device=cpu", "total_steps=1000000000", *overrides], folder)

        def clock() -> dict[str, float]:
            spent = {part: share * max(loop.elapsed, 1e-9) for part, share in loop.shares().items()}
            return {"all": process_time(), "act": spent["act"], "learn": spent["learn"]}

        def iterate() -> dict[str, float]:
            with self.loaded():
                before, began = loop.collector.steps, clock()
                loop.iterate()
                steps = loop.collector.steps - before
                return {part: (now - began[part]) / steps for part, now in clock().items()}

        return iterate


def compare(before: Version, now: Version, overrides: list[str], mine: list[str], rounds: int) -> dict[str, Any]:
    """The ratios of `rounds` turns, after two of warm-up.

    overrides: of both runs
    mine: more of them, of the run of `now` alone
    """
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, name) for name in ("before", "now")]
        for folder in folders:
            folder.mkdir()
        both = [before.iteration(overrides, folders[0]), now.iteration([*overrides, *mine], folders[1])]
        turns = [tuple(iterate() for iterate in both) for _ in range(rounds + 2)][2:]
    comparison: dict[str, Any] = {}
    for part in ("all", "act", "learn"):
        ratios = sorted(a[part] / b[part] for a, b in turns)
        comparison[part] = {"ratio": median(ratios), "least": ratios[0], "most": ratios[-1]}
        comparison[part] |= {"before_us": 1e6 * median(a[part] for a, _ in turns)}
        comparison[part] |= {"now_us": 1e6 * median(b[part] for _, b in turns)}
    return comparison
