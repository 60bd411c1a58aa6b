"""`rlmem analyze`: look into the agent of a run."""

from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from rlmem.analysis import ANALYSES
from rlmem.commands.toolkit import Arguments, Parser, integer_from, stdout_to_stderr
from rlmem.system.command import show
from rlmem.system.strictjson import dumps

COMMON = ("what", "run", "step", "seed", "out", "json", "debug", "trust")
"""Flags of every analysis; the others are options of single analyses."""

PARSER = Parser(
    "analyze",
    "Look into the agent of a run: data.csv, summary.json, picture.png and picture.svg in RUN/analysis/WHAT.\n\n"
    + "\n".join(f"  {name:<15} {text}" for name, text in ANALYSES.items()),
    "sensitivity runs/my_run --older-than 10",
    "extrapolate RUN --over env.n=13,25,50",
    "hidden RUN --step best --json",
    "recall RUN --twin TWIN",
    "impulse --pools 12 --base 2 --out impulse",
)
PARSER.add_argument("what", metavar="WHAT", help=", ".join(ANALYSES))
PARSER.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a run directory")
PARSER.add_step()
PARSER.add_argument("--seed", type=integer_from(0), metavar="S", help="root of the random streams (as rlmem eval)")
PARSER.add_argument("--out", type=Path, metavar="DIR", help="write there (RUN/analysis/WHAT)")
PARSER.add_argument("--json", action="store_true", help="print the summary as JSON only")
PARSER.add_trust()
own, one = PARSER.add_argument_group("options of single analyses", argument_default=SUPPRESS), integer_from(1)
own.add_argument("--episodes", type=one, metavar="N", help="episodes, greedy but for markov (not ffm, impulse)")
own.add_argument("--older-than", type=one, metavar="K", help="sensitivity: age in slots (10)")
own.add_argument("--all-checkpoints", action="store_true", help="sensitivity: a map over training")
own.add_argument("--twin", type=Path, metavar="RUN", help="markov, recall: a run with env.observe=full")
own.add_argument("--slots", type=one, metavar="N", help="demand: slots (40); multistability: input (10000)")
own.add_argument("--frames", type=one, metavar="N", help="contamination: noisy frames per episode (16)")
own.add_argument("--noise", type=float, metavar="S", help="contamination: standard deviation (1)")
own.add_argument("--after", type=one, metavar="K", help="multistability: slots read before (10)")
own.add_argument("--neutral", metavar="INPUT", help="multistability: usual, or zero")
own.add_argument("--beta", type=float, metavar="B", help="ffm: remaining fraction of a trace (0.1)")
own.add_argument("--points", type=one, metavar="N", help="hidden: points (2000); probe: slots to fit to (1000)")
own.add_argument("--perplexity", type=float, metavar="P", help="hidden: perplexity of t-SNE (30)")
own.add_argument("--over", metavar="env.KEY=V1,V2", help="extrapolate: the environments")
own.add_argument("--pools", type=one, metavar="K", help="impulse without a run: pools (12)")
own.add_argument("--base", type=float, metavar="B", help="impulse without a run: base (2)")
own.add_argument("--string", metavar="TEXT", help="impulse: also the traces of this string")
own.add_argument("--other", metavar="TEXT", help="impulse: also the difference from this one")


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
