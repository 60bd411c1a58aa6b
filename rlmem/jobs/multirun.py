"""`rlmem train -m`: one job per combination, through Hydra's own launchers; none stops another.

`launcher=NAME` says where the jobs run, and is not part of a run's configuration. An option is a file of conf/launcher,
or of a folder of `hydra.searchpath`, which chooses one of Hydra's launchers and sets its keys. `launcher.key=value` is
Hydra's `hydra.launcher.key=value`; both ways of writing are accepted.
"""

import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlmem.config.compose import FAILURES, Config, config_loader, load, root_cause
from rlmem.config.messages import mistake, nearest, sentence, shell, to_text
from rlmem.config.overrides import assignment, parse
from rlmem.core.command import Stopped, protect, taken_over
from rlmem.core.errors import Fault, NotHere, UserError, extra, first_line
from rlmem.jobs.spec import Lines, SweepSpec, axes, expand

EXTRAS = {"joblib": "cluster", "submitit_local": "cluster", "submitit_slurm": "cluster", "ray": "ray", "ray_aws": "ray"}
"""Hydra's launchers that are packages of their own, and the extra of rlmem that installs each."""

ELSEWHERE = ("submitit_slurm", "ray", "ray_aws")
"""Those whose jobs may run on other machines."""

EXAMPLE = "rlmem train -m launcher=joblib launcher.n_jobs=2 seed=0,1"


@dataclass(frozen=True)
class Launcher:
    """A launcher by Hydra's name, and Hydra's overrides that choose it and set its keys.

    folder: the multirun's directory
    subdir: that of a job in it, in Hydra's words; `.`: its run lies where a single one would
    """

    name: str
    lines: tuple[str, ...]
    folder: str
    subdir: str


def is_about_all(override: Override) -> bool:
    """True if an override is about all jobs: their launcher, or Hydra itself (but where it searches)."""
    key = override.key_or_group
    return key.partition(".")[0] == "launcher" or (override.is_hydra_override() and key != "hydra.searchpath")


def choose(overrides: Sequence[str]) -> Launcher:
    """The launcher of a command line, checked. Raises UserError with every problem."""
    with config_loader():
        parsed = parse(overrides)[0]
        ours = [override for override in parsed if override.key_or_group.partition(".")[0] == "launcher"]
        hydra = [str(override.input_line) for override in parsed if override.is_hydra_override()]
        choices = [override for override in ours if override.key_or_group == "launcher"]
        for choice in choices:
            line = str(choice.input_line)
            if line.startswith(("+", "~")) or not re.fullmatch(r"\w+", str(choice.value())):
                raise mistake(line, "expected the name of one launcher, without `+` or `~`", example=EXAMPLE)
        try:
            chosen = [f"+{choice.input_line}" for choice in choices[-1:]]
            tree = compose("config", overrides=[*chosen, *hydra], return_hydra_config=True)
        except FAILURES as error:
            raise UserError(_not_composed(error, choices)) from error
    name = str(choices[-1].value()) if choices else tree.hydra.runtime.choices["hydra/launcher"]
    if tree.hydra.runtime.choices["hydra/sweeper"] != "basic":
        reason = "Hydra's other sweepers are not for -m; a search is `rlmem sweep --trials`"
        raise mistake("hydra/sweeper", reason, example="rlmem sweep --trials 20 'algo.lr=interval(1e-4,1e-2)'")
    keys = [override for override in ours if override not in choices]
    if problems := [problem for key in keys if (problem := _problem_of_key(tree, key, name))]:
        raise UserError(*problems)
    lines = [*chosen, *(f"++hydra.{key.input_line}" for key in keys), *hydra]
    written: Any = OmegaConf.to_container(tree.hydra.sweep)  # not resolved: every job does that itself
    folder, subdir = str(tree.hydra.sweep.dir), str(written["subdir"])
    return Launcher(tree.hydra.runtime.choices["hydra/launcher"], tuple(lines), folder, subdir)


def _problem_of_key(tree: DictConfig, override: Override, name: str) -> str | None:
    """Set one key of the launcher in the composed `tree`; returns why that is refused, None if it is not."""
    line, parts = str(override.input_line), override.key_or_group.split(".")
    if override.is_sweep_override() or line.startswith(("+", "~")):
        return sentence(line, "expected launcher.key=value with one value for all jobs", example=EXAMPLE)
    node = tree.hydra.launcher
    for depth in range(1, len(parts)):
        walked, part = ".".join(parts[:depth]), parts[depth]
        if not isinstance(node, DictConfig):
            return sentence(line, f"`{walked}` is a value, not a section", example=f"{walked}={to_text(node)}")
        if OmegaConf.get_type(node) is dict:  # arguments for others, such as ray.init: its keys are free
            break
        if part not in node:
            names = sorted(str(key) for key in node if not str(key).startswith("_"))
            near = [f"{walked}.{key}" for key in nearest(part, names)]
            return sentence(line, f"launcher={name} has no such key", near=near, accepted=names, example=EXAMPLE)
        node = node[part]
    try:
        OmegaConf.update(tree, f"hydra.{override.key_or_group}", override.value(), force_add=True)
    except OmegaConfBaseException as error:
        return sentence(line, first_line(error))
    return None


def _not_composed(error: BaseException, choices: Sequence[Override]) -> str:
    """What to say of a launcher that Hydra does not find, or of another failure to compose it."""
    group, _, name = (getattr(error, "missing_cfg_file", None) or "").rpartition("/")
    if group not in ("launcher", "hydra/launcher"):
        return root_cause(error)
    where = str(choices[-1].input_line) if choices else f"hydra/launcher={name}"
    if name in EXTRAS and group == "hydra/launcher":
        return sentence(where, "its package is not installed", example=extra(EXTRAS[name]))
    accepted = sorted(getattr(error, "options", None) or ())
    problem = f"{'no' if group == 'launcher' else 'Hydra has no'} such launcher"
    return sentence(where, problem, near=nearest(name, accepted), accepted=accepted, example=EXAMPLE)


class Failed(str):
    """What a job that failed returns instead of its objective: `OVERRIDES: REASON`, in one line."""


def check(overrides: Sequence[str]) -> list[Config]:
    """The configuration of every job, or a UserError with the problems of all of them before the first one starts."""
    problems, elsewhere = parse(overrides)[1], False
    try:
        elsewhere = choose(overrides).name in ELSEWHERE
    except UserError as error:
        problems += error.problems
    return check_jobs(jobs_of(overrides), problems, elsewhere)


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
    places = [run_dir for config in configs if (run_dir := config.settings.run_dir) is not None]
    if len(places) > len(set(places)):
        problems.append(f"run_dir={places[0]}: {len(configs)} jobs would share one run directory; leave run_dir out")
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


def jobs_of(overrides: Sequence[str]) -> list[Lines]:
    """The readable overrides of every job, in the order of a sweep, without those of the launcher and of Hydra."""
    own = [str(override.input_line) for override in parse(overrides)[0] if not is_about_all(override)]
    return expand(axes(SweepSpec(tuple(own)), own_directories=False))


def launch(overrides: Sequence[str]) -> list[Failed]:
    """Hand the numbers of checked jobs to Hydra, whose launcher runs them; returns those that failed.

    Raises Fault if the launcher itself gives up, as some do when the process of a job is killed.
    """
    launcher, jobs = choose(overrides), jobs_of(overrides)
    folder = assignment("hydra.sweep.dir", launcher.folder)  # chosen once: it holds the time
    numbers, command = f"+job=range({len(jobs)})", assignment("+command", shell(*overrides))  # for multirun.yaml
    lines = [*launcher.lines, folder, "hydra.sweep.subdir=.", numbers, command]
    if launcher.name != "basic":
        print(f"rlmem: {launcher.name} runs the jobs; what it writes lies in {launcher.folder}", flush=True)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends no statistics
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # prints every line of every job
    with config_loader():
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        try:
            batches = hydra.multirun("config", partial(job, jobs, launcher.subdir), lines) or []
        except Exception as error:
            if launcher.name == "basic":
                raise
            problem = f"{launcher.name} gave up ({type(error).__name__}: {first_line(error)})"
            raise Fault(f"{problem}; jobs that had ended are complete, others may still run") from error
    results = [result.return_value for batch in batches for result in batch]
    return [result for result in results if isinstance(result, Failed)]


def job(jobs: Sequence[Lines], subdir: str, numbered: DictConfig) -> float | Failed:
    """One of the `jobs`: the same composition and checks as a single run. Returns the objective."""
    hydra, overrides = HydraConfig.get(), jobs[numbered.job]
    here = hydra.runtime.choices["hydra/launcher"] == "basic"
    os.chdir(hydra.runtime.cwd)  # a launcher may start its processes elsewhere
    name = " ".join(overrides) or "(no overrides)"
    if not here:
        protect(ends=False)
    try:
        with redirect_stdout(sys.stdout if here else Prefixed(sys.stdout, f"[{hydra.job.num}] ")):
            from rlmem.run.train import train

            try:
                return train(load([*overrides, *_run_directory(overrides, subdir)])).objective
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


def _run_directory(overrides: Lines, subdir: str) -> list[str]:
    """Overrides that put a job into the directory that its launcher or the user has set for it in `hydra.sweep`.

    It continues there if its launcher starts it again.
    """
    keys = {line.partition("=")[0] for line in overrides}
    if subdir == "." or "run_dir" in keys:
        return []
    config, hydra = load(overrides), HydraConfig.get()
    about: Any = OmegaConf.to_container(hydra)
    naming = hydra.job.config.override_dirname
    left_out = {"hydra.searchpath", *naming.exclude_keys}
    words = sorted(line for line in overrides if line.partition("=")[0] not in left_out)
    about["job"]["override_dirname"] = naming.item_sep.join(words).replace("=", naming.kv_sep)
    about["runtime"]["choices"] |= config.choices
    place = OmegaConf.create(config.values | {"hydra": about, "place": subdir}).place
    run_dir = assignment("run_dir", os.path.relpath(os.path.join(hydra.sweep.dir, place)))
    return [run_dir, *([] if "on_exists" in keys else ["on_exists=resume"])]


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
