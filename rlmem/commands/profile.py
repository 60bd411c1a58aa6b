"""`rlmem profile`: what a memory can hold, for how long, and how often rewritten."""

from dataclasses import replace
from pathlib import Path

from rlmem.commands.toolkit import Arguments, Parser, out_file, pool_options
from rlmem.config.messages import mistake, nearest, shell
from rlmem.system.command import show

PARSER = Parser(
    "profile",
    "Train a memory on tasks with dials for how much is held, for how long, and how often it is rewritten, one short\n"
    "supervised run for each value of the dials, and draw what it can do: 0 for guessing, 1 for right answers alone.\n"
    "The axes are the same for every memory. The same command again continues.",
    "memory=gru",
    "memory=gru,lstm,ffm seed=0,1,2 --dir profiles/three",
    "memory=ffm memory.trace_size=16,64 total_steps=300000",
    "memory=gru --panels hold,rewrite --dry-run",
)
PARSER.add_argument(
    "--dir",
    type=Path,
    metavar="DIR",
    help="where the runs and pictures go (profiles/<memory>)",
)
PARSER.add_argument("--panels", metavar="A,B", help="these panels only (all)")
PARSER.add_argument("--page", type=out_file, metavar="FILE", help="also put the profiles into this Markdown page")
PARSER.add_pool("cells", "a run")
PARSER.add_argument("--dry-run", action="store_true", help="check and list the runs only")
PARSER.add_trust()
PARSER.add_overrides("as for train; several values of a key, such as memory=gru,lstm, make several profiles")


def run(args: Arguments) -> int:
    from rlmem.evidence import profile
    from rlmem.evidence.page.curves import require_matplotlib
    from rlmem.evidence.profile import BASE, PANELS
    from rlmem.sweep.manifest import holds_sweep
    from rlmem.sweep.run import dry_run, job_hashes, sweep

    named = {panel.name: panel for panel in PANELS}
    asked = list(named) if args.panels is None else args.panels.split(",")
    for name in asked:
        if name not in named:
            raise mistake(f"--panels {name}", "no such panel", near=nearest(name, named), accepted=named)
    spec = profile.specification(args.overrides, [named[name] for name in dict.fromkeys(asked)])
    folder = args.dir or profile.default_folder(args.overrides)
    if args.dry_run:
        show(dry_run(spec, folder))
        return 0
    require_matplotlib()
    words = [*args.overrides, *(["--panels", args.panels] if args.panels else [])]
    again = f"rlmem profile {shell(*words, '--dir', folder)}"
    options = pool_options(args, again=again)
    panels = profile.profiles(folder)[1] if holds_sweep(folder) else []
    if others := [panel.name for panel in panels if panel.name not in asked]:  # stay, and wait
        options = replace(options, only=job_hashes(spec))
        spec = profile.specification(args.overrides, [panel for panel in PANELS if panel.name in {*asked, *others}])
    code = sweep(spec, folder, options)
    memories, panels = profile.profiles(folder)
    files = profile.write(memories, panels, folder)
    if args.page:
        steps = dict(line.partition("=")[::2] for line in args.overrides).get("total_steps", BASE["total_steps"])
        profile.page(memories, panels, profile.budget(memories, steps, words), args.page)
        files.append(args.page)
    show(profile.table(memories, panels).text())
    show(f"wrote {', '.join(map(str, files))}")
    return code
