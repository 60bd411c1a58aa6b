"""The values that a metric can have at all, which bound the intervals that are shown of it."""

from collections.abc import Sequence
from functools import cache

import yaml

from rlmem.config.catalog import default_choices, with_parents
from rlmem.config.paths import conf_dir
from rlmem.config.targets import locate
from rlmem.errors import UserError
from rlmem.evidence.metrics import made_of
from rlmem.stats.welch import ANY, Range

SHARES = ("success_rate", "accuracy", "accuracy_smoothed")
"""The last words of keys of metrics.jsonl that hold shares."""


def of_metric(metric: str, env: str, wrapper: str = "[]") -> Range:
    """The least and the greatest value of a metric of runs in an environment, which other wrappers may change."""
    try:
        key = made_of(metric)[0]
    except UserError:  # an analysis
        return ANY
    return ANY if metric.startswith("steps_to_") else of_key(key, env, wrapper)


def of_key(key: str, env: str, wrapper: str = "[]") -> Range:
    """The least and the greatest value of a key of metrics.jsonl."""
    name = key.rpartition("/")[2]
    if name in SHARES:
        return 0.0, 1.0
    return of_returns(env) if name.startswith("return_") and wrapper == "[]" else ANY


def of_overrides(metric: str, overrides: Sequence[str]) -> Range:
    """The range of a metric of runs with these overrides."""
    given = dict(line.partition("=")[::2] for line in overrides)
    return of_metric(metric, given.get("env", str(default_choices()["env"])), given.get("wrapper", "[]"))


def mean_range(ranges: Sequence[Range]) -> Range:
    """The range of a mean of values with these ranges."""
    return sum(least for least, _ in ranges) / len(ranges), sum(most for _, most in ranges) / len(ranges)


@cache
def of_returns(env: str) -> Range:
    """The least and the greatest return of an option of conf/env, as its class declares them."""
    shipped = {file.stem: file for file in (conf_dir() / "env").glob("[!_]*.yaml")}  # a name may come from elsewhere
    if env not in shipped:
        return ANY
    parts = with_parents(shipped[env])
    node = {k: v for part in parts for k, v in yaml.safe_load(part.read_text(encoding="utf-8")).items()}
    try:
        target = locate(node["_target_"])
    except UserError:  # its package is not installed
        return ANY
    if node["_target_"] == "rlmem_envs.popgym.make":
        target = locate("rlmem_envs.registration.task_class")(node["name"])
    return getattr(target, "returns", ANY)
