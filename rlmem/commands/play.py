"""`rlmem play`: one environment in the terminal."""

from rlmem.commands.toolkit import Arguments, Parser, integer_from, out_file
from rlmem.config.messages import sentence
from rlmem.errors import UserError
from rlmem.system.command import show

PARSER = Parser(
    "play",
    "Play one environment in the terminal with the keyboard, or watch a player of its rule card.",
    "env=cued_catch",
    "env=visual_match --player oracle --gif visual_match.gif",
    "env=repeat_previous env.level=hard --player memoryless --episodes 3",
)
players = ["keys", "random", "memoryless", "oracle"]
PARSER.add_argument("--player", choices=players, default="keys", help="who acts (keys: you)")
PARSER.add_argument("--episodes", type=integer_from(1), default=1, metavar="N", help="episodes (1)")
PARSER.add_argument("--seed", type=integer_from(0), metavar="S", help="seed of the environment (random)")
PARSER.add_argument("--gif", type=out_file, metavar="PATH", help="write an animation instead of printing")
PARSER.add_overrides("env=name, env.key=value, wrapper=name or wrapper.name.key=value")


def run(args: Arguments) -> None:
    from rlmem.config.compose import load

    config = load(args.overrides)
    from rlmem.acting.play import play
    from rlmem.acting.workers import closing
    from rlmem.run.build import make_env

    if wrong := [
        o for o in args.overrides if not o.lstrip("+~").startswith(("env=", "env.", "wrapper=", "wrapper.", "hydra."))
    ]:
        example = "rlmem play env=cued_catch"
        raise UserError(
            *(sentence(override, "play takes env and wrapper keys only", example=example) for override in wrong)
        )
    if args.gif is not None and not args.gif.parent.is_dir():
        raise UserError(f"--gif {args.gif}: no folder {args.gif.parent}")
    with closing(make_env(config, 1)) as env:
        returns = play(env, args.player, args.episodes, args.seed, args.gif)
    if returns:
        show(f"mean return {sum(returns) / len(returns):g}")
    if args.gif:
        show(f"wrote {args.gif}")
