"""The games of POPGym (Morad et al. 2023, arXiv:2303.01859): natively batched, or played by the `popgym` package."""

import inspect
from typing import Annotated, Any, Literal

from annotated_types import Gt
from gymnasium.spaces import Dict
from gymnasium.vector import VectorEnv

from rlmem_envs import registration
from rlmem_envs.core.batched import Observe
from rlmem_envs.popgym import package
from rlmem_envs.popgym.wrappers import PreviousAction, StartFlag


def make(
    name: str,
    level: Literal["easy", "medium", "hard"] = "easy",
    num_envs: Annotated[int, Gt(0)] = 64,
    max_episode_steps: Annotated[int, Gt(0)] | None = None,
    backend: Literal["native", "popgym"] = "native",
    rules: Literal["1.0.7", "1.0.2"] = "1.0.7",
    previous_action: bool = False,
    start_flag: bool = False,
    params: dict[str, Any] | None = None,
    privileged: bool = False,
    observe: Observe = "partial",
) -> VectorEnv:
    """`num_envs` games of one family and level.

    backend: native steps all of them by array operations; popgym is the package itself, one game after the other
    rules: the version of popgym. Published results come from 1.0.2, where CountRecall and MineSweeper differ.
    previous_action, start_flag: append the previous action, and then a flag of the first step, to every observation,
        as POPGym's baselines do
    params: parameters of the game that replace the level's own, e.g. {"num_decks": 4} for a longer RepeatPrevious
    privileged: show the full state, too
    observe: partial, what the game shows, or full, that and the full state as one vector

    Raises ValueError for an unknown name, or for rules that the game or the backend does not have.
    """
    if backend == "popgym":
        if rules != "1.0.7":
            raise ValueError(f"rules={rules}: backend=popgym is version 1.0.7 of the package; use backend=native")
        if privileged or observe == "full":
            asked = "privileged=true" if privileged else "observe=full"
            raise ValueError(f"{asked}: the package's games do not show their full state; use backend=native")
        env: VectorEnv = package.make(name, level, num_envs, max_episode_steps, params)
    else:
        settings = {"privileged": privileged, "observe": observe, **_rules(name, rules), **(params or {})}
        env = registration.make(name, num_envs, level, max_episode_steps=max_episode_steps, **settings)
    if (previous_action or start_flag) and isinstance(env.single_observation_space, Dict):
        raise ValueError("previous_action, start_flag: expected observations of one part; use the keys of the encoder")
    if previous_action:
        env = PreviousAction(env)
    return StartFlag(env) if start_flag else env


def _rules(name: str, rules: str) -> dict[str, Any]:
    """The parameter `rules`, for games whose rules have changed."""
    if name == "VelocityOnlyCartPole" and rules == "1.0.2":
        raise ValueError("rules=1.0.2: popgym 1.0.2 has no VelocityOnlyCartPole; use rules=1.0.7")
    parameters = inspect.signature(registration.task_class(name)).parameters
    return {"rules": rules} if "rules" in parameters else {}
