"""Items whose runs are populations of agents. The result of one is the mean of its best few agents at every step."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlmem.config.messages import mistake, nearest, shell
from rlmem.errors import Fault
from rlmem.evidence.cost import Cost, cost_of
from rlmem.evidence.experiment import Cell
from rlmem.evidence.metrics import BESIDE, curve_key, made_of
from rlmem.evidence.records import Curve, Record
from rlmem.evidence.runner import Collected, Runner
from rlmem.population.spec import PopulationSpec, holds_population, populate, read, start
from rlmem.record import rundir
from rlmem.record.checkpoint import step_of
from rlmem.record.facts import RunRecord
from rlmem.run.stored import AGENT_PREFIX, checkpoints
from rlmem.sweep.multirun import check_jobs
from rlmem.sweep.run import Options
from rlmem.system.hardware import machine_class
from rlmem.system.received import inside

TOP = 3
"""How many agents the result is the mean of (Stepleton et al. 2018, arXiv:1805.04955, caption of figure 5)."""
ACCEPTED = ("vary", "agents", "ready", "window", "every", "level", "top")
"""The options of an experiment with populations: those of `rlmem population`, and `top`."""
POINTS = 200
"""The greatest number of points that are kept of a curve."""


class Populations(Runner):
    """Every cell and seed is one population of agents. Populations are trained one after the other in this process."""

    def check(self, cells: Sequence[Cell], files: bool = True) -> None:
        """Compose the cells, and draw the varied keys of the first one's agents."""
        check_jobs([cell.lines(cell.seeds[0]) for cell in cells])
        for cell in cells[:1]:
            populate(self.specification(cell, cell.seeds[0]))

    def begin(self, cells: Sequence[Cell], options: Options) -> None:
        if replace(options, again=None) != Options():
            what = "a population is trained after the other, in this process; it takes none of --jobs, --gpus, ..."
            again = f"rlmem reproduce {shell(self.name)} --budget {self.budget}"
            raise mistake(self.name, what, example=again)
        self.check(cells)
        self.ask_for("folder", ((cell, seed, cell.label(seed)) for cell in cells for seed in cell.seeds))

    def run(self, cells: Sequence[Cell], options: Options) -> int:
        from rlmem.population.rounds import train

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
        """The records, and curves with at most POINTS of their points."""
        key, top = curve_key(self.planned.metric), int(self.options.get("top", TOP))
        records, curves = [], []
        for cell in self.read_cells()["cells"]:
            where, place = (cell["row"], cell["column"], cell["seed"]), inside(self.runs, cell["folder"])
            records.append(self._record(where, place, top))
            if records[-1].state == "done":
                steps, values = best(place, key, top)
                kept = np.unique(np.linspace(0, max(len(steps) - 1, 0), POINTS).astype(int))[: len(steps)]
                curves += [Curve(*where, steps[kept].tolist(), values[kept].tolist())] if len(kept) > 1 else []
        return records, curves, {}

    def cost(self, cells: Sequence[Cell]) -> Cost:
        agents, one = int(self.options.get("agents", PopulationSpec.agents)), cost_of(cells)
        return Cost(agents * one.steps, agents * one.seconds, agents * one.alike)

    def specification(self, cell: Cell, seed: int) -> PopulationSpec:
        """The population of a cell and seed, as `rlmem population` would train it. Raises UserError."""
        if unknown := [name for name in self.options if name not in ACCEPTED]:
            near = nearest(unknown[0], ACCEPTED)
            raise mistake(f"options: {unknown[0]}", "unknown key", near=near, accepted=ACCEPTED)
        given = {name: value for name, value in self.options.items() if name not in ("vary", "top")}
        return PopulationSpec(cell.lines(seed), tuple(self.options.get("vary", ())), **given)

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
            overrides=" ".join(read(place).spec.overrides if holds_population(place) else ()),
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
