"""`rlmem plot`: draw learning curves."""

from rlmem.commands.toolkit import Count, Folders, Names, OutFile, Text
from rlmem.core.command import show


def run(folders: Folders, *, out: OutFile, metric: Text | None = None, smooth: Count = 1, columns: Names = ()) -> None:
    """Draw learning curves: the mean over seeds with its 95 % bootstrap interval, one panel per column.

    folders: reproductions, published results, sweeps, runs, or folders that hold some
    out: FILE.png, .pdf or .svg
    metric KEY: a name of metrics.jsonl (what the table shows)
    smooth: every point is the mean of the last N points of its run
    columns: only these

    Examples:
        reproduce/memoroids/figure4-laptop --out figure4.pdf
        sweeps/my_sweep --out curves.png --metric train/return_mean --smooth 10
        results/memoroids --out figure.svg --columns repeat_first
    """
    from rlmem.evidence.page.curves import chosen, require_matplotlib, save, together
    from rlmem.evidence.page.find import find

    require_matplotlib()
    panels, left_out = chosen(find(folders), metric, smooth, columns)
    save(together(panels), out)
    show("\n".join([f"wrote {out}", *left_out]))
