"""`rlmem report`: write one page about reproductions, sweeps and runs."""

from pathlib import Path

from rlmem.commands.toolkit import Dir, Folders, OutFile, Text
from rlmem.core.command import show
from rlmem.core.errors import writing


def run(
    folders: Folders,
    *,
    out: OutFile | None = None,
    title: Text = "What was run",
    markdown: OutFile | None = None,
    data: OutFile | None = None,
    latex: Dir | None = None,
) -> None:
    """Write one HTML page about reproductions, published results, sweeps and runs: learning curves, tables beside
    the papers' numbers, verdicts, and the runs with their configurations. The page is a single file.

    folders: such directories, or folders of them
    out: the file to write (report.html)
    title: title of the page
    markdown: write published results as Markdown instead, with pictures of curves and checksums beside them
    data: write all numbers of published results as one CSV file, with gzip, such as results.csv.gz
    latex FOLDER: write the tables of published results as LaTeX, and their curves as PDF, into FOLDER/<paper>

    Examples:
        reproduce
        results sweeps/my_sweep --out report.html
        runs/2026-01-31 --title "All of January"
        results --markdown RESULTS.md      what is published, as Markdown
        results --data results.csv.gz      all of its numbers as one file
        results --latex paper              its tables as LaTeX, and its curves as PDF
    """
    from rlmem.evidence.page import documents
    from rlmem.evidence.page.curves import require_matplotlib
    from rlmem.evidence.page.documents import SUMS, checksums, data_text, page
    from rlmem.evidence.page.find import find, published
    from rlmem.evidence.records import compressed
    from rlmem.record import rundir

    require_matplotlib()
    sections = find(folders)
    files: list[tuple[Path, str | bytes, str]] = []
    if markdown:
        files.append((markdown, documents.markdown(sections, markdown), "--markdown /tmp/RESULTS.md"))
        files += [(folder / SUMS, checksums(folder), "a copy of the folder") for folder in folders]
    if data:
        text = data_text(published(sections, "rlmem report results --data results.csv.gz"))
        files.append((data, compressed(text), "--data /tmp/results.csv.gz"))
    if out or not (markdown or data or latex):
        files.append((out or Path("report.html"), page(sections, title), "--out /tmp/report.html"))
    for path, content, example in files:
        with writing(path, example):
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                rundir.write_atomically(path, content)
        show(f"wrote {path}")
    for line in (line for section in sections for line in section.left_out):
        show(line)
    if latex:
        for path in documents.write_latex(published(sections, "rlmem report results --latex paper"), latex):
            show(f"wrote {path}")
