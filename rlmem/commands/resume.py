"""`rlmem resume`: continue a run."""

from rlmem.commands.toolkit import Arguments, Parser
from rlmem.config.messages import mistake, shell

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
    from rlmem.run.stored import checkpoint_of
    from rlmem.run.train import resume

    run_dir, step = checkpoint_of(args.run, None)
    if step is not None:
        example = f"rlmem train init_from={shell(args.run)} run_dir={shell(run_dir)}-2"
        raise mistake(str(args.run), "a run continues from its newest checkpoint only", example=example)
    resume(run_dir, args.overrides, args.trust)
