"""`rlmem pull`: download an agent from the Hugging Face Hub, as a run."""

from rlmem.commands.toolkit import Run, Text, stdout_to_stderr
from rlmem.config.messages import shell
from rlmem.core.command import show


def run(repo: Text, *, out: Run | None = None, revision: Text | None = None) -> None:
    """Download an agent that `rlmem push` wrote to the Hugging Face Hub, as a run directory that somebody else made:
    eval, export, analyze and init_from take it (docs/hub.md). No code is downloaded or run.

    repo REPO: OWNER/NAME
    out: the new run directory (runs/NAME)
    revision R: branch, tag or commit of the repository (main)

    Examples:
        me/ffm-repeat-previous
        me/ffm-repeat-previous --revision v1 --out runs/theirs
    """
    from rlmem.share.hub import pull

    with stdout_to_stderr():
        run_dir, done = pull(repo, out, revision)
    show(f"{run_dir}: the agent of step {done.step:,} of {repo}, commit {done.commit[:8]}")
    if done.foreign:
        show(f"  it names what is not rlmem's and did not come with it: {', '.join(done.foreign)}")
        show(f"  if you have it and know it: rlmem eval {shell(run_dir)} --trust")
    else:
        show(f"  rlmem eval {shell(run_dir)}")
