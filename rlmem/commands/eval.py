"""`rlmem eval`: episodes with the agent of a run."""

from typing import Any

from rlmem.commands.toolkit import Arguments, Parser, integer_from, stdout_to_stderr
from rlmem.config.messages import mistake
from rlmem.system.strictjson import dumps

PARSER = Parser(
    "eval",
    "Play episodes with the agent of a run, greedy and sampled. Only env.* and evaluation.max_steps may be\nreplaced.",
    "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
    "RUN --episodes 100 env.level=hard --json",
    "RUN video=true          an animation of one greedy episode in RUN/videos",
)
PARSER.add_run()
PARSER.add_argument("--episodes", type=integer_from(1), default=100, metavar="N", help="episodes of each kind (100)")
PARSER.add_argument("--seed", type=integer_from(0), metavar="S", help="root of the random streams (the run's own)")
PARSER.add_step()
PARSER.add_argument("--json", action="store_true", help="print JSON only")
PARSER.add_overrides("env.key=value, evaluation.max_steps=N, or video=true")


def run(args: Arguments) -> None:
    from rlmem.run.evaluate import evaluate_run

    overrides = [override for override in args.overrides if not override.startswith("video=")]
    video = [override.lower() for override in args.overrides if override.startswith("video=")]
    if wrong := [text for text in video if text not in ("video=true", "video=false")]:
        raise mistake(wrong[0], "expected true or false", example="rlmem eval RUN video=true")
    film = "video=true" in video
    with stdout_to_stderr():
        result = evaluate_run(args.run, args.episodes, args.seed, overrides, args.step, film, args.trust)
    print(dumps(result, indent=2) if args.json else _table(result))


def _table(result: dict[str, Any]) -> str:
    where = f"{result['run']} at step {result['step']:,}"
    if "held_out" in result:
        found = ", ".join(f"{name} {value:.4f}" for name, value in result["held_out"].items())
        return f"{where}: held-out {found} ({result['episodes']:,})"
    played = {kind: row for kind, row in result.items() if isinstance(row, dict) and "return_mean" in row}
    known = all("success_rate" in row for row in played.values())
    head = f"{'':<8}  {'mean return':>20}  {'mean length':>11}{'  success rate' if known else ''}"
    lines = [f"{where}: {result['episodes']} episodes each; ± is the standard error of the mean", head]
    for kind, row in played.items():
        score = f"{row['return_mean']:.4f} ± {row['return_sem']:.4f}"
        success = f"  {row['success_rate']:>12.3f}" if known else ""
        lines.append(f"{kind:<8}  {score:>20}  {row['length_mean']:>11.1f}{success}")
    if "video" in result:
        part = "" if result["video_whole"] else f", its first {result['video_steps']:,} steps"
        lines.append(f"a greedy episode{part}: {result['video']}")
    return "\n".join(lines)
