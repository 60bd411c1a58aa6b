"""Defaults that follow from the algorithm, the task and the budget, as conf/_tasks/rules.yaml has them, or from what
an environment shows (several_parts.yaml).

A value of the memory may follow from the memory. All others are the same for every memory, so that a control is trained
like what it controls. What is given on the command line wins, and `rlmem config` says why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from rlmem.config.overrides import leaf_paths
from rlmem.config.paths import conf_dir

FEWEST_UPDATES = 100
"""A run that will make fewer updates says so."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A default; rules.yaml says what its keys mean."""

    key: str
    why: str
    when: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None
    steps_each: int | None = None
    in_all: int | None = None
    least: float = 0
    most: float | None = None

    def applies(self, known: Mapping[str, Any]) -> bool:
        """True if a run has the key, and all options and values that `when` names."""
        fits = (known.get(path) in (value if isinstance(value, list) else [value]) for path, value in self.when.items())
        return known.get(self.key) is not None and all(fits)

    def of(self, known: Mapping[str, Any]) -> Any:
        """The default of a run to which the rule applies."""
        steps, most = known["total_steps"], known[self.key] if self.most is None else self.most
        if self.in_all is not None:
            return min(most, max(self.least, round(self.in_all / steps, 3)))
        if self.steps_each is None:
            return self.value
        devices = known["trainer.devices"]  # each has the same number
        least = -(-int(self.least) // devices) * devices
        return min(most, max(steps // self.steps_each // devices * devices, least))


@cache
def rules() -> tuple[Rule, ...]:
    """The rules in the order of the file."""
    return tuple(Rule(**rule) for rule in _content("rules"))


@cache
def several_parts() -> tuple[str, tuple[str, ...]]:
    """The encoder of several parts of an observation, and the keys that it takes over from another encoder."""
    content = _content("several_parts")
    return content["encoder"], tuple(content["keep"])


def _content(name: str) -> Any:
    return yaml.safe_load((conf_dir() / "_tasks" / f"{name}.yaml").read_text(encoding="utf-8"))


def defaults(values: Mapping[str, Any], choices: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """The dotted path of each default, its value, and why; a later one replaces an earlier one of the same path.

    values: of a run, nested, as composed
    choices: the option of each group
    """
    known = dict(leaf_paths(values)) | dict(choices)
    yield from ((rule.key, rule.of(known), f"rule: {rule.why}") for rule in rules() if rule.applies(known))
