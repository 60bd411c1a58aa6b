"""`rlmem verify-results`: check published results against their checksums."""

from pathlib import Path

from rlmem.commands.toolkit import Dir
from rlmem.core.command import show


def run(folder: Dir | None = None, *, markdown: Dir | None = None) -> int:
    """Compare the numbers and pictures of published results with their checksums, make their tables, verdicts and
    rankings again, and name what differs. The exit code is 1 if anything differs, or nothing could be compared.

    folder: published results (results, or those that rlmem ships)
    markdown FILE: the document that `rlmem report DIR --markdown` wrote (RESULTS.md beside DIR)

    Examples:
        results
        results --markdown RESULTS.md
    """
    from rlmem.config.paths import results_dir
    from rlmem.evidence.page.verify import verify

    folder = folder or (Path("results") if Path("results").is_dir() else results_dir() or Path("results"))
    verified = verify(folder, markdown)
    for line in verified.notes:
        show(f"note     {line}")
    for line in verified.differs:
        show(f"differs  {line}")
    compared = f"{verified.items} items: {verified.files} files and {verified.documents} documents compared"
    show(f"{compared}; {len(verified.differs) or 'nothing'} differs")
    return 1 if verified.differs else 0
