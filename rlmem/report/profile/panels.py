"""The panels of a profile, from panels.yaml: each is a task and two of its dials, three values of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlmem.config import plainyaml

KEYS = ("env", "env.items", "env.delay", "env.rewrites", "env.evaluation")
"""What tells a cell of a profile from the others, as keys of a run."""

WIDTH = 64
"""The width of every memory, unless the command says otherwise."""


@dataclass(frozen=True)
class Dial:
    """One axis of a panel.

    key: `items`, `delay` or `rewrites` of the task, or `evaluated`: the delay of the evaluation
    values: in the order in which they are drawn
    label: what it counts, below or beside the axis
    """

    key: str
    values: Sequence[int]
    label: str


@dataclass(frozen=True)
class Panel:
    """A task and two of its dials.

    name: in tables and files
    env: the task
    across, up: the dials along the horizontal and the vertical axis
    says: what the panel measures, in a sentence
    fixed: the dials that it leaves alone; those that are in none of the three are 0
    """

    name: str
    env: str
    across: Dial
    up: Dial
    says: str
    fixed: Mapping[str, int] = field(default_factory=dict)

    def cells(self) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """(value across, value up, values of KEYS) of every cell."""
        for up in self.up.values:
            for across in self.across.values:
                dials = {"items": 1, "delay": 0, "rewrites": 0, **self.fixed}
                dials |= {self.across.key: across, self.up.key: up}
                evaluated = f"{{delay:{dials['evaluated']}}}" if "evaluated" in dials else "{}"
                yield across, up, (self.env, *(str(dials[key.removeprefix("env.")]) for key in KEYS[1:4]), evaluated)


DATA = plainyaml.read(Path(__file__).with_name("panels.yaml"))
BASE: dict[str, str] = DATA["base"]
"""What all cells have in common, unless the command says otherwise."""
PANELS = tuple(
    Panel(name, panel["env"], Dial(*panel["across"]), Dial(*panel["up"]), panel["says"], panel.get("fixed", {}))
    for name, panel in DATA["panels"].items()
)
"""The panels in the order in which they are drawn."""
