"""`rlmem config`: a composed configuration and its origins."""

from rlmem.commands.toolkit import Arguments, Parser

PARSER = Parser(
    "config",
    "Check a command line and show what it composes, with the origin of every value. Runs nothing.",
    "memory=ffm algo.lr=1e-3",
    "algo=ppo_popgym --json",
)
PARSER.add_argument("--json", action="store_true", help="print JSON")
PARSER.add_overrides("as for train")


def run(args: Arguments) -> None:
    from rlmem.config.explain import as_json, as_yaml, explain

    print((as_json if args.json else as_yaml)(*explain(args.overrides)))
