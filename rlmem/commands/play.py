"""`rlmem play`: play an environment in the terminal, or watch its oracle."""

from typing import Literal

from rlmem.commands.toolkit import Count, Natural, OutFile, Overrides
from rlmem.core.command import show
from rlmem.core.errors import UserError

PRINTS = True


def run(
    overrides: Overrides,
    *,
    player: Literal["keys", "random", "memoryless", "oracle"] = "keys",
    episodes: Count = 1,
    seed: Natural | None = None,
    gif: OutFile | None = None,
) -> None:
    """Play one environment in the terminal with the keyboard, or watch a player of its rule card.

    overrides: env=name, env.key=value, wrapper=name or wrapper.name.key=value
    player: who acts; keys: you
    episodes: episodes
    seed S: seed of the environment (random)
    gif PATH: write an animation instead of printing

    Examples:
        env=cued_catch
        env=visual_match --player oracle --gif visual_match.gif
        env=repeat_previous env.level=hard --player memoryless --episodes 3
    """
    from rlmem.config.compose import load

    config = load(overrides)
    from rlmem.acting.film import play
    from rlmem.acting.workers import closing
    from rlmem.run.nodes import make_env
    from rlmem.run.stored import refuse_others

    accepted = ("env", "env.*", "wrapper", "wrapper.*", "hydra.*")
    refuse_others(overrides, accepted, "play takes env and wrapper keys only; accepted:", "rlmem play env=cued_catch")
    if gif is not None and not gif.parent.is_dir():
        raise UserError(f"--gif {gif}: no folder {gif.parent}")
    with closing(make_env(config, 1)) as env:
        returns = play(env, player, episodes, seed, gif)
    if returns:
        show(f"mean return {sum(returns) / len(returns):g}")
    if gif:
        show(f"wrote {gif}")
