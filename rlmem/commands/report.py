"""`rlmem report`: one page about everything that was run, and RESULTS.md."""

from pathlib import Path

from rlmem.commands.toolkit import Arguments, Parser, folder, out_file
from rlmem.errors import writing
from rlmem.system.command import show

PARSER = Parser(
    "report",
    "Write one HTML page about reproductions, published results, sweeps and runs: learning curves, tables beside\n"
    "the papers' numbers, verdicts, and the runs with their configurations. The page is a single file.",
    "reproduce",
    "results sweeps/my_sweep --out report.html",
    'runs/2026-01-31 --title "All of January"',
    "results --markdown RESULTS.md      what is published, as Markdown",
    "results --data results.csv.gz      all of its numbers as one file",
    "results --latex paper              its tables as LaTeX, and its curves as PDF",
)
PARSER.add_argument("folders", nargs="+", type=folder, metavar="DIR", help="such directories, or folders of them")
PARSER.add_argument("--out", type=out_file, metavar="FILE", help="the file to write (report.html)")
PARSER.add_argument("--title", default="What was run", help="title of the page (What was run)")
instead = "write published results as Markdown instead, with pictures of curves and checksums beside them"
PARSER.add_argument("--markdown", type=out_file, metavar="FILE", help=instead)
one = "write all numbers of published results as one CSV file, with gzip, such as results.csv.gz"
PARSER.add_argument("--data", type=out_file, metavar="FILE", help=one)
tex = "write the tables of published results as LaTeX, and their curves as PDF, into FOLDER/<paper>"
PARSER.add_argument("--latex", type=Path, metavar="FOLDER", help=tex)


def run(args: Arguments) -> None:
    from rlmem.evidence.page.curves import require_matplotlib
    from rlmem.evidence.page.documents import SUMS, checksums, data_text, markdown, write_latex
    from rlmem.evidence.page.find import find, published
    from rlmem.evidence.page.html import page
    from rlmem.evidence.records import compressed
    from rlmem.record import rundir

    require_matplotlib()
    sections = find(args.folders)
    made: list[tuple[Path, str | bytes, str]] = []
    if args.markdown:
        made.append((args.markdown, markdown(sections, args.markdown), "--markdown /tmp/RESULTS.md"))
        made += [(folder / SUMS, checksums(folder), "a copy of the folder") for folder in args.folders]
    if args.data:
        text = data_text(published(sections, "rlmem report results --data results.csv.gz"))
        made.append((args.data, compressed(text), "--data /tmp/results.csv.gz"))
    if args.out or not (args.markdown or args.data or args.latex):
        made.append((args.out or Path("report.html"), page(sections, args.title), "--out /tmp/report.html"))
    for path, content, example in made:
        with writing(path, example):
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                rundir.write_atomically(path, content)
        show(f"wrote {path}")
    for line in (line for section in sections for line in section.left_out):
        show(line)
    if args.latex:
        for path in write_latex(published(sections, "rlmem report results --latex paper"), args.latex):
            show(f"wrote {path}")
