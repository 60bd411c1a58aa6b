"""`rlmem resume`: go on with a run."""

from __future__ import annotations

import argparse

from rlmem.commands.toolkit import Parser


def parser() -> Parser:
    made = Parser(
        "resume",
        "Continue a run from its latest checkpoint, as if it had never stopped.",
        "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
        "RUN total_steps=2e6",
    )
    made.add_run()
    made.add_overrides("total_steps, device, threads, on_nan, checkpoint.*, evaluation.*, env.evaluation.* or logger.*")
    return made


def run(args: argparse.Namespace) -> int:
    from rlmem.run.train import resume

    resume(args.run, args.overrides, args.trust)
    return 0
