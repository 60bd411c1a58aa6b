"""`rlmem config`: a composed configuration and its origins."""

from __future__ import annotations

import argparse

from rlmem.commands.toolkit import Parser


def parser() -> Parser:
    made = Parser(
        "config",
        "Check a command line and show what it composes, with the origin of every value. Runs nothing.",
        "memory=ffm algo.lr=1e-3",
        "algo=ppo_popgym --json",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_overrides("as for train")
    return made


def run(args: argparse.Namespace) -> int:
    from rlmem.config.explain import as_json, as_yaml, explain

    explained = explain(args.overrides)
    print(as_json(explained) if args.json else as_yaml(explained))
    return 0
