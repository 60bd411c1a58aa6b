"""Which keys of a configuration make an experiment, and which of them a resumed run may change."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

from rlmem.config.messages import to_text
from rlmem.config.overrides import leaf_paths
from rlmem.errors import UserError

RESUMABLE = (
    "total_steps",
    "device",
    "threads",
    "on_nan",
    "checkpoint.*",
    "evaluation.*",
    "env.evaluation",
    "env.evaluation.*",
    "logger",
    "logger.*",
    "algo.replay_dir",
    "algo.ray_address",
)
"""Keys that a resumed run may change, since they do not affect what was learnt so far."""


def experiment_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that determine the numbers of a run: all but its place and what a resumed run may change."""
    others = (*RESUMABLE, "run_dir", "on_exists")
    return {key: value for key, value in leaf_paths(values) if not _matches(key, others)}


def require_same_experiment(stored: Mapping[str, Any], given: Mapping[str, Any], where: str, example: str) -> None:
    """Raise UserError with every key in which two experiments differ.

    stored: the experiment of an earlier run, as `experiment_of` returns it
    given: the experiment that is to continue it
    where: the place of the earlier run, as the error names it
    example: what the user may do instead
    """
    missing = object()
    differing = [key for key in {**stored, **given} if stored.get(key, missing) != given.get(key, missing)]
    shown = lambda side, key: to_text(side[key]) if key in side else "not set"  # noqa: E731
    if differing:
        raise UserError(*(f"{k}={shown(given, k)}: {where} has {shown(stored, k)}; e.g. {example}" for k in differing))


def require_resumable(overrides: Sequence[str], command: str) -> None:
    """Raise UserError for overrides of keys that a resumed run may not change; `command` is a correct example."""
    refuse_others(overrides, RESUMABLE, "would change the experiment; a resumed run accepts", command)


def refuse_others(overrides: Sequence[str], accepted: Sequence[str], reason: str, command: str) -> None:
    """Raise UserError for overrides of keys that match none of the patterns `accepted`."""
    problems = [
        f"{override}: {reason} {', '.join(accepted)}; e.g. {command}"
        for override in overrides
        if not _matches(override.lstrip("+~").split("=")[0], accepted)
    ]
    if problems:
        raise UserError(*problems)


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(key, pattern) for pattern in patterns)
