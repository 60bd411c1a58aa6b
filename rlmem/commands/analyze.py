"""`rlmem analyze`: look into the agent of a run."""

from argparse import SUPPRESS
from copy import deepcopy
from pathlib import Path
from typing import Any

from rlmem.analysis.declared import Analysis, Option, analyses, find
from rlmem.commands.toolkit import Arguments, Parser, integer_from, stdout_to_stderr
from rlmem.system.command import show
from rlmem.system.strictjson import dumps

COMMON = ("what", "run", "step", "seed", "out", "json", "debug", "trust")
"""Flags of every analysis; the others are options of single analyses."""
KINDS: dict[str, dict[str, Any]] = {
    "int": {"type": integer_from(1), "metavar": "N"},
    "float": {"type": float, "metavar": "X"},
    "bool": {"action": "store_true"},
    "Path": {"type": Path, "metavar": "PATH"},
    "str": {"metavar": "TEXT"},
}
"""Type of an option -> how its flag is read."""


class AnalysisParser(Parser):
    """A parser that takes the flags of an analysis from its declaration."""

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; flags of an analysis of the user's own replace those of the same name."""
        named = next((word for word in args or () if not word.startswith("-")), "")
        parser = deepcopy(self) if "." in named else self
        if parser is not self:
            parser.conflict_handler = "resolve"
            parser.add_options({named: find(named)})
        return super(AnalysisParser, parser).parse_intermixed_args(args, namespace)

    def add_options(self, declared: dict[str, Analysis]) -> None:
        """Add a flag for each option of some analyses."""
        group = self.add_argument_group("options of single analyses", argument_default=SUPPRESS)
        for option in dict.fromkeys(option for analysis in declared.values() for option in analysis.options):
            users = {name: it.options[option] for name, it in declared.items() if option in it.options}
            help = "; ".join(f"{name}{described(one)}" for name, one in users.items())
            kind = KINDS.get(next(iter(users.values())).kind, KINDS["str"])
            group.add_argument(f"--{option.replace('_', '-')}", **kind, help=help.replace("%", "%%"))


def described(option: Option) -> str:
    """The default of an option, if it is a value, and what it means."""
    default = "" if option.default in (None, False) else f" ({option.default})"
    return default + (f": {option.meaning}" if option.meaning else "")


PARSER = AnalysisParser(
    "analyze",
    "Look into the agent of a run: data.csv, summary.json, picture.png and picture.svg in RUN/analysis/WHAT.\n\n"
    + "\n".join(f"  {name:<15} {analysis.purpose}" for name, analysis in analyses().items()),
    "sensitivity runs/my_run --older-than 10",
    "extrapolate RUN --over env.n=13,25,50",
    "hidden RUN --step best --json",
    "recall RUN --twin TWIN",
    "impulse --pools 12 --base 2 --out impulse",
    "my_module.my_analysis RUN",
)
PARSER.add_argument("what", metavar="WHAT", help=f"{', '.join(analyses())}, or the dotted name of a function")
PARSER.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a run directory")
PARSER.add_step()
PARSER.add_argument("--seed", type=integer_from(0), metavar="S", help="root of the random streams (as rlmem eval)")
PARSER.add_argument("--out", type=Path, metavar="DIR", help="write there (RUN/analysis/WHAT)")
PARSER.add_argument("--json", action="store_true", help="print the summary as JSON only")
PARSER.add_trust()
PARSER.add_options(analyses())


def run(args: Arguments) -> None:
    from rlmem.analysis import analyze
    from rlmem.run.stored import checkpoint_of

    run_dir, step = (None, args.step) if args.run is None else checkpoint_of(args.run, args.step)
    options = {name: value for name, value in vars(args).items() if name not in COMMON}
    with stdout_to_stderr():
        summary = analyze(args.what, run_dir, step, args.seed, args.out, args.trust, **options)
    row = summary.row()
    show(dumps(row, indent=2) if args.json else _table(row, summary.folder))


def _table(row: dict[str, Any], folder: Path) -> str:
    where = "" if row["step"] is None else f" of {row['run']} at step {row['step']:,}"
    width = max(map(len, row["metrics"]))
    lines = [f"{row['analysis']}{where}", *(f"  {name:<{width}} {value:.6g}" for name, value in row["metrics"].items())]
    return "\n".join([*lines, f"written to {folder}: {', '.join((*row['files'], 'summary.json'))}"])
