"""`rlmem export`: write the agent of a run to one file, for programs without rlmem."""

from typing import Literal

from rlmem.commands.toolkit import Count, OutFile, Run, Step, Text, Trust, stdout_to_stderr
from rlmem.core.command import show


def run(
    run: Run,
    *,
    trust: Trust = False,
    step: Step = None,
    format: Literal["onnx", "torch"] = "onnx",
    out: OutFile | None = None,
    episodes: Count = 100,
    license: Text | None = None,
) -> None:
    """Write the acting step of a run's agent to one file, which needs no rlmem, and a card beside it (docs/export.md).

    format: the kind of file
    out: the file to write (RUN/export/agent.onnx)
    episodes: episodes for the card
    license: the licence of the weights, for the card

    Examples:
        runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0
        RUN --step best --format torch --out agent.pt2 --license CC-BY-4.0
    """
    from rlmem.run.stored import checkpoint_of
    from rlmem.share.card import card_of
    from rlmem.share.write import export

    run_dir, step = checkpoint_of(run, step)
    with stdout_to_stderr():
        path, facts = export(run_dir.absolute(), trust, format, step, out, episodes, license)
    compared = facts["compared"]
    actions = f", {compared['actions']} of {compared['of']:,} actions differed" if compared["of"] else ""
    show(f"{path}: {path.stat().st_size:,} bytes, {facts['milliseconds']:.3f} ms for one environment")
    show(f"  compared with the agent over {compared['steps']} steps of {compared['environments']} environments:")
    show(f"  largest deviation {compared['largest']:.1e}{actions}; the card is {card_of(path)}")
