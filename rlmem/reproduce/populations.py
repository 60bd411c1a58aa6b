"""Items whose runs are populations of agents, each with its result: the mean of the best few at every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.config.messages import nearest, sentence
from rlmem.errors import Fault, UserError, extra
from rlmem.record import rundir
from rlmem.record.checkpoint import step_of
from rlmem.reproduce.cells import Cell
from rlmem.reproduce.metrics import BESIDE, curve_key, made_of, record
from rlmem.reproduce.outcome import Curve, Outcome, Record, short
from rlmem.reproduce.spec import Experiment
from rlmem.run.stored import AGENT_PREFIX, checkpoints
from rlmem.sweep.multirun import check_jobs
from rlmem.system.hardware import machine_class

TOP = 3
"""Agents whose mean is the result of a population (Stepleton et al. 2018, arXiv:1805.04955, caption of figure 5)."""
ASKED = ("vary", "agents", "ready", "window", "every", "level", "top")
"""The options of an experiment that is made of populations: those of `rlmem population`, and `top`."""
POINTS = 200
"""Of a curve that is kept."""

Result = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Environment steps of each agent, and what the best had there."""


def specification(experiment: Experiment, budget: str, cell: Cell, seed: int) -> Any:
    """The population of a cell and seed, as `rlmem population` would be asked for it. Raises UserError."""
    from rlmem.population.spec import PopulationSpec

    options = _options(experiment, budget)
    if unknown := [name for name in options if name not in ASKED]:
        near = nearest(unknown[0], ASKED)
        raise UserError(sentence(f"options: {unknown[0]}", "unknown key", near=near, accepted=ASKED))
    given = {name: value for name, value in options.items() if name not in ("vary", "top")}
    return PopulationSpec(cell.lines(seed), tuple(options.get("vary", ())), **given)


def agents_of(experiment: Experiment, budget: str) -> int:
    """Agents of each population."""
    from rlmem.population.spec import PopulationSpec

    return int(_options(experiment, budget).get("agents", PopulationSpec.agents))


def check(experiment: Experiment, budget: str, planned: Sequence[Cell]) -> None:
    """Compose the cells, and draw what the agents of one differ in. Raises UserError."""
    from rlmem.population.spec import populate

    check_jobs([cell.lines(cell.seeds[0]) for cell in planned])
    for cell in planned[:1]:
        populate(specification(experiment, budget, cell, cell.seeds[0]))


def run(experiment: Experiment, budget: str, planned: Sequence[Cell], folder: Path) -> int:
    """Train a population for every cell and seed in `folder`, one after the other, from wherever each is.

    1 if one of them failed, else 0. Raises UserError, and Stopped after a signal, with everything saved.
    """
    if find_spec("scipy") is None:
        raise UserError(f"run: population: needs SciPy, which is not installed; e.g. {extra('population')}")
    from rlmem.population import rounds

    code = 0
    for cell in planned:
        for seed in cell.seeds:
            place = folder / cell.label(seed)
            try:
                rounds.start(specification(experiment, budget, cell, seed), place)
                if not ended(place):
                    rounds.train(place)
            except Fault as error:
                print(f"{place.name}: {error}")
                code = 1
    return code


def collect(
    name: str, experiment: Experiment, budget: str, folder: Path, listed: Sequence[Mapping[str, Any]]
) -> Outcome:
    """One record per population that was asked for.

    listed: `row`, `column`, `seed`, and the name of its `folder` in `folder`
    """
    top = int(_options(experiment, budget).get("top", TOP))
    key = curve_key(experiment.metric)
    records, curves = [], []
    for cell in listed:
        row, column, seed, place = cell["row"], cell["column"], cell["seed"], folder / cell["folder"]
        records.append(_record(experiment, row, column, seed, place, top))
        if records[-1].state == "done":
            steps, values = best(place, key, top)
            kept = np.unique(np.linspace(0, max(len(steps) - 1, 0), POINTS).astype(int))[: len(steps)]
            curves.append(Curve(row, column, seed, steps[kept].tolist(), values[kept].tolist()))
    return Outcome(name, experiment, budget, records, [curve for curve in curves if len(curve.steps) > 1])


def best(place: Path, key: str, top: int) -> Result:
    """The mean of the `top` best agents at every step, from the one on at which every agent has a value of `key`."""
    series = [_series(run_dir, key) for run_dir in _agents(place)]
    if not series or not all(len(steps) for steps, _ in series):
        return np.empty(0, np.int64), np.empty(0)
    begin = max(steps[0] for steps, _ in series)
    every = np.unique(np.concatenate([steps for steps, _ in series]))
    every = every[every >= begin]
    held = np.stack([values[np.searchsorted(steps, every, side="right") - 1] for steps, values in series])
    return every, np.sort(held, 0)[-top:].mean(0)


def ended(place: Path) -> bool:
    """Whether every agent has spent its budget."""
    return (place / "population.yaml").exists() and all(
        (saved := checkpoints(run_dir).paths()) and step_of(saved[-1]) >= rundir.read(run_dir)[0]["total_steps"]
        for run_dir in _agents(place)
    )


def _options(experiment: Experiment, budget: str) -> dict[str, Any]:
    return {**experiment.options, **experiment.budget(budget).options}


def _agents(place: Path) -> list[Path]:
    return sorted(place.glob(f"{AGENT_PREFIX}*"))


def _series(run_dir: Path, key: str) -> Result:
    """Steps and values of a key in an agent's record."""
    points = [(line["step"], line[key]) for line in record(run_dir) if key in line and "step" in line]
    steps, values = zip(*points, strict=True) if points else ((), ())
    return np.array(steps, np.int64), np.array(values, np.float64)


def _record(experiment: Experiment, row: str, column: str, seed: int, place: Path, top: int) -> Record:
    lines = [list(record(run_dir)) for run_dir in _agents(place)]
    state = "done" if ended(place) else "interrupted" if lines else "waiting"
    about = rundir.read(_agents(place)[0])[1] if lines else {}
    return Record(
        row, column, seed, state,
        metrics=dict(_metrics(experiment, place, top)),
        steps=sum(max((line["step"] for line in own if "step" in line), default=0) for own in lines),
        seconds=sum(max((line["time/elapsed"] for line in own if "time/elapsed" in line), default=0) for own in lines),
        version=about.get("rlmem", ""),
        commit=short(about.get("git")),
        machine=about.get("machine") or machine_class(),
        overrides=" ".join(_overrides(place)),
        run_dir=None,
    )  # fmt: skip


def _metrics(experiment: Experiment, place: Path, top: int) -> Iterator[tuple[str, float]]:
    for metric in dict.fromkeys([experiment.metric, *experiment.also, *BESIDE]):
        key, reduce = made_of(metric)
        values = best(place, key, top)[1]
        if len(values):
            yield metric, reduce(values)


def _overrides(place: Path) -> Sequence[str]:
    from rlmem.population.spec import holds_population, read

    return read(place).spec.overrides if holds_population(place) else ()
