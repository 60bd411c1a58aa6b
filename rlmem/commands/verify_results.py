"""`rlmem verify-results`: recompute published results from their data."""

from pathlib import Path

from rlmem.commands.toolkit import Dir, Flag
from rlmem.core.command import show


def run(folder: Dir | None = None, *, markdown: Dir | None = None, no_pictures: Flag = False) -> int:
    """Recompute the metrics of all runs, the tables, verdicts and rankings, and the pictures of published results from
    the data they are made of, and name what differs and what cannot be recomputed. The exit code is 1 if anything
    differs, or nothing could be recomputed.

    folder: published results (results, or those that rlmem ships)
    markdown FILE: the document that `rlmem report DIR --markdown` wrote (RESULTS.md beside DIR)
    no_pictures: do not draw the learning curves again

    Examples:
        results
        results --no-pictures      seconds instead of a minute
    """
    from rlmem.config.paths import results_dir
    from rlmem.evidence.page.verify import verify

    folder = folder or (Path("results") if Path("results").is_dir() else results_dir() or Path("results"))
    found = verify(folder, markdown, pictures=not no_pictures)
    for line in found.notes:
        show(f"note     {line}")
    for line in found.differs:
        show(f"differs  {line}")
    counted = f"{found.items} items, {found.runs:,} runs: {found.numbers:,} numbers recomputed"
    drawn = f", {found.pictures} pictures drawn again" if found.pictures else ""
    show(f"{counted}{drawn}; {len(found.differs) or 'nothing'} differs")
    return 1 if found.differs else 0
