"""`rlmem list`: the options of the config groups, and the experiments."""

from rlmem.commands.toolkit import Arguments, Parser, stdout_to_stderr
from rlmem.config.messages import mistake, nearest, shell
from rlmem.system.strictjson import dumps

PARSER = Parser(
    "list",
    "Show every config group and its options; `*` marks the default.",
    "",
    "env",
    "memory --json",
    "experiment           what `rlmem reproduce` can run, its cost, and what has come out so far",
    "experiment --markdown    budget, verdict, runs and commit of every item as a table",
    "claim --markdown     what the papers say, clause by clause, and what tests it",
    "metric               what the names in metrics.jsonl mean",
)
what = "one group only, or experiment, claim or metric; also hydra.searchpath=[file://FOLDER]"
PARSER.add_argument("what", nargs="*", metavar="GROUP", help=what)
PARSER.add_argument("--json", action="store_true", help="print JSON")
PARSER.add_argument("--markdown", action="store_true", help="print claims, or how experiments stand, as Markdown")


def run(args: Arguments) -> None:
    lines = [text for text in args.what if text.startswith("hydra.searchpath=")]
    group, *more = [text for text in args.what if text not in lines] or [None]
    if more:
        raise mistake(more[0], "one group, or all of them", example=f"rlmem list {shell(group)}")
    if args.markdown and (group not in ("claim", "experiment") or args.json):
        what = "is for claims and experiments, and without --json"
        raise mistake("--markdown", what, example="rlmem list claim --markdown")
    if group == "env":
        from rlmem.run import env_table

        with stdout_to_stderr():
            text = (env_table.as_json if args.json else env_table.as_text)(lines)
        print(text)
    elif group == "experiment":
        from rlmem.reproduction import run as experiments
        from rlmem.reproduction import standing

        how = standing.table().markdown if args.markdown else experiments.as_json if args.json else experiments.as_text
        print(how().rstrip())
    elif group == "claim":
        from rlmem.reproduction.claims import table

        found = table()
        clauses = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        print(dumps(clauses, indent=2) if args.json else found.markdown() if args.markdown else found.text())
    elif group == "metric":
        from rlmem.config.catalog import columns
        from rlmem.record.metrics import METRICS

        named = [{"name": name, "logged_by": by, "description": text} for name, (by, text) in METRICS.items()]
        print(dumps({"metric": named}, indent=2) if args.json else columns({n: t for n, (_, t) in METRICS.items()}))
    else:
        from rlmem.config.catalog import as_text, catalog

        groups = catalog(lines)
        if group is not None and group not in groups:
            known = [*groups, "experiment", "claim", "metric"]
            near = nearest(group, known)
            raise mistake(group, "no such group", near=near, accepted=known, example="rlmem list memory")
        groups = groups if group is None else {group: groups[group]}
        rows = {g: [{"name": name, "description": text} for name, text in found.items()] for g, found in groups.items()}
        print(dumps(rows, indent=2) if args.json else as_text(groups))
