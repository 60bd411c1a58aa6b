"""`rlmem list`: the options of the config groups, and the experiments."""

from rlmem.commands.toolkit import Arguments, Parser, stdout_to_stderr
from rlmem.config.messages import sentence, shell
from rlmem.errors import UserError

PARSER = Parser(
    "list", "Show every config group and its options; `*` marks the default.", "", "env", "memory --json", "experiment"
)
PARSER.add_argument(
    "what",
    nargs="*",
    metavar="GROUP",
    help="one group only, or experiment: what `rlmem reproduce` can run; also hydra.searchpath=[file://FOLDER]",
)
PARSER.add_argument("--json", action="store_true", help="print JSON")


def run(args: Arguments) -> None:
    lines = [text for text in args.what if text.startswith("hydra.searchpath=")]
    group, *more = [text for text in args.what if text not in lines] or [None]
    if more:
        raise UserError(sentence(more[0], "one group, or all of them", example=f"rlmem list {shell(group)}"))
    if group == "env":
        from rlmem.run import env_table

        with stdout_to_stderr():
            text = env_table.as_json(lines) if args.json else env_table.as_text(lines)
        print(text)
    elif group == "experiment":
        from rlmem.reproduce import run as experiments

        print(experiments.as_json() if args.json else experiments.as_text())
    else:
        from rlmem.config.catalog import as_json, as_text, select

        groups = select(group, lines)
        print(as_json(groups) if args.json else as_text(groups))
