"""`rlmem resume`: continue a run from its latest checkpoint."""

from rlmem.commands.toolkit import Overrides, Run, Trust

TRAINS = True


def run(run: Run, overrides: Overrides, *, trust: Trust = False) -> None:
    """Continue a run from its latest checkpoint, as if it had never stopped.

    overrides: total_steps, device, threads, compile, on_nan, checkpoint.*, evaluation.*, env.evaluation.* or logger.*

    Examples:
        runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0
        RUN total_steps=2e6
    """
    from rlmem.run.train import resume

    resume(run, overrides, trust)
