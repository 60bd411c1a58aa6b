"""Write the parts of documents that repeat results: `python docs/site/counted.py`.

README.md and docs/index.md show the summary of RESULTS.md, and pages of docs rank what was published.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from rlmem.evidence.page import leaderboard
from rlmem.evidence.page.find import find, published

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = ("README.md", "docs/index.md")
BEGIN, END = "<!-- counted:begin -->\n\n", "\n<!-- counted:end -->"


def summary(results: str) -> str:
    """The summary of RESULTS.md without its lines for single papers."""
    (lines,) = re.findall(r"^(\|  \| items \|.*\n\|.*\n)(?:\|.*\n)*(\| all \|.*\n)", results, re.MULTILINE)
    return "".join(lines)


def counted(text: str, results: str) -> str:
    """The document with the summary between its comments."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected {BEGIN.strip()} and {END}")
    return f"{before}{begin}{summary(results)}{end}{after}"


def ranked(folder: Path) -> Iterator[Path]:
    """Write the rankings of the results in a folder, with their pictures, into the pages that show them."""
    items = published(find([folder / "results"]), "rlmem report results --markdown RESULTS.md")
    for page, board in leaderboard.rankings(items, folder).items():
        yield from leaderboard.page(board.outcome, page)


if __name__ == "__main__":
    results = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    for path in map(ROOT.joinpath, DOCUMENTS):
        path.write_text(counted(path.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    for path in ranked(ROOT):
        print(f"wrote {path.relative_to(ROOT)}")
