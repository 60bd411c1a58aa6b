"""`rlmem push`: write the agent of a run to the Hugging Face Hub."""

from rlmem.commands.toolkit import Count, Flag, Run, Step, Text, Trust, stdout_to_stderr
from rlmem.config.messages import shell
from rlmem.core.command import show


def run(
    run: Run,
    repo: Text | None = None,
    *,
    trust: Trust = False,
    step: Step = None,
    private: Flag = False,
    update: Flag = False,
    episodes: Count = 100,
    license: Text | None = None,
) -> None:
    """Write the agent of a run to the Hugging Face Hub: weights, configuration, a fresh evaluation and a card
    (docs/hub.md). A new repository is public, unless --private is given or its organisation has it otherwise.

    repo REPO: OWNER/NAME, or NAME of one's own (the name of the run directory)
    private: make the repository private
    update: write to a repository that holds files, as a new commit
    episodes: episodes for the card
    license: the licence of the weights, as the Hub calls it, such as mit

    Examples:
        runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0
        RUN me/ffm-repeat-previous --step best --private --license mit
    """
    from rlmem.run.stored import checkpoint_of
    from rlmem.share.hub import push

    run_dir, step = checkpoint_of(run, step)
    with stdout_to_stderr():
        done = push(run_dir.absolute(), trust, repo, step, private, update, episodes, license)
    seen = "private" if done.private else "public"
    show(f"{done.url}: {seen}, the agent of step {done.step:,}, commit {done.commit[:8]}")
    if done.foreign:
        show(f"  it names code that was not pushed: {', '.join(done.foreign)}")
    show(f"  for others: rlmem pull {shell(done.repo)}")
