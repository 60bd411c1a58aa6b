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
    from rlmem.evidence.page.draw import require_matplotlib
    from rlmem.report.profile import draw
    from rlmem.report.profile.panels import BASE, PANELS
    from rlmem.report.profile.run import default_folder, panels_in, profiles, specification, table
    from rlmem.sweep.run import dry_run, job_hashes, sweep

    named = {panel.name: panel for panel in PANELS}
    asked = list(named) if args.panels is None else args.panels.split(",")
    for name in asked:
        if name not in named:
            raise mistake(f"--panels {name}", "no such panel", near=nearest(name, named), accepted=named)
    spec = specification(args.overrides, [named[name] for name in dict.fromkeys(asked)])
    folder = args.dir or default_folder(args.overrides)
    if args.dry_run:
        show(dry_run(spec, folder))
        return 0
    require_matplotlib()
    words = [*args.overrides, *(["--panels", args.panels] if args.panels else [])]
    again = f"rlmem profile {shell(*words, '--dir', folder)}"
    options = pool_options(args, again=again)
    if there := [panel.name for panel in panels_in(folder) if panel.name not in asked]:  # stay, and wait
        options = replace(options, only=job_hashes(spec))
        spec = specification(args.overrides, [panel for panel in PANELS if panel.name in {*asked, *there}])
    code = sweep(spec, folder, options)
    found, panels = profiles(folder)
    written = draw.write(found, panels, folder)
    if args.page:
        given = dict(line.partition("=")[::2] for line in args.overrides)
        budget = draw.budget(found, given.get("total_steps", BASE["total_steps"]), words)
        draw.page(found, panels, budget, args.page)
    show(table(found, panels).text())
    show(f"wrote {', '.join(map(str, [*written, *([args.page] if args.page else [])]))}")
    return code
