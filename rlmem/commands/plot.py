"""`rlmem plot`: learning curves as a figure."""

from rlmem.commands.toolkit import Arguments, Parser, folder, integer_from, out_file
from rlmem.system.command import show

PARSER = Parser(
    "plot",
    "Draw learning curves: the mean over seeds with its 95 % bootstrap interval, one panel per column.",
    "reproduce/memoroids/figure4-laptop --out figure4.pdf",
    "sweeps/my_sweep --out curves.png --metric train/return_mean --smooth 10",
    "results/memoroids --out figure.svg --columns repeat_first",
)
kinds = "reproductions, published results, sweeps, runs, or folders that hold some"
PARSER.add_argument("folders", nargs="+", type=folder, metavar="DIR", help=kinds)
PARSER.add_argument("--out", type=out_file, required=True, metavar="FILE", help="FILE.png, .pdf or .svg")
PARSER.add_argument("--metric", metavar="KEY", help="a name of metrics.jsonl (what the table shows)")
smooth = "every point is the mean of the last N points of its run (1)"
PARSER.add_argument("--smooth", type=integer_from(1), default=1, metavar="N", help=smooth)
PARSER.add_argument("--columns", type=lambda text: text.split(","), default=[], metavar="A,B", help="only these")


def run(args: Arguments) -> None:
    from rlmem.evidence.page.curves import chosen, require_matplotlib, save, together
    from rlmem.evidence.page.find import find

    require_matplotlib()
    panels, left_out = chosen(find(args.folders), args.metric, args.smooth, args.columns)
    save(together(panels), args.out)
    show("\n".join([f"wrote {args.out}", *left_out]))
