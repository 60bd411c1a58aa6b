"""`rlmem report`: one page about everything that was run, and RESULTS.md."""

from pathlib import Path

from rlmem.commands.toolkit import Arguments, Parser, out_file
from rlmem.errors import writing

PARSER = Parser(
    "report",
    "Write one HTML page about reproductions, published results, sweeps and runs: learning curves, tables beside\n"
    "the papers' numbers, verdicts, and the runs with their configurations. The page is a single file.",
    "reproduce",
    "results sweeps/my_sweep --out report.html",
    'runs/2026-01-31 --title "All of January"',
    "results --markdown RESULTS.md      what is published, as Markdown",
)
PARSER.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="such directories, or folders of them")
PARSER.add_argument("--out", type=out_file, metavar="FILE", help="the file to write (report.html)")
PARSER.add_argument("--title", default="What was run", help="title of the page (What was run)")
instead = "write published results as Markdown instead, with the curves as pictures beside them"
PARSER.add_argument("--markdown", type=out_file, metavar="FILE", help=instead)


def run(args: Arguments) -> None:
    from rlmem.record import rundir
    from rlmem.report.draw import require_matplotlib
    from rlmem.report.find import find
    from rlmem.report.markdown import markdown
    from rlmem.report.page import page

    require_matplotlib()
    sections = find(args.folders)
    made = []
    if args.markdown:
        made.append((args.markdown, markdown(sections, args.markdown), "--markdown /tmp/RESULTS.md"))
    if args.out or not args.markdown:
        made.append((args.out or Path("report.html"), page(sections, args.title), "--out /tmp/report.html"))
    for path, text, example in made:
        with writing(path, example):
            path.parent.mkdir(parents=True, exist_ok=True)
            rundir.write_atomically(path, text)
        print(f"wrote {path}")
