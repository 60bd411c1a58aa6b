"""Items whose runs are trained agents.

Single agents are the jobs of a sweep, with analyses of their runs. The result of a population is the mean of its best
few agents at every step.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, product
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlmem.config.compose import Config
from rlmem.config.foreign import foreign_lines, refuse
from rlmem.config.messages import mistake, nearest, shell
from rlmem.config.paths import shipped_options
from rlmem.core import received
from rlmem.core.errors import Fault, UserError
from rlmem.core.hardware import machine_class
from rlmem.evidence.cost import Cost, cost_of
from rlmem.evidence.experiment import Cell, Planned
from rlmem.evidence.folder import CELLS, foreign, held
from rlmem.evidence.leaderboard import size_of
from rlmem.evidence.metrics import BESIDE, curve_key, made_of, read, thinned
from rlmem.evidence.records import Curve, Record
from rlmem.evidence.runner import Collected, Runner
from rlmem.evidence.sections import AnalysisSection
from rlmem.jobs.manifest import Job, Manifest
from rlmem.jobs.multirun import check_jobs
from rlmem.jobs.pool import Options
from rlmem.jobs.population.spec import PopulationSpec, holds_population, populate, start
from rlmem.jobs.population.spec import read as population_in
from rlmem.jobs.run import config_hash, sweep
from rlmem.jobs.spec import SweepSpec
from rlmem.record import rundir
from rlmem.record.checkpoint import step_of
from rlmem.record.facts import RunRecord
from rlmem.run.stored import AGENT_PREFIX, checkpoints

ALIKE = 0.1
"""Agents are of equal capacity if they differ by at most this share of the parameters of the one without memory."""
TOP = 3
"""How many agents the result is the mean of (Stepleton et al. 2018, arXiv:1805.04955, caption of figure 5)."""
ACCEPTED = ("vary", "agents", "ready", "window", "every", "level", "top")
"""The options of an experiment with populations: those of `rlmem population`, and `top`."""


class TrainingRuns(Runner):
    """Every cell and seed is one training run, and all of them are one sweep."""

    def check(self, cells: Sequence[Cell], files: bool = True) -> None:
        for metric in (self.planned.metric, *self.planned.experiment.also):
            curve_key(metric)
        self._configs(cells, assembled=files)

    def begin(self, cells: Sequence[Cell], options: Options) -> None:
        """Add the runs of the cells that their sweep lacks: one seed of every cell, then the next of every cell."""
        configs = self._configs(cells)
        jobs, listed = [], []
        runs = [
            (place, seed, cell, config)
            for cell, config in zip(cells, configs, strict=True)
            for place, seed in enumerate(cell.seeds)
        ]
        for _, seed, cell, config in sorted(runs, key=itemgetter(0)):
            if config.settings.evaluation.stop_at is not None:
                problem = "curves that end early cannot be compared"
                raise UserError(f"{cell.label(seed)}: evaluation.stop_at: {problem}; e.g. total_steps=...")
            values = config.values | {"seed": seed}
            own = config_hash(replace(config, values=values))
            jobs.append(Job(cell.label(seed), cell.lines(seed), own, values["threads"], values["total_steps"]))
            listed.append((cell, seed, own))
        self.ask_for("config_hash", listed)
        Manifest(self.runs).submit(SweepSpec((f"experiment={self.owner}", f"budget={self.budget}")), jobs)

    def remarks(self, cells: Sequence[Cell]) -> list[str]:
        return size_remarks(self.planned, cells)

    def run(self, cells: Sequence[Cell], options: Options) -> int:
        asked = {(cell.row, cell.column, seed) for cell in cells for seed in cell.seeds}
        jobs = {job.config_hash for cell, seed, job in self._listed() if (cell.row, cell.column, seed) in asked}
        options = replace(options, only=frozenset(jobs), places=1 if self.planned.experiment.alone else options.places)
        code = sweep(None, self.runs, options)
        self._analyse()
        return code

    def collect(self) -> Collected:
        experiment = self.planned.experiment
        wanted = dict.fromkeys([self.planned.metric, *experiment.also, *BESIDE])
        records, curves, manifest = [], [], Manifest(self.runs)
        for cell, seed, job in self._listed():
            run, state = RunRecord(self.runs / job.name), manifest.state(job)
            lacking = tuple(f"analysis/{a.what}/" for a in experiment.analyses if not _is_made(a, run.run_dir))
            names = [name for name in wanted if not name.startswith(lacking)]
            metrics = read(run, names, experiment.task_of(cell.column))
            record = Record(cell.row, cell.column, seed, state, metrics, config_hash=job.config_hash).of(run)
            records.append(replace(record, machine=run.machine or machine_class(), overrides=" ".join(job.overrides)))
            if job.state == "done" and not experiment.draw:
                steps, values = thinned(run.series(curve_key(self.planned.metric)))
                curves += [Curve(cell.row, cell.column, seed, steps, values)] if steps else []
        return records, curves, self._pictures(records)

    def _listed(self) -> Iterator[tuple[Cell, int, Job]]:
        """Every run of the experiment that has a job, in the order of the experiment.

        Jobs of other items, and of earlier versions of the file, may lie in the same folder and are left out.
        """
        jobs = {job.config_hash: job for job in Manifest(self.runs).jobs()}
        there = {
            (c["row"], c["column"], c["seed"]): jobs.get(c.get("config_hash", "")) for c in self.read_cells()["cells"]
        }
        for cell in self.planned.cells():
            for seed in cell.seeds:
                job = there.get((cell.row, cell.column, seed))
                if job and job.overrides == cell.lines(seed):
                    yield cell, seed, job

    def _configs(self, cells: Sequence[Cell], assembled: bool = True) -> list[Config]:
        """The configuration of a run of each cell.

        Raises UserError if a run cannot be made, or if there is no such analysis, or option of one, as is asked for.
        """
        from rlmem.analysis import require_options

        for analysis in self.planned.experiment.analyses:
            require_options(analysis.what, analysis.options)
        theirs = {} if self.trust else foreign(self.runs / CELLS)
        refuse(foreign_lines(chain.from_iterable(theirs.values())), self.runs / CELLS)
        with shipped_options() if theirs else nullcontext():
            return check_jobs([cell.lines(cell.seeds[0]) for cell in cells], assembled=assembled)

    def _analyse(self) -> None:
        """Make the experiment's analyses of every finished run that lacks them."""
        from rlmem.analysis import analyze

        done = [self.runs / job.name for _, _, job in self._listed() if job.state == "done"]
        for run_dir, analysis in product(done, self.planned.experiment.analyses):
            if _is_made(analysis, run_dir):
                continue
            with held(self.runs / ".analysis.lock"):
                if _is_made(analysis, run_dir):  # by another process that shares these runs, in the meantime
                    continue
                try:
                    analyze(analysis.what, run_dir, **analysis.options)
                    rundir.write_atomically(*_note(analysis, run_dir))
                except (UserError, Fault) as error:
                    print(f"{run_dir.name}: {analysis.what}: {error}")

    def _pictures(self, records: Sequence[Record]) -> dict[str, Path]:
        """The pictures of the experiment's analyses, for the first seed of every cell."""
        pictures: dict[str, Path] = {}
        for run, analysis in product(sorted(records, key=lambda run: run.seed), self.planned.experiment.analyses):
            assert run.run_dir is not None
            path = run.run_dir / "analysis" / analysis.what / "picture.svg"
            if _is_made(analysis, run.run_dir) and path.exists():
                pictures.setdefault(" · ".join(filter(None, (analysis.what, run.row, run.column))), path)
        return pictures


def _note(analysis: AnalysisSection, run_dir: Path) -> tuple[Path, str]:
    """The file beside an analysis that holds the options an experiment asked for, and these options as text."""
    from rlmem.analysis.output import ASKED

    return run_dir / "analysis" / analysis.what / ASKED, json.dumps(analysis.options, sort_keys=True)


def _is_made(analysis: AnalysisSection, run_dir: Path) -> bool:
    """Whether the run has this analysis with these options, rather than one made by hand or for another item."""
    note, asked = _note(analysis, run_dir)
    return note.exists() and received.text(note) == asked


def size_remarks(planned: Planned, cells: Sequence[Cell]) -> list[str]:
    """A line about what should be equal: with twins the parameters of the agents, on a leaderboard their states.

    Each agent is measured on its first game. Rows that are far from the one without memory are named.
    """
    twins, rows = planned.experiment.twins, dict.fromkeys(cell.row for cell in cells if cell.row not in planned.twin_of)
    first = [next(cell for cell in cells if cell.row == row) for row in rows]
    if not first or not (twins or planned.experiment.leaderboard):
        return []
    sizes = {cell.row: size_of(cell) for cell in first}
    every = ", ".join(f"{row} {parameters:,} and {numbers:,}" for row, (numbers, parameters) in sizes.items())
    line = f"parameters of the agents and numbers in the states of their memories: {every}"
    without = sizes[twins.memoryless][1] if twins and twins.memoryless in sizes else 0
    unlike = [row for row, (_, parameters) in sizes.items() if without and abs(parameters / without - 1) > ALIKE]
    return [f"{line}; parameters more than {ALIKE:.0%} apart: {', '.join(unlike)}" if unlike else line]


class Populations(Runner):
    """Every cell and seed is one population of agents. Populations are trained one after the other in this process."""

    def check(self, cells: Sequence[Cell], files: bool = True) -> None:
        """Compose the cells, and draw the varied keys of the first one's agents."""
        check_jobs([cell.lines(cell.seeds[0]) for cell in cells])
        for cell in cells[:1]:
            populate(self.specification(cell, cell.seeds[0]))

    def begin(self, cells: Sequence[Cell], options: Options) -> None:
        if replace(options, again=None) != Options():
            problem = "populations are trained one after another in this process; --jobs, --gpus, ... do not apply"
            again = f"rlmem reproduce {shell(self.name)} --budget {self.budget}"
            raise mistake(self.name, problem, example=again)
        self.check(cells)
        self.ask_for("folder", ((cell, seed, cell.label(seed)) for cell in cells for seed in cell.seeds))

    def run(self, cells: Sequence[Cell], options: Options) -> int:
        from rlmem.jobs.population.rounds import train

        code = 0
        for cell, seed in [(c, s) for c in cells for s in c.seeds]:
            place = self.runs / cell.label(seed)
            try:
                start(self.specification(cell, seed), place)
                if not has_ended(place):
                    train(place)
            except Fault as error:
                print(f"{place.name}: {error}")
                code = 1
        return code

    def collect(self) -> Collected:
        """The records, and the curves of the means of the best agents."""
        key, top = curve_key(self.planned.metric), int(self.options.get("top", TOP))
        records, curves = [], []
        for cell in self.read_cells()["cells"]:
            where, place = (cell["row"], cell["column"], cell["seed"]), received.inside(self.runs, cell["folder"])
            records.append(self._record(where, place, top))
            if records[-1].state == "done":
                points = [*zip(*best(place, key, top), strict=True)]
                curves += [Curve(*where, *thinned(points))] if len(points) > 1 else []
        return records, curves, {}

    def cost(self, cells: Sequence[Cell]) -> Cost:
        agents, one = int(self.options.get("agents", PopulationSpec.agents)), cost_of(cells)
        return Cost(agents * one.steps, agents * one.seconds)

    def specification(self, cell: Cell, seed: int) -> PopulationSpec:
        """The population of a cell and seed, as `rlmem population` would train it. Raises UserError."""
        if unknown := [name for name in self.options if name not in ACCEPTED]:
            near = nearest(unknown[0], ACCEPTED)
            raise mistake(f"options: {unknown[0]}", "unknown key", near=near, accepted=ACCEPTED)
        settings = {name: value for name, value in self.options.items() if name not in ("vary", "top")}
        return PopulationSpec(cell.lines(seed), tuple(self.options.get("vary", ())), **settings)

    def _record(self, where: tuple[str, str, int], place: Path, top: int) -> Record:
        agents, metrics = _agents(place), {}
        for metric in dict.fromkeys([self.planned.metric, *self.planned.experiment.also, *BESIDE]):
            key, reduce = made_of(metric)
            steps, values = best(place, key, top)
            if len(values):
                metrics[metric] = reduce(steps, values)
        first = agents[0] if agents else RunRecord(place)
        return Record(
            *where,
            "done" if has_ended(place) else "interrupted" if agents else "waiting",
            metrics,
            steps=sum(agent.last_step for agent in agents),
            seconds=sum(max((s for _, s in agent.series("time/elapsed") if s), default=0) for agent in agents),
            version=first.version,
            commit=first.commit,
            machine=first.machine or machine_class(),
            overrides=" ".join(population_in(place).spec.overrides if holds_population(place) else ()),
        )


def best(place: Path, key: str, top: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Environment steps of each agent, and the mean of the `top` best agents at these steps, both [step].

    They begin where every agent has a value of `key`; an agent keeps its last value until its next one.
    """
    series = [np.array(agent.series(key), np.float64).reshape(-1, 2).T for agent in _agents(place)]
    if not series or not all(steps.size for steps, _ in series):
        return np.empty(0, np.int64), np.empty(0)
    every = np.unique(np.concatenate([steps for steps, _ in series]))
    every = every[every >= max(steps[0] for steps, _ in series)]
    held = np.stack([values[np.searchsorted(steps, every, side="right") - 1] for steps, values in series])
    return every.astype(np.int64), np.sort(held, 0)[-top:].mean(0)


def has_ended(place: Path) -> bool:
    """Whether every agent has spent its budget."""
    return (place / "population.yaml").exists() and all(
        (saved := checkpoints(agent.run_dir).paths())
        and step_of(saved[-1]) >= rundir.read(agent.run_dir)[0]["total_steps"]
        for agent in _agents(place)
    )


def _agents(place: Path) -> list[RunRecord]:
    return [RunRecord(path) for path in sorted(place.glob(f"{AGENT_PREFIX}*"))]
