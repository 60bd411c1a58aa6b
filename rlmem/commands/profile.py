"""`rlmem profile`: draw what a memory can hold, for how long, and how often rewritten."""

from dataclasses import replace

from rlmem.commands.toolkit import Dir, Flag, OutFile, Overrides, PoolFlags, Text
from rlmem.config.messages import mistake, nearest
from rlmem.core.command import show

TRAINS = True


def run(
    overrides: Overrides,
    *,
    dir: Dir | None = None,
    panels: Text | None = None,
    page: OutFile | None = None,
    pool: PoolFlags,
    dry_run: Flag = False,
    again: str,
) -> int:
    """Train a memory on tasks with dials for how much is held, for how long, and how often it is rewritten, one short
    supervised run for each value of the dials, and draw what it can do: 0 for guessing, 1 for right answers alone.
    The axes are the same for every memory. The same command again continues.

    overrides: as for train; several values of a key, such as memory=gru,lstm, make several profiles
    dir: where the runs and pictures go (profiles/<memory>)
    panels A,B: these panels only (all)
    page: also put the profiles into this Markdown page
    dry_run: check and list the runs only

    Examples:
        memory=gru
        memory=gru,lstm,ffm seed=0,1,2 --dir profiles/three
        memory=ffm memory.trace_size=16,64 total_steps=300000
        memory=gru --panels hold,rewrite --dry-run
    """
    from rlmem.evidence import profile
    from rlmem.evidence.page.curves import require_matplotlib
    from rlmem.evidence.profile import BASE, PANELS
    from rlmem.jobs.manifest import holds_sweep
    from rlmem.jobs.run import dry_run as listed
    from rlmem.jobs.run import job_hashes, sweep

    named = {panel.name: panel for panel in PANELS}
    asked = list(named) if panels is None else panels.split(",")
    for name in asked:
        if name not in named:
            raise mistake(f"--panels {name}", "no such panel", near=nearest(name, named), accepted=named)
    spec = profile.specification(overrides, [named[name] for name in dict.fromkeys(asked)])
    folder = dir or profile.default_folder(overrides)
    if dry_run:
        show(listed(spec, folder))
        return 0
    require_matplotlib()
    words = [*overrides, *(["--panels", panels] if panels else [])]
    options = pool.options(again=again)
    drawn = profile.profiles(folder)[1] if holds_sweep(folder) else []
    if others := [panel.name for panel in drawn if panel.name not in asked]:  # stay, and wait
        options = replace(options, only=job_hashes(spec))
        spec = profile.specification(overrides, [panel for panel in PANELS if panel.name in {*asked, *others}])
    code = sweep(spec, folder, options)
    memories, drawn = profile.profiles(folder)
    files = profile.write(memories, drawn, folder)
    if page:
        steps = dict(line.partition("=")[::2] for line in overrides).get("total_steps", BASE["total_steps"])
        profile.page(memories, drawn, profile.budget(memories, steps, words), page)
        files.append(page)
    show(profile.table(memories, drawn).text())
    show(f"wrote {', '.join(map(str, files))}")
    return code
