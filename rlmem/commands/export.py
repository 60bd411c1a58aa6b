"""`rlmem export`: the agent of a run as one file."""

from rlmem.commands.toolkit import Arguments, Parser, integer_from, out_file, stdout_to_stderr
from rlmem.system.command import show

FORMATS = ("onnx", "torch")

PARSER = Parser(
    "export",
    "Write the acting step of a run's agent to one file, which needs no rlmem, and a card beside it (docs/export.md).",
    "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
    "RUN --step best --format torch --out agent.pt2 --license CC-BY-4.0",
)
PARSER.add_run()
PARSER.add_step()
PARSER.add_argument("--format", choices=FORMATS, default="onnx", help="the kind of file (onnx)")
PARSER.add_argument("--out", type=out_file, metavar="FILE", help="the file to write (RUN/export/agent.onnx)")
PARSER.add_argument("--episodes", type=integer_from(1), default=100, metavar="N", help="episodes for the card (100)")
PARSER.add_argument("--license", metavar="TEXT", help="the licence of the weights, for the card")


def run(args: Arguments) -> None:
    from rlmem.api.exporting.card import card_of
    from rlmem.api.exporting.write import export
    from rlmem.api.runs import Run
    from rlmem.run.stored import checkpoint_of

    run_dir, step = checkpoint_of(args.run, args.step)
    with stdout_to_stderr():
        path, card = export(Run(run_dir, args.trust), args.format, step, args.out, args.episodes, args.license)
    compared = card.compared
    actions = f", {compared['actions']} of {compared['of']:,} actions differed" if compared["of"] else ""
    show(f"{path}: {path.stat().st_size:,} bytes, {card.milliseconds:.3f} ms for one environment")
    show(f"  compared with the agent over {compared['steps']} steps of {compared['environments']} environments:")
    show(f"  largest deviation {compared['largest']:.1e}{actions}; the card is {card_of(path)}")
