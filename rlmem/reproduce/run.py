"""The runner of an item."""

from pathlib import Path

from rlmem.reproduce.measure import Measured
from rlmem.reproduce.place import Place
from rlmem.reproduce.populations import Populations
from rlmem.reproduce.runner import Runner
from rlmem.reproduce.spec import Experiment
from rlmem.reproduce.training import Training

RUNNERS: dict[str, type[Runner]] = {"train": Training, "population": Populations}
"""Value of `run` in an experiment -> its runner; any other value is a measurement."""


def runner_at(experiment: Experiment, where: Place) -> Runner:
    """The runner of an experiment in given directories. Raises UserError if it has no such budget."""
    return RUNNERS.get(experiment.at(where.budget).run, Measured)(experiment, where)


def runner_of(name: str, experiment: Experiment, budget: str, root: Path = Path("reproduce")) -> Runner:
    """The runner of an experiment below the directory of all reproductions.

    name: `<paper>/<item>`
    budget: the name of the budget
    root: the directory of all reproductions

    Raises UserError if the experiment has no such budget.
    """
    return runner_at(experiment, Place.below(root, name, experiment, budget))
