"""How items stand: the verdict, the runs and the commits of the results that are shipped."""

from collections.abc import Sequence
from dataclasses import dataclass

from rlmem.evidence.catalog import find, names
from rlmem.evidence.cells import cells
from rlmem.evidence.outcome import Outcome, shipped_records
from rlmem.evidence.spec import BUDGETS, Experiment
from rlmem.evidence.verdict import Word, judge
from rlmem.stats.tables import Table


@dataclass(frozen=True)
class Standing:
    """The shipped results of an item at a budget.

    word: the verdict; `not run` where there are no results, or too few
    done, planned: how many runs have ended, and how many belong to the item
    commits: the commits of rlmem that made them; `+changes` marks code that is in none
    """

    word: Word
    done: int
    planned: int
    commits: tuple[str, ...] = ()

    def __str__(self) -> str:
        runs = f"{self.word}, {self.done} of {self.planned} runs"
        return f"{runs}, commit {', '.join(self.commits)}" if self.commits else runs


def standing(name: str, experiment: Experiment, budget: str) -> Standing:
    """How an item stands at a budget."""
    planned = sum(len(cell.seeds) for cell in cells(experiment, budget))
    records = shipped_records(name, budget)
    if not records:
        return Standing("not run", 0, planned)
    outcome = Outcome(name, experiment, budget, records)
    commits = sorted({record.commit or "unknown" for record in outcome.ours})
    return Standing(judge(outcome).word, len(outcome.ours), planned, tuple(commits))


def table(chosen: Sequence[str] = ()) -> Table:
    """A line for every item at every budget that has results, or at `laptop` where none has.

    chosen: these papers and items alone
    """
    lines = []
    for name in names(chosen):
        experiment = find(name)[1]
        every = {budget: standing(name, experiment, budget) for budget in BUDGETS}
        for budget, found in every.items():
            if found.done or (budget == "laptop" and not any(one.done for one in every.values())):
                runs = f"{found.done} of {found.planned}"
                lines.append([f"`{name}`", budget, found.word, runs, ", ".join(found.commits)])
    return Table("", ["item", "budget", "verdict", "runs", "commit"], lines)
