"""The environments of a run: those it is trained in, and those it is evaluated in."""

from collections.abc import Collection
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from rlmem.config.catalog import default_choices
from rlmem.config.compose import Config
from rlmem.config.messages import to_text
from rlmem.config.targets import locate
from rlmem.errors import UserError
from rlmem.run.build import build_node, refused
from rlmem.run.forecast import require_environments
from rlmem.supervised.classify import Labelled

EVAL_ENVS = 64
"""The most environments that play evaluation episodes side by side."""

MANY_ENVS = 1024
"""Above this count, one environment is built first to estimate the memory of all."""


def make_env(config: Config, num_envs: int | None = None) -> VectorEnv:
    """The vector environment of `config`, of `num_envs` instead of `env.num_envs`. Raises UserError."""
    env = make_source(config, num_envs)
    if not isinstance(env, VectorEnv):
        what = "holds labelled sequences, in which nothing acts"
        raise UserError(f"env={config.choices['env']}: {what}; e.g. env={default_choices()['env']}")
    return env


def make_source(config: Config, num_envs: int | None = None, only_one: bool = False) -> Any:
    """What `env` describes: environments, or a `Labelled`; only one, after a check that `num_envs` fit in memory."""
    node = {key: value for key, value in config.values["env"].items() if key != "evaluation"}
    number = num_envs or node.get("num_envs") or 1
    if only_one or number > MANY_ENVS:
        one = _make(config, node, 1)
        require_environments(one, number)
        if only_one:
            return one
        one.close()
    return _make(config, node, num_envs)


def evaluation_node(config: Config, given: Collection[str] = ()) -> dict[str, Any]:
    """The node of `env` for an evaluation: the keys of `env.evaluation` replace its own, but none of those `given`."""
    node = dict(config.values["env"])
    replaced = node.pop("evaluation", None) or {}
    return node | {key: value for key, value in replaced.items() if key not in given}


def make_evaluation_env(config: Config, num_envs: int, given: Collection[str] = ()) -> VectorEnv:
    """The vector environment of `evaluation_node`; UserError as for `make_env`."""
    replaced = config.values["env"].get("evaluation")
    changed = f" with env.evaluation={to_text(replaced)}" if replaced else ""
    return _make(config, evaluation_node(config, given), num_envs, changed)


def require_same_spaces(config: Config, trained: VectorEnv, other: VectorEnv, what: str) -> None:
    """Raise UserError, blaming `what`, if an agent that was trained in one environment cannot play the other."""
    for kind in ("observation", "action"):
        was, now = (getattr(env, f"single_{kind}_space") for env in (trained, other))
        if was != now:
            raise UserError(
                f"{what}: changes the {kind} space from {was} to {now}, which the agent cannot read; "
                f"expected the same spaces; e.g. another length of env={config.choices['env']}"
            )


def _make(config: Config, node: dict[str, Any], num_envs: int | None, changed: str = "") -> Any:
    """What a node of `env` describes; `changed` is what the errors add to the name of the option."""
    name, target = f"env={config.choices['env']}", locate(node["_target_"])
    if num_envs is not None and not (isinstance(target, type) and issubclass(target, Labelled)):
        node = node | {"num_envs": num_envs}
    where, quoted = f"{name}{changed}", (gym.error.Error, TypeError, ValueError, AssertionError)
    with refused(where, "cannot be made", f"see `rlmem config {name}`", quoted):
        try:
            return build_node(where, "env", node)
        except ImportError as error:  # names the package that is missing
            raise UserError(f"{where}: {error}") from error
