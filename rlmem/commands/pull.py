"""`rlmem pull`: an agent of the Hugging Face Hub as a run directory."""

from pathlib import Path

from rlmem.commands.toolkit import Arguments, Parser, stdout_to_stderr
from rlmem.config.messages import shell
from rlmem.system.command import show

PARSER = Parser(
    "pull",
    "Download an agent that `rlmem push` wrote to the Hugging Face Hub, as a run directory that somebody else made:\n"
    "eval, export, analyze and init_from take it (docs/hub.md). No code is downloaded or run.",
    "me/ffm-repeat-previous",
    "me/ffm-repeat-previous --revision v1 --out runs/theirs",
)
PARSER.add_argument("repo", metavar="REPO", help="OWNER/NAME")
PARSER.add_argument("--out", dest="run", type=Path, metavar="RUN", help="the new run directory (runs/NAME)")
PARSER.add_argument("--revision", metavar="R", help="branch, tag or commit of the repository (main)")


def run(args: Arguments) -> None:
    from rlmem.api.hub.pull import pull

    with stdout_to_stderr():
        done = pull(args.repo, args.run, args.revision)
    show(f"{done.path}: the agent of step {done.step:,} of {args.repo}, commit {done.commit[:8]}")
    if done.foreign:
        show(f"  it names what is not rlmem's and did not come with it: {', '.join(done.foreign)}")
        show(f"  if you have it and know it: rlmem eval {shell(done.path)} --trust")
    else:
        show(f"  rlmem eval {shell(done.path)}")
