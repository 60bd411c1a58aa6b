"""`rlmem push`: the agent of a run to the Hugging Face Hub."""

from rlmem.commands.toolkit import Arguments, Parser, integer_from, stdout_to_stderr
from rlmem.config.messages import shell
from rlmem.system.command import show

PARSER = Parser(
    "push",
    "Write the agent of a run to the Hugging Face Hub: weights, configuration, a fresh evaluation and a card\n"
    "(docs/hub.md). A new repository is public, unless --private is given or its organisation has it otherwise.",
    "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
    "RUN me/ffm-repeat-previous --step best --private --license mit",
)
PARSER.add_run()
repo = "OWNER/NAME, or NAME of one's own (the name of the run directory)"
PARSER.add_argument("repo", nargs="?", metavar="REPO", help=repo)
PARSER.add_step()
PARSER.add_argument("--private", action="store_true", help="make the repository private")
PARSER.add_argument("--update", action="store_true", help="write to a repository that holds files, as a new commit")
PARSER.add_argument("--episodes", type=integer_from(1), default=100, metavar="N", help="episodes for the card (100)")
PARSER.add_argument("--license", metavar="TEXT", help="the licence of the weights, as the Hub calls it, such as mit")


def run(args: Arguments) -> None:
    from rlmem.api.hub.push import push
    from rlmem.api.runs import Run
    from rlmem.run.stored import checkpoint_of

    run_dir, step = checkpoint_of(args.run, args.step)
    with stdout_to_stderr():
        run = Run(run_dir, args.trust)
        done = push(run, args.repo, step, args.private, args.update, args.episodes, args.license)
    seen = "private" if done.private else "public"
    show(f"{done.url}: {seen}, the agent of step {done.step:,}, commit {done.commit[:8]}")
    if done.foreign:
        show(f"  it names code that was not pushed: {', '.join(done.foreign)}")
    show(f"  for others: rlmem pull {shell(done.repo)}")
