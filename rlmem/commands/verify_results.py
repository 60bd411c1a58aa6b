"""`rlmem verify-results`: what is published, recomputed from its data."""

from pathlib import Path

from rlmem.commands.toolkit import Arguments, Parser
from rlmem.system.command import show

PARSER = Parser(
    "verify-results",
    "Recompute the metrics of all runs, the tables, verdicts and rankings, and the pictures of published results from\n"
    "the data they are made of, and name what differs and what cannot be recomputed. The exit code is 1 if anything\n"
    "differs, or nothing could be recomputed.",
    "",
    "results",
    "results --no-pictures      seconds instead of a minute",
)
where = "published results (results, or those that rlmem ships)"
PARSER.add_argument("folder", nargs="?", type=Path, metavar="DIR", help=where)
written = "the document that `rlmem report DIR --markdown` wrote (RESULTS.md beside DIR)"
PARSER.add_argument("--markdown", type=Path, metavar="FILE", help=written)
PARSER.add_argument("--no-pictures", action="store_true", help="do not draw the learning curves again")


def run(args: Arguments) -> int:
    from rlmem.config.paths import results_dir
    from rlmem.evidence.page.verify import verify

    folder = args.folder or (Path("results") if Path("results").is_dir() else results_dir() or Path("results"))
    found = verify(folder, args.markdown, pictures=not args.no_pictures)
    for line in found.notes:
        show(f"note     {line}")
    for line in found.differs:
        show(f"differs  {line}")
    counted = f"{found.items} items, {found.runs:,} runs: {found.numbers:,} numbers recomputed"
    drawn = f", {found.pictures} pictures drawn again" if found.pictures else ""
    show(f"{counted}{drawn}; {len(found.differs) or 'nothing'} differs")
    return 1 if found.differs else 0
