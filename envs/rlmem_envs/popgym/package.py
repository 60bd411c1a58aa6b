"""The games of POPGym (Morad et al. 2023, arXiv:2303.01859), played by the `popgym` package itself."""

import importlib.util
import inspect
import warnings
from typing import Annotated, Any, Literal

import gymnasium as gym
from annotated_types import Gt
from gymnasium.envs.registration import load_env_creator

from rlmem_envs.replay import ReplayableVectorEnv
from rlmem_envs.vector import vectorise

SPELLED = {"VelocityOnlyCartPole": "VelocityOnlyCartpole"}
"""Names that the package's ids spell in another way."""


def make(
    name: str,
    level: Literal["easy", "medium", "hard"] = "easy",
    num_envs: Annotated[int, Gt(0)] = 64,
    max_episode_steps: Annotated[int, Gt(0)] | None = None,
    params: dict[str, Any] | None = None,
) -> ReplayableVectorEnv:
    """`num_envs` games of `popgym-<name><Level>-v0`, without popgym's wrappers.

    params: constructor arguments that replace the level's own, e.g. {"num_decks": 4} for a longer RepeatPrevious.
    Rewards are scaled by the game so that a perfect episode returns at most 1; observations are a Box, Discrete or
    MultiDiscrete. Raises ImportError for the labyrinths without mazelib, gymnasium.error.Error for an unknown name,
    TypeError for an unknown parameter.
    """
    game = game_class(name, level)
    params = params or {}
    if params:
        game = with_parameters(game, params)
    return vectorise(lambda: game(), num_envs, max_episode_steps)


def game_class(name: str, level: str) -> type[gym.Env]:
    """The class that popgym registers for this game and level."""
    if name.startswith("Labyrinth") and importlib.util.find_spec("mazelib") is None:
        raise ImportError(
            f"{name} needs mazelib, which is not installed: pip install '.[labyrinth]' in a clone of rlmem",
            name="mazelib",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # popgym on its own labyrinths
        import popgym  # noqa: F401  registers the ids

        game: Any = load_env_creator(
            str(gym.spec(f"popgym-{SPELLED.get(name, name)}{level.capitalize()}-v0").entry_point)
        )
    return game


def with_parameters(game: type[gym.Env], params: dict[str, Any]) -> type[gym.Env]:
    """A level with some of its constructor arguments replaced.

    popgym writes a level as `class Easy(Game): def __init__(self): super().__init__(num_decks=1)`. A class put
    between the two in the method resolution order sees those arguments and can replace them.
    """
    base: Any = game.__mro__[1]
    names = list(inspect.signature(base).parameters)

    class Replace(base):
        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(**{**dict(zip(names, args, strict=False)), **kwargs, **params})

    return type(game.__name__, (game, Replace), {})
