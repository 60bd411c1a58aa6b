"""Check published results against their checksums, and documents about them against newly written ones.

Checksums cover numbers and pictures. The tables and verdicts of RESULTS.md and the rankings of pages are made again.
"""

from dataclasses import dataclass, field
from difflib import unified_diff
from importlib.util import find_spec
from pathlib import Path

from rlmem.config.messages import shell
from rlmem.config.paths import results_dir
from rlmem.core import received
from rlmem.evidence.page import leaderboard
from rlmem.evidence.page.documents import SUMS, checksums, document, with_part
from rlmem.evidence.page.find import find, published
from rlmem.evidence.tables import provenance_problem

SHOWN = 20
"""The greatest number of differing lines of one file that are named."""


@dataclass
class Verified:
    """What was compared.

    differs: a sentence for everything that is not as it was published, or does not follow from the numbers
    notes: a sentence for what is not compared, and for results that nobody could make again
    items: how many there are
    files: how many files have a checksum
    documents: how many documents and pages were made again
    """

    differs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    items: int = 0
    files: int = 0
    documents: int = 0

    def compare(self, path: Path, expected: str) -> None:
        """Compare a document with the text that the numbers give, line by line."""
        self.documents += 1
        written = received.text(path, errors="replace")
        if written != expected:
            lines = [*unified_diff(written.splitlines(), expected.splitlines(), "written", "recomputed", "", "", 0, "")]
            more = [f"{len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
            self.differs += [f"{path}: {line}" for line in [*lines[:SHOWN], *more]]


def verify(folder: Path, written: Path | None = None) -> Verified:
    """Verify the published results in a folder, the document that was written of them, and its pages of rankings.

    written: the document; None for RESULTS.md beside the folder, which results that rlmem does not ship may lack

    Raises UserError if there are no results, or files that cannot be read.
    """
    items = published(find([folder]), "rlmem verify-results results")
    document_path = written or folder.parent / "RESULTS.md"
    problems = ((item.label, provenance_problem(item.outcome.ours)) for item in items)
    verified = Verified([], [f"{label}: {problem}" for label, problem in problems if problem], len(items))
    lacking = verified.differs if _is_checkout(folder) else verified.notes
    if (folder / SUMS).is_file():
        _compare_checksums(folder, verified)
    else:
        lacking.append(f"{folder / SUMS}: there is none; `rlmem report {shell(folder)} --markdown FILE` writes it")
    if find_spec("jinja2") is None:
        verified.notes.append("the document and the rankings are not compared: Jinja is not installed")
    elif document_path.is_file():
        verified.compare(document_path, document(items, document_path.parent))
    else:
        (verified.differs if written else lacking).append(f"{document_path}: there is none to compare")
    for page, board in leaderboard.rankings(items, document_path.parent).items():
        verified.compare(page, with_part(page, "leaderboard", leaderboard.text(board)))
    if not (verified.files or verified.documents):
        verified.differs.append(f"{folder}: there is nothing to compare it with")
    return verified


def _is_checkout(folder: Path) -> bool:
    """Whether this folder is that of a checkout of rlmem, which is whole; an installed rlmem has the numbers alone."""
    shipped, package = results_dir(), Path(__file__).resolve().parents[2]
    return shipped is not None and folder.resolve() == shipped.resolve() != package / "results"


def _compare_checksums(folder: Path, verified: Verified) -> None:
    """Name every file whose checksum is not the one in SUMS."""
    split = lambda text: {name: digest for digest, _, name in (line.partition("  ") for line in text.splitlines())}  # noqa: E731
    listed, there = split(received.text(folder / SUMS, errors="replace")), split(checksums(folder))
    problems = {name: f"its checksum is not the one in {SUMS}" for name in listed if listed[name] != there.get(name)}
    problems |= dict.fromkeys(listed.keys() - there.keys(), f"is missing; {SUMS} lists it")
    problems |= dict.fromkeys(there.keys() - listed.keys(), f"is not listed in {SUMS}")
    verified.files = len(listed)
    verified.differs += [f"{folder / name}: {problems[name]}" for name in sorted(problems)]
