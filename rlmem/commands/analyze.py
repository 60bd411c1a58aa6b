"""`rlmem analyze`: look into the agent of a run."""

from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlmem.analysis import analyses, analyze, find
from rlmem.commands.toolkit import NOT_FLAGS, Dir, Flag, Natural, Parser, Run, Step, Text, Trust, stdout_to_stderr
from rlmem.core.command import show
from rlmem.core.declared import PLAIN, Option, add_options
from rlmem.core.received import dumps


def run(
    what: Text,
    run: Run | None = None,
    *,
    step: Step = None,
    seed: Natural | None = None,
    out: Dir | None = None,
    json: Flag = False,
    trust: Trust = False,
    **options: Any,
) -> None:
    """Look into the agent of a run: data.csv, summary.json, picture.png and picture.svg in RUN/analysis/WHAT.

    what WHAT: one of the analyses below, or the dotted name of a function
    seed S: root of the random streams (as rlmem eval)
    out: write there (RUN/analysis/WHAT)
    json: print the summary as JSON only

    Examples:
        sensitivity runs/my_run --older-than 10
        extrapolate RUN --over env.n=13,25,50
        hidden RUN --step best --json
        recall RUN --twin TWIN
        impulse --pools 12 --base 2 --out impulse
        my_module.my_analysis RUN
    """
    from rlmem.run.stored import checkpoint_of

    run_dir, step = (None, step) if run is None else checkpoint_of(run, step)
    with stdout_to_stderr():
        summary = analyze(what, run_dir, step, seed, out, trust, **options)
    row = summary.row()
    show(dumps(row, indent=2) if json else _table(row, summary.folder))


def extend(parser: Parser, words: Sequence[str]) -> None:
    """Add the options of analyses: of the one that is named, if it is the user's own, and of those that are shipped."""
    shipped = analyses()
    named = next((word for word in words if not word.startswith("-")), "")
    declared = ({named: find(named)} if "." in named else {}) | shipped
    listed = "\n".join(f"  {name:<15} {it.purpose}" for name, it in shipped.items())
    parser.description = f"{parser.description}\n\n{listed}"
    group = parser.add_argument_group("options of single analyses", argument_default=SUPPRESS)
    taken = {*parser.names, *NOT_FLAGS, "help"}
    for name in dict.fromkeys(name for it in declared.values() for name in it.options if name not in taken):
        users = {analysis: it.options[name] for analysis, it in declared.items() if name in it.options}
        meaning = "; ".join(f"{analysis}{described(option)}" for analysis, option in users.items())
        first = next(iter(users.values()))
        add_options(group, [first._replace(meaning=meaning, metavar="", default=None)], PLAIN)


def described(option: Option) -> str:
    """The default of an option, if it is a value, and its meaning."""
    default = "" if option.default in (None, False) else f" ({option.default})"
    return default + (f": {option.meaning}" if option.meaning else "")


def _table(row: dict[str, Any], folder: Path) -> str:
    where = "" if row["step"] is None else f" of {row['run']} at step {row['step']:,}"
    width = max(map(len, row["metrics"]))
    lines = [f"{row['analysis']}{where}", *(f"  {name:<{width}} {value:.6g}" for name, value in row["metrics"].items())]
    return "\n".join([*lines, f"written to {folder}: {', '.join((*row['files'], 'summary.json'))}"])
