"""`rlmem train -m`: one job per combination, through Hydra's own launchers; none stops another."""

import io
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import IO

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override, Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from rlmem.config.compose import Config, compose_base, config_loader, load
from rlmem.config.overrides import lines_of, parse, require_few
from rlmem.errors import Fault, NotHere, UserError, first_line
from rlmem.sweep import launchers
from rlmem.system.command import protect
from rlmem.system.signals import Stopped, taken_over


class Failed(str):
    """What a job that failed returns instead of its objective: `OVERRIDES: REASON`, in one line."""


def check(overrides: Sequence[str]) -> list[Config]:
    """The configuration of every job, or a UserError with the problems of all of them before the first one starts."""
    problems, elsewhere = parse(overrides)[1], False
    try:
        elsewhere = launchers.choose(overrides).elsewhere
    except UserError as error:
        problems += error.problems
    return check_jobs(expand(overrides), problems, elsewhere)


def check_jobs(
    jobs: Iterable[Sequence[str]], problems: Sequence[str] = (), elsewhere: bool = False, assembled: bool = True
) -> list[Config]:
    """The configuration of every job. Raises UserError with `problems` and those of all jobs.

    jobs: the overrides of each job
    problems: problems that are known already
    elsewhere: whether jobs may run on other machines, so that this one may lack their device
    assembled: whether every combination is also built once, for one of its seeds, which needs the files that it reads
    """
    configs, problems = [], list(problems)
    for overrides in jobs:
        try:
            configs.append(load(overrides))
        except UserError as error:
            problems += error.problems
    given = [run_dir for config in configs if (run_dir := config.settings.run_dir) is not None]
    if len(given) > len(set(given)):
        what = f"{len(configs)} jobs would share one run directory; leave run_dir out"
        problems.append(f"run_dir={given[0]}: {what}")
    if assembled and not problems:
        from rlmem.run.train import plan

        distinct = {repr(config.values | {"seed": 0, "run_dir": None}): config for config in configs}
        for config in distinct.values():
            try:
                plan(config)
            except UserError as error:
                if not (elsewhere and isinstance(error, NotHere)):
                    problems += error.problems
    if problems:
        raise UserError(*dict.fromkeys(problems))
    return configs


def plans(configs: Iterable[Config]) -> Iterator[str]:
    """The summaries of checked jobs that are not started; for a job that needs another machine, what this one lacks."""
    from rlmem.run.train import plan

    for config in configs:
        try:
            yield plan(config)
        except NotHere as error:
            yield str(error)


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The readable overrides of every job, in Hydra's order, without those of the launcher and of Hydra."""
    with config_loader() as loader:
        parsed, _ = parse(overrides, loader)
        own = [o for o in parsed if not _is_about_multirun(o)]
        values = [lines_of(override, "rlmem train -m seed=0,1,2") for override in own]
        require_few(values)
        return [list(job) for job in itertools.product(*values)]


def launch(overrides: Sequence[str]) -> list[Failed]:
    """Hand checked overrides to Hydra, which runs the jobs; returns those that failed.

    Raises Fault if the launcher itself gives up, as some do when the process of a job is killed.
    """
    launcher = launchers.choose(overrides)
    folder = QuotedString(launcher.folder, Quote.single).with_quotes()  # chosen once: it holds the time
    lines = [*launcher.lines, f"hydra.sweep.dir={folder}", *_with_new_keys(overrides)]
    if launcher.name != "basic":
        print(f"rlmem: {launcher.name} runs the jobs; what it writes lies in {launcher.folder}", flush=True)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends no statistics
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # prints every line of every job
    with config_loader():
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        try:
            batches = hydra.multirun("config", job, lines) or []
        except Exception as error:
            if launcher.name == "basic":
                raise
            what = f"{launcher.name} gave up ({type(error).__name__}: {first_line(error)})"
            raise Fault(f"{what}; jobs that had ended are complete, others may still run") from error
    results = [result.return_value for batch in batches for result in batch]
    return [result for result in results if isinstance(result, Failed)]


def job(_: DictConfig) -> float | Failed:
    """One job: the same composition and checks as a single run. Returns the objective."""
    hydra = HydraConfig.get()
    here = hydra.runtime.choices["hydra/launcher"] == "basic"
    overrides = [line.removeprefix("++") for line in hydra.overrides.task if not line.startswith("+launcher=")]
    os.chdir(hydra.runtime.cwd)  # a launcher may start its processes elsewhere
    name = " ".join(overrides) or "(no overrides)"
    if not here:
        protect(ends=False)
    search = [line for line in hydra.overrides.hydra if line.startswith("hydra.searchpath")]
    try:
        with redirect_stdout(sys.stdout if here else Prefixed(sys.stdout, f"[{hydra.job.num}] ")):
            from rlmem.run.train import train

            try:
                return train(load([*search, *overrides, *_run_directory(overrides)])).objective
            except Stopped as stop:
                _pass_signal_to_submitit(stop.signum)
                raise
    except (Exception, KeyboardInterrupt) as error:
        if here and isinstance(error, KeyboardInterrupt):
            raise  # a signal to this process is for all jobs
        why = first_line(error)
        if isinstance(error, UserError):
            print(*(f"rlmem: error: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
        elif not isinstance(error, (Fault, KeyboardInterrupt)):
            traceback.print_exc()
            why = f"{type(error).__name__}: {why}"
        failed = Failed(f"{name}: {why}")
        print(f"rlmem: job failed: {failed}", file=sys.stderr, flush=True)
        return failed


def _pass_signal_to_submitit(signum: int) -> None:
    """Pass a signal on, after the state is saved, to submitit's own handler if submitit runs the job.

    For the signal that announces a time limit, submitit puts the job back into the queue and ends the process. For
    SIGTERM it does nothing, and the process waits: Slurm may requeue the job, unless it ends with a result before.
    """
    executor = os.environ.get("SUBMITIT_EXECUTOR")
    if executor is None or taken_over() or signum == signal.SIGINT or not callable(signal.getsignal(signum)):
        return
    signal.raise_signal(signum)
    while executor == "slurm":
        signal.pause()


def _run_directory(overrides: Sequence[str]) -> list[str]:
    """Overrides that put a job into the directory that its launcher or the user has set for it in `hydra.sweep`.

    It continues there if its launcher starts it again.
    """
    hydra = HydraConfig.get()
    given = {line.partition("=")[0] for line in overrides}
    if hydra.sweep.subdir == "." or "run_dir" in given:
        return []
    run_dir = QuotedString(os.path.relpath(hydra.runtime.output_dir), Quote.single).with_quotes()
    return [f"run_dir={run_dir}", *([] if "on_exists" in given else ["on_exists=resume"])]


class Prefixed(io.TextIOBase):
    """The output of one of several jobs side by side: its lines begin with a label, and it is no terminal."""

    def __init__(self, stream: IO[str], label: str):
        self.stream, self.label, self.rest = stream, label, ""

    def write(self, text: str) -> int:
        *lines, self.rest = (self.rest + text).split("\n")
        self.stream.write("".join(f"{self.label}{line}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()


def _is_about_multirun(override: Override) -> bool:
    """Whether an override is about all jobs: their launcher, or Hydra itself (but where it searches)."""
    hydra = override.is_hydra_override() and override.key_or_group != "hydra.searchpath"
    return hydra or launchers.is_about_launcher(override)


def _with_new_keys(overrides: Sequence[str]) -> list[str]:
    """The overrides of the jobs, with `++` before each key that Hydra's first composition does not have.

    Such a key is in a free mapping (`env.params.k=4`) or in swept options (`algo=dqn,sacd algo.batch_size=500`).
    """
    own = [o for o in parse(overrides)[0] if not _is_about_multirun(o)]
    tree = compose_base([str(o.input_line) for o in own if not o.is_sweep_override()])[0].tree
    lines = []
    for override in own:
        parent, _, name = override.key_or_group.rpartition(".")
        node = OmegaConf.select(tree, parent) if parent else tree
        if not override.is_hydra_override():
            lines.append(f"{'' if name in (node or ()) else '++'}{override.input_line}")
    return lines
