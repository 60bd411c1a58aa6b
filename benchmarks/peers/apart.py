"""Processor time of training beside libraries that need environments of their own, in turns.

`apart/peers.yaml` says what each peer needs, and `apart/play_PEER.py` trains it. A peer gets a virtual environment
of its own below --cache, once, where pip installs what it needs; --install does only that. PIP_EXTRA_INDEX_URL may
name an index with CPU builds of torch. All peers and rlmem then live at the same time, each in its own process on one
thread, and take turns: an iteration of PPO each, acting, learning and recording included. What is read is a peer's
processor time per environment step as a multiple of rlmem's: the median over rounds of the ratio of a round. The peer
`rlmem` is rlmem beside itself and shows how far noise moves a ratio. --dry is that alone, in a tiny size.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

import yaml

from rlmem.bench.skeleton import Bench, Numbers, Table, check_names
from rlmem.system.hardware import cache_folders

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("apart")
SETTING = {"envs": 16, "slots": 128, "epochs": 4, "minibatches": 4, "width": 256, "encoder": 128, "heads": 64}
SETTING |= {"lr": 0.001}
DRY = SETTING | {"envs": 4, "slots": 8, "width": 8, "encoder": 8, "heads": 8}
WARM_UP = 2
"""Iterations before the first round: JAX compiles in the first."""
PATIENCE = 600.0
"""Seconds that an answer may take."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
THREADS |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
THREADS |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled"}


HEADS = {"processor": "us a step", "clock": "us a step"}
HEADS |= dict.fromkeys(("ratio", "least", "most", "clock, ratio"), "times rlmem's")
COLUMNS = ("cpu_us", "wall_us", "cpu_ratio", "cpu_least", "cpu_most", "wall_ratio")
"""Headings of a table with their units, and the number in each column."""


class NotMeasured(Exception):
    """Why a peer is not measured, in one line."""


@dataclass(frozen=True)
class Peer:
    """A library to compare with.

    name: the peer trains by `apart/play_NAME.py`
    memories: which of rlmem's it has
    requires: what pip installs; the first words are packages whose versions are told. Nothing: it runs in this Python
    git, commit: of its source, where it is no package
    game: what it plays
    ours: overrides that make rlmem's training equal to its own
    differs: what remains different
    """

    name: str
    memories: tuple[str, ...]
    requires: tuple[str, ...] = ()
    git: str = ""
    commit: str = ""
    game: str = "RepeatPreviousEasy of popgym, its environments stepped one after another"
    ours: tuple[str, ...] = ()
    differs: str = ""

    @property
    def packages(self) -> list[str]:
        return [text.partition("==")[0] for text in self.requires]

    def folder(self, cache: Path) -> Path:
        """Where its environment is: another one for other requirements or another Python."""
        of = json.dumps([self.requires, self.git, self.commit, sys.version_info[:2]])
        return cache / f"{self.name}-{hashlib.sha256(of.encode()).hexdigest()[:8]}"

    def install(self, cache: Path) -> None:
        """Make its environment, unless it is there. Raises NotMeasured."""
        folder = self.folder(cache)
        if not self.requires or (folder / "ready").exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"{self.name}: installing into {folder}", flush=True)
        try:
            if self.git:
                git = ["git", "-C", str(folder / "source")]
                call(["git", "clone", "--quiet", self.git, str(folder / "source")])
                call([*git, "checkout", "--quiet", self.commit])
            call([sys.executable, "-m", "venv", str(folder)])
            call([self.python(cache), "-m", "pip", "install", "--disable-pip-version-check", *self.requires])
        except (NotMeasured, KeyboardInterrupt):
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / "ready").touch()

    def python(self, cache: Path) -> str:
        """Its interpreter."""
        if not self.requires:
            return sys.executable
        return str(self.folder(cache) / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    def paths(self, cache: Path) -> str:
        """Its PYTHONPATH."""
        paths = [] if self.requires else [str(ROOT), str(ROOT / "envs")]
        return os.pathsep.join([*paths, *([str(self.folder(cache) / "source")] if self.git else [])])


@dataclass
class Contestant:
    """A training in a process of its own.

    versions: of what is installed there
    spent: what each iteration took, a line of `turns.py` each
    process: None until it is started
    late: whether it was ended because an answer took too long
    """

    peer: Peer
    memory: str
    ours: tuple[str, ...]
    versions: dict[str, str] = field(default_factory=dict)
    spent: list[dict[str, float]] = field(default_factory=list)
    process: subprocess.Popen[str] | None = field(default=None, init=False)
    late: bool = field(default=False, init=False)

    def start(self, cache: Path, setting: dict[str, Any], scratch: str) -> None:
        """Raises NotMeasured."""
        folder = Path(tempfile.mkdtemp(dir=scratch))
        self.log = folder / "stderr"
        given = setting | {"memory": self.memory, "ours": self.ours, "packages": self.peer.packages or ["torch"]}
        command = [self.peer.python(cache), str(FOLDER / "turns.py"), f"play_{self.peer.name}.py", json.dumps(given)]
        environment = os.environ | THREADS | {"PYTHONPATH": self.peer.paths(cache)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stderr=log, start_new_session=True, **pipes
            )
        self.versions = self.answer()

    def turn(self) -> None:
        """Let it do an iteration. Raises NotMeasured."""
        assert self.process is not None
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended; its log says why
            print(file=self.process.stdin, flush=True)
        self.spent.append(self.answer())

    def answer(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        timer = Timer(PATIENCE, self.give_up)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            said = [text.strip() for text in self.log.read_text(errors="replace").splitlines() if text.strip()]
            why = [f"no answer within {PATIENCE:g} s"] if self.late else []
            raise NotMeasured("; ".join([*why, *said[-1:]])[:300] or "it ended and said nothing")
        return dict(json.loads(line))

    def give_up(self) -> None:
        self.late = True
        self.stop()

    def stop(self) -> None:
        """End it, with all that it started."""
        if self.process and self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def per_step(self, clock: str) -> list[float]:
        return [it[clock] / it["steps"] for it in self.spent[WARM_UP:]]


@dataclass
class ApartBench(Bench):
    """An iteration of PPO of every peer and of rlmem in each round.

    peers: of apart/peers.yaml; all by default
    memories: lstm, gru
    cache: the folder of the peers' environments
    install: only make the environments
    dry: rlmem beside itself in a tiny size
    """

    name = "apart"
    refused = frozenset({"device", "threads", "budget"})
    rounds: int = 7
    threads: int | None = 1
    peers: Sequence[str] = ()
    memories: Sequence[str] = ("lstm", "gru")
    cache: Path = cache_folders()[0] / "peers"
    install: bool = False
    dry: bool = False

    def measure(self, result: Numbers) -> Iterator[None]:
        peers, others = known()
        check_names("--peers ", "peer", self.peers, peers)
        check_names("--memories ", "memory", self.memories, ("lstm", "gru"))
        asked, failed = [peers[name] for name in (["rlmem"] if self.dry else self.peers or peers)], dict[str, str]()
        for peer in list(asked):
            try:
                peer.install(self.cache)
            except NotMeasured as error:
                failed[peer.name] = str(error)
                asked.remove(peer)
        result["setting"] = (DRY if self.dry else SETTING) | {"rounds": self.rounds}
        result |= {"peers": {it.name: asdict(it) for it in asked}, "cases": {}}
        result |= {"not_measured": others, "failed": failed}
        for memory in [] if self.install else self.memories:
            print(f"{memory}: {WARM_UP + self.rounds} iterations each", flush=True)
            setting = DRY if self.dry else SETTING
            try:
                result["cases"][memory] = compare(asked, memory, self.rounds, setting, self.cache, failed)
            except NotMeasured as error:
                failed[f"all, {memory}"] = f"rlmem beside them: {error}"
            yield
        yield

    def tables(self, result: Numbers) -> Iterator[Table]:
        for memory, case in result["cases"].items():
            ours = [(" ".join(("rlmem", *mine["ours"])), mine["cpu_us"], mine["wall_us"]) for mine in case["rlmem"]]
            rows = [(*row, None, None, None, None) for row in ours]
            rows += [(name, *(it[key] for key in COLUMNS)) for name, it in case["peers"].items()]
            yield Table(f"{memory}: beside libraries with environments of their own", [""], HEADS, rows)


def call(command: list[str]) -> None:
    """Run a command that prints nothing. Raises NotMeasured with the line that says why it failed."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] or ["it said nothing"]
        errors = [line for line in lines if line.lower().startswith(("error", "fatal"))]
        raise NotMeasured(f"{' '.join(command[:4])} ... failed: {(errors or lines)[-1][:300]}")


def known() -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers, and why others are none."""
    data = yaml.safe_load((FOLDER / "peers.yaml").read_text())
    lists = ("memories", "requires", "ours")
    peers = {
        name: Peer(name, **{key: tuple(value) if key in lists else value for key, value in about.items()})
        for name, about in data["peers"].items()
    }
    return peers, data["not_measured"]


def compare(
    peers: list[Peer], memory: str, rounds: int, setting: dict[str, Any], cache: Path, failed: dict[str, str]
) -> dict[str, Any]:
    """The numbers of rlmem and of the peers that have this memory; the reason of one that fails is added to `failed`.

    rlmem takes part once for each of the peers' `ours`, so that all measure beside an equal training. Raises
    NotMeasured if rlmem fails.
    """
    peers = [peer for peer in peers if memory in peer.memories]
    rlmem = Peer("rlmem", (memory,))
    ours = {it: Contestant(rlmem, memory, it) for it in dict.fromkeys(peer.ours for peer in peers)}
    theirs = {peer.name: Contestant(peer, memory, peer.ours) for peer in peers}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:

        def attempt(name: str, what: Any, *arguments: Any) -> None:
            if name in theirs:
                try:
                    what(*arguments)
                except NotMeasured as error:
                    failed[f"{name}, {memory}"] = str(error)
                    del theirs[name]

        for it in (*ours.values(), *theirs.values()):
            stack.callback(it.stop)
        for it in ours.values():
            it.start(cache, setting, scratch)
        for name, it in list(theirs.items()):
            attempt(name, it.start, cache, setting, scratch)
        for _ in range(WARM_UP + rounds):
            for mine in ours.values():
                mine.turn()
            for name, it in list(theirs.items()):
                attempt(name, it.turn)
    found: dict[str, Any] = {"rlmem": [], "peers": {}}
    for overrides, mine in ours.items():
        found["rlmem"].append({"ours": overrides, "versions": mine.versions} | numbers(mine))
    for name, it in theirs.items():
        found["peers"][name] = {"versions": it.versions} | numbers(it, ours[it.ours])
    return found


def numbers(it: Contestant, beside: Contestant | None = None) -> dict[str, float]:
    """Microseconds per environment step, and what multiple of another contestant's they are, round by round."""
    found = {f"{clock}_us": 1e6 * median(it.per_step(clock)) for clock in ("cpu", "wall")}
    for clock in ("cpu", "wall") if beside else ():
        ratios = sorted(a / b for a, b in zip(it.per_step(clock), beside.per_step(clock), strict=True))
        found |= {f"{clock}_ratio": median(ratios), f"{clock}_least": ratios[0], f"{clock}_most": ratios[-1]}
    return found
