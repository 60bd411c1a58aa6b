"""What documents repeat of the results: `python docs/site/counted.py` writes it.

README.md and docs/index.md say how many items of RESULTS.md came out how, and pages of docs rank what was published.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from rlmem.report import leaderboard
from rlmem.report.find import find, published
from rlmem.report.rankings import rankings

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = ("README.md", "docs/index.md")
BEGIN, END = "<!-- counted:begin -->\n", "<!-- counted:end -->"


def sentence(results: str) -> str:
    """The last line of the summary of RESULTS.md in words."""
    (head,) = re.findall(r"^\|  \| (supported \|.*) \|$", results, re.MULTILINE)
    (counts,) = re.findall(r"^\| all \| (.*) \|$", results, re.MULTILINE)
    of = {word: int(count) for word, count in zip(head.split(" | "), counts.split(" | "), strict=True)}
    shown = ", ".join(f"**{count} {word}**" for word, count in of.items() if word != "not run")
    return f"Of {sum(of.values())} items: {shown}, {of['not run']} not run.\n"


def counted(text: str, results: str) -> str:
    """A document with the sentence between its comments."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected {BEGIN.strip()} and {END}")
    return f"{before}{begin}{sentence(results)}{end}{after}"


def ranked(folder: Path) -> Iterator[Path]:
    """Write the rankings of the results in a folder, with their pictures, into the pages that show them."""
    items = published(find([folder / "results"]), "rlmem report results --markdown RESULTS.md")
    for page, outcome in rankings(items, folder).items():
        yield from leaderboard.page(outcome, page)


if __name__ == "__main__":
    results = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    for path in map(ROOT.joinpath, DOCUMENTS):
        path.write_text(counted(path.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    for path in ranked(ROOT):
        print(f"wrote {path.relative_to(ROOT)}")
