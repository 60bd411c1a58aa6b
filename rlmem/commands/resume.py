"""`rlmem resume`: continue a run."""

from rlmem.commands.toolkit import Arguments, Parser

PARSER = Parser(
    "resume",
    "Continue a run from its latest checkpoint, as if it had never stopped.",
    "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
    "RUN total_steps=2e6",
)
PARSER.add_run()
PARSER.add_overrides(
    "total_steps, device, threads, compile, on_nan, checkpoint.*, evaluation.*, env.evaluation.* or logger.*"
)


def run(args: Arguments) -> None:
    from rlmem.run.train import resume

    resume(args.run, args.overrides, args.trust)
