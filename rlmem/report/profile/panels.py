"""The panels of a profile: each is a task and two of its dials, three values of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

KEYS = ("env", "env.items", "env.delay", "env.rewrites", "env.evaluation")
"""What tells a cell of a profile from the others, as keys of a run."""

BASE = {
    "algo": "classify",
    "algo.reset": "true",
    "algo.truncation": "128",
    "algo.batch_size": "16",
    "algo.lr": "0.003",
    "algo.max_grad_norm": "1",
    "algo.record_every": "100000",
    "total_steps": "1000000",
    "evaluation.every": "${total_steps}",  # once, at the end
    "evaluation.episodes": "256",
    "checkpoint.every": "null",
    "seed": "0",
}
"""What all cells have in common, unless the command says otherwise."""

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
    values: tuple[int, ...]
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


PANELS = (
    Panel(
        "hold",
        "copy",
        Dial("delay", (4, 16, 64), "slots held"),
        Dial("items", (1, 4, 16), "symbols"),
        "A list of symbols is held, then named: how much, and how long.",
    ),
    Panel(
        "beyond",
        "copy",
        Dial("evaluated", (16, 64, 256), "slots held in evaluation"),
        Dial("delay", (2, 4, 8), "slots held in training"),
        "One symbol, replaced three times, is held far longer than it ever was in training.",
        {"items": 1, "rewrites": 3},
    ),
    Panel(
        "rewrite",
        "copy",
        Dial("rewrites", (1, 7, 31), "times replaced"),
        Dial("delay", (1, 8, 32), "slots held"),
        "Two symbols are held, asked for and replaced, again and again.",
        {"items": 2},
    ),
    Panel(
        "associate",
        "associative_recall",
        Dial("rewrites", (0, 4, 16), "values replaced"),
        Dial("items", (2, 4, 8), "keys"),
        "Values are held under their keys, and some of them are replaced without the others.",
    ),
    Panel(
        "n-back",
        "n_back",
        Dial("delay", (0, 3, 15), "distractors per letter"),
        Dial("items", (1, 2, 4), "letters back"),
        "A window of letters moves on with every letter, through distractors.",
        {"rewrites": 15},
    ),
    Panel(
        "count",
        "counting",
        Dial("delay", (4, 16, 64), "empty slots"),
        Dial("items", (1, 2, 4), "kinds"),
        "Tokens of several kinds are counted, and the counts begin again at zero seven times.",
        {"rewrites": 7},
    ),
    Panel(
        "combine",
        "memory_demand",
        Dial("delay", (1, 4, 16), "slots back"),
        Dial("items", (1, 2, 3), "letters added"),
        "The answer is the sum of chosen letters of the past: which, and how far back.",
        {"rewrites": 31},
    ),
)
