"""The command line: `rlmem VERB [flags] [key=value ...]`.

Everything heavy (Hydra, torch) is imported by the verb that needs it. A user's mistake is one line each on
stderr and exit code 2; a fault of the program keeps its traceback and exits with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError

HELP = """\
rlmem: memory in partially observable reinforcement learning.

usage: rlmem COMMAND [flags] [key=value ...]

  train    train one agent, or with -m one per combination of values
  eval     play episodes with the agent of a run
  resume   continue a run from its latest checkpoint
  play     play an environment in the terminal, or watch its oracle
  list     show the memories, environments and other options
  config   show a composed configuration and where every value came from
  bench    measure speed
  check    measure whether a memory keeps the contract of memories

  rlmem COMMAND --help explains a command. --version prints the version; --debug shows tracebacks.

examples:
  rlmem train memory=ffm env=repeat_previous
  rlmem train -m memory=ffm,gru seed=0,1,2
  rlmem list env"""


class Parser(argparse.ArgumentParser):
    """argparse with examples, whose errors are UserErrors."""

    def __init__(self, verb: str, description: str, *examples: str) -> None:
        super().__init__(
            prog=f"rlmem {verb}",
            description=description,
            epilog="\n".join(["examples:", *(f"  rlmem {verb} {example}".rstrip() for example in examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--debug", action="store_true", help="show the traceback of a mistake too")

    def add_overrides(self, help: str) -> None:
        self.add_argument("overrides", nargs="*", metavar="key=value", help=help)

    def add_run(self) -> None:
        self.add_argument("run", type=Path, metavar="RUN", help="a run directory")

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2]
        near = nearest(unknown.partition(" ")[0], self._option_string_actions) if unknown else []
        raise UserError(sentence(self.prog, message, near=near, example=f"{self.prog} --help"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a `_target_` may name a module of the current folder
    try:
        return _dispatch(arguments)
    except UserError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        for problem in error.problems:
            print(f"rlmem: error: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"rlmem: {str(error) or 'interrupted'}", file=sys.stderr)
        return getattr(error, "code", 130)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    wants_help = not {"-h", "--help"}.isdisjoint(arguments)
    verb = next((argument for argument in arguments if not argument.startswith("-")), None)
    if verb in VERBS:
        arguments.remove(verb)
        make_parser, run = VERBS[verb]
        return _help(verb, arguments) if wants_help else run(make_parser().parse_intermixed_args(arguments))
    if wants_help or not arguments:
        print(HELP)
        return 0
    if "--version" in arguments:
        from rlmem import __version__

        print(f"rlmem {__version__}")
        return 0
    wrong = verb or arguments[0]
    raise UserError(
        sentence(
            wrong,
            "no such command",
            near=nearest(wrong, VERBS),
            accepted=VERBS,
            example="rlmem train memory=ffm",
        )
    )


def _help(verb: str, arguments: list[str]) -> int:
    VERBS[verb][0]().print_help()
    if verb in ("train", "config"):
        from rlmem.config.catalog import train_help

        print(f"\n{train_help(arguments)}")
    return 0


def _train_parser() -> Parser:
    parser = Parser(
        "train",
        "Train one agent in one environment; with -m, one for every combination of the values given.",
        "memory=ffm env=repeat_previous seed=1",
        "memory=gru env=gym env.id=CartPole-v1 algo.lr=0.001 total_steps=1e5",
        "-m memory=ffm,gru seed=0,1,2",
        "memory=ffm --help        the keys of that option",
    )
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="one job per combination of comma-separated values"
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything and print the summary only")
    parser.add_overrides("group=option or key=value")
    return parser


def _train(args: argparse.Namespace) -> int:
    if args.multirun:
        return _multirun(args)
    from rlmem.config.compose import load

    config = load(args.overrides)
    from rlmem.train import plan, train

    if args.dry_run:
        print(plan(config))
    else:
        train(config)
    return 0


def _multirun(args: argparse.Namespace) -> int:
    from rlmem.config.multirun import JobFailed, check, launch

    configs = check(args.overrides)
    if args.dry_run:
        from rlmem.train import plan

        print("\n\n".join(plan(config) for config in configs))
        return 0
    try:
        launch(args.overrides)
    except JobFailed as error:
        print(f"rlmem: error: a job failed, first {error}", file=sys.stderr)
        return 1
    return 0


def _eval_parser() -> Parser:
    parser = Parser(
        "eval",
        "Play episodes with the agent of a run, greedy and sampled. Only env.* may be replaced.",
        "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
        "RUN --episodes 100 env.level=hard --json",
        "RUN video=true          an animation of one greedy episode in RUN/videos",
    )
    parser.add_run()
    parser.add_argument("--episodes", type=_integer(1), default=100, metavar="N", help="episodes of each kind (100)")
    parser.add_argument("--seed", type=_integer(0), metavar="S", help="root of the random streams (the run's own)")
    parser.add_argument("--step", type=_integer(0), metavar="T", help="the checkpoint of this step (the newest)")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_overrides("env.key=value, or video=true")
    return parser


def _eval(args: argparse.Namespace) -> int:
    from rlmem.train import evaluate_run

    overrides = [override for override in args.overrides if not override.startswith("video=")]
    video = [override.partition("=")[2].lower() for override in args.overrides if override.startswith("video=")]
    if wrong := [text for text in video if text not in ("true", "false")]:
        raise UserError(sentence(f"video={wrong[0]}", "expected true or false", example="rlmem eval RUN video=true"))
    with _stdout_to_stderr():
        result = evaluate_run(args.run, args.episodes, args.seed, overrides, args.step, "true" in video)
    print(json.dumps(result, indent=2) if args.json else _table(result))
    return 0


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Keep stdout for the result: libraries print there, PyBullet even from C."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _table(result: dict[str, Any]) -> str:
    known = "success_rate" in result["greedy"]
    lines = [
        f"{result['run']} at step {result['step']:,}: {result['episodes']} episodes each",
        f"{'':<8}  {'mean return':>20}  {'mean length':>11}{'  success rate' if known else ''}",
    ]
    for kind in ("greedy", "sampled"):
        row = result[kind]
        score = f"{row['return_mean']:.4f} ± {row['return_sem']:.4f}"
        success = f"  {row['success_rate']:>12.3f}" if known else ""
        lines.append(f"{kind:<8}  {score:>20}  {row['length_mean']:>11.1f}{success}")
    if "video" in result:
        lines.append(f"a greedy episode: {result['video']}")
    return "\n".join(lines)


def _resume_parser() -> Parser:
    parser = Parser(
        "resume",
        "Continue a run from its latest checkpoint, as if it had never stopped.",
        "runs/2026-01-31/120000-ffm-ppo-repeat_previous-s0",
        "RUN total_steps=2e6",
    )
    parser.add_run()
    parser.add_overrides("a value to replace")
    return parser


def _resume(args: argparse.Namespace) -> int:
    from rlmem.train import resume

    resume(args.run, args.overrides)
    return 0


def _play_parser() -> Parser:
    parser = Parser(
        "play",
        "Play one environment in the terminal, by keys, or let one of the players of its rule card play.",
        "env=cued_catch",
        "env=visual_match --player oracle --gif visual_match.gif",
        "env=repeat_previous env.level=hard --player memoryless --episodes 3",
    )
    players = ["keys", "random", "memoryless", "oracle"]
    parser.add_argument("--player", choices=players, default="keys", help="who acts (keys: you)")
    parser.add_argument("--episodes", type=_integer(1), default=1, metavar="N", help="episodes (1)")
    parser.add_argument("--seed", type=_integer(0), metavar="S", help="of the environment (a new one every time)")
    parser.add_argument("--gif", type=Path, metavar="PATH", help="write an animation instead of printing")
    parser.add_overrides("env=name or env.key=value")
    return parser


def _play(args: argparse.Namespace) -> int:
    from rlmem.config.compose import load

    config = load(args.overrides)
    from rlmem.assemble import make_env
    from rlmem.play import play

    if wrong := [o for o in args.overrides if not o.lstrip("+~").startswith(("env=", "env.", "hydra."))]:
        example = "rlmem play env=cued_catch"
        raise UserError(*(sentence(override, "play takes env keys only", example=example) for override in wrong))
    if args.gif is not None and not args.gif.parent.is_dir():
        raise UserError(f"--gif {args.gif}: no folder {args.gif.parent}")
    with contextlib.closing(make_env(config, 1)) as env:
        returns = play(env, args.player, args.episodes, args.seed, args.gif)
    if returns:
        print(f"mean return {sum(returns) / len(returns):g}")
    if args.gif:
        print(f"wrote {args.gif}")
    return 0


def _list_parser() -> Parser:
    parser = Parser(
        "list", "Show every config group and its options; `*` marks the default.", "", "env", "memory --json"
    )
    parser.add_argument("group", nargs="?", help="one group only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _list(args: argparse.Namespace) -> int:
    if args.group == "env":
        from rlmem import env_table

        with _stdout_to_stderr():
            text = env_table.as_json() if args.json else env_table.as_text()
        print(text)
        return 0
    from rlmem.config.catalog import as_json, as_text, select

    groups = select(args.group)
    print(as_json(groups) if args.json else as_text(groups))
    return 0


def _config_parser() -> Parser:
    parser = Parser(
        "config",
        "Check a command line and show what it composes, with the origin of every value. Runs nothing.",
        "memory=ffm algo.lr=1e-3",
        "algo=ppo_popgym --json",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_overrides("as for train")
    return parser


def _config(args: argparse.Namespace) -> int:
    from rlmem.config.explain import as_json, as_yaml, explain

    explained = explain(args.overrides)
    print(as_json(explained) if args.json else as_yaml(explained))
    return 0


def _bench_parser() -> Parser:
    parser = Parser(
        "bench",
        "Measure speed on this machine, as ratios to named peers that take turns in the same process.\n"
        "All but train write their numbers and a plot to the current folder: bench-WHAT.json and bench-WHAT.png.",
        "train --rounds 10 --json bench.json",
        "memory --models ffm,gru --lengths 128,1024",
        "memory --figure3",
        "update --models gru,ffm --threads 1",
        "returns --threads 1",
        "env --tasks RepeatPrevious,CuedCatch",
    )
    parser.add_argument(
        "what",
        choices=["train", "update", "memory", "scan", "returns", "env"],
        help="train: environment steps per second of whole training runs, beside sb3-contrib; update: updates of SAC "
        "per second, and where their time goes, beside POMDP-Baselines' update; memory: time and memory of every "
        "memory, beside torch.nn.GRU, and, unless --models or --lengths is given, scan; scan: the scan alone, on every "
        "engine, beside copying; returns: returns and GAE, beside the usual loops; env: steps per second of every "
        "native environment, beside one environment of its reference package",
    )
    parser.argument_default = argparse.SUPPRESS  # each benchmark has its own defaults, and takes what it knows

    def integers(text: str) -> list[int]:
        return [_integer(1)(part) for part in text.split(",")]

    parser.add_argument("--rounds", type=_integer(1), metavar="N", help="turns of each contestant (5)")
    parser.add_argument("--threads", type=_integer(1), metavar="N", help="CPU threads to learn with (all cores)")
    parser.add_argument("--budget", type=_integer(1), metavar="S", help="seconds for all turns of one cell (20)")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], help="auto: cuda if there is one")
    parser.add_argument("--models", type=lambda text: text.split(","), metavar="A,B", help="memory, update: these only")
    parser.add_argument(
        "--tasks", type=lambda text: tuple(text.split(",")), metavar="A,B", help="env: these only, by class name"
    )
    lengths = "memory: episode lengths (128,1024,16384); update: of the segments beside the tape (10,50,200)"
    parser.add_argument("--lengths", type=integers, metavar="T,T", help=lengths)
    parser.add_argument("--slots", type=_integer(1), metavar="N", help="memory: slots of a cell (16384)")
    parser.add_argument("--figure3", action="store_const", const=True, help="memory: Figure 3 of FFM's paper instead")
    parser.add_argument("--json", type=Path, metavar="PATH", dest="json_path", help="where the numbers go")
    parser.add_argument("--plot", type=Path, metavar="PATH", dest="plot_path", help="where the plot goes")
    return parser


def _bench(args: argparse.Namespace) -> int:
    from importlib import import_module
    from inspect import signature

    given = {name: value for name, value in vars(args).items() if name not in ("what", "debug")}
    what = "figure3" if args.what == "memory" and given.pop("figure3", False) else args.what
    main = import_module(f"rlmem.bench.{what}").main
    if args.what == "train" and "threads" in given:
        given["learn_threads"] = given.pop("threads")
    if problems := [name for name in given if name not in signature(main).parameters]:
        flags = [f"--{name.removesuffix('_path')}" for name in problems]
        raise UserError(*(f"bench {what}: takes no {flag}; e.g. rlmem bench --help" for flag in flags))
    main(**given)
    return 0


def _check_parser() -> Parser:
    parser = Parser(
        "check",
        "Measure whether a memory keeps the contract of memories (docs/design.md): resets, nothing from the future,\n"
        "finite gradients, ... Exit code 1 if a property fails that no published option declares.\n"
        "memory._target_=module.Class stands for a class of your own, with the keys of its constructor.",
        "memory=gru",
        "memory=ffm memory.hidden_size=32 memory.engine=loop --json",
        "memory=ffm memory.engine=triton device=cuda",
        "memory._target_=leaky.Leaky memory.hidden_size=16",
    )
    parser.add_argument("--input-size", type=_integer(1), default=6, metavar="D", help="features that it reads (6)")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_overrides("as for train; only memory, seed and device count")
    return parser


def _check(args: argparse.Namespace) -> int:
    from rlmem.config.compose import load

    config = load(args.overrides)
    from rlmem.assemble import build_memory, choose_device
    from rlmem.conformance import facts, on_two_cores, results
    from rlmem.loops.base import one_thread
    from rlmem.seeding import Streams

    name, found = config.choices["memory"], []
    with one_thread(), _stdout_to_stderr() if args.json else contextlib.nullcontext():
        with Streams(config.values["seed"]).module_init("init"):
            device = choose_device(config.values["device"])
            memory = build_memory(config, args.input_size, device)
        head = {"memory": name} | facts(memory)
        if not args.json:
            scan = f", {head['engine']} scan" if head["engine"] else ""
            size = f"{head['parameters']:,} parameters, state of {head['state']:,} numbers{scan}"
            print(f"memory={name}: {head['class']}, {size}", flush=True)
        forks = hasattr(os, "fork") and device.type == "cpu" and not args.debug
        for result in on_two_cores(memory) if forks else results(lambda: memory, reraise=args.debug):
            found.append(result)
            if not args.json:
                print(result, flush=True)
    ok = all(result.ok for result in found)
    if args.json:
        print(json.dumps(head | {"ok": ok, "properties": [result.as_json() for result in found]}, indent=2))
    return 0 if ok else 1


def _integer(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return integer


VERBS: dict[str, tuple[Callable[[], Parser], Callable[[argparse.Namespace], int]]] = {
    "train": (_train_parser, _train),
    "eval": (_eval_parser, _eval),
    "resume": (_resume_parser, _resume),
    "play": (_play_parser, _play),
    "list": (_list_parser, _list),
    "config": (_config_parser, _config),
    "bench": (_bench_parser, _bench),
    "check": (_check_parser, _check),
}
