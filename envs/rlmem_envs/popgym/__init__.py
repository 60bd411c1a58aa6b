"""The games of POPGym (Morad et al. 2023, arXiv:2303.01859): natively batched, or played by the `popgym` package."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Gt
from gymnasium.vector import VectorEnv

from rlmem_envs import registration
from rlmem_envs.popgym import package


def make(
    name: str,
    level: Literal["easy", "medium", "hard"] = "easy",
    num_envs: Annotated[int, Gt(0)] = 64,
    max_episode_steps: Annotated[int, Gt(0)] | None = None,
    backend: Literal["native", "popgym"] = "native",
    params: dict[str, Any] | None = None,
) -> VectorEnv:
    """`num_envs` games of one family and level.

    backend: native steps all of them by array operations; popgym is the package itself, one game after the other
    params: parameters of the game that replace the level's own, e.g. {"num_decks": 4} for a longer RepeatPrevious
    """
    params = params or {}
    if backend == "popgym":
        return package.make(name, level, num_envs, max_episode_steps, params)
    return registration.make(name, num_envs, level, max_episode_steps=max_episode_steps, **params)
