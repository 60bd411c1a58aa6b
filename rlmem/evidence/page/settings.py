"""Settings that distinguish runs, and short names of runs.

A name is made of what differs among the runs and does not follow from something else. A default that differs only
because the option of its group differs is not named unless a run sets its key: the option's name is enough.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlmem.config.catalog import default_choices
from rlmem.config.messages import to_text
from rlmem.core.received import loads
from rlmem.record import rundir

COLUMN, MEMORY = "env", "memory"
"""The group whose options name the columns, if they vary, and that whose options are the memories."""
APART = ("seed", "run_dir", "on_exists", "threads", "device", "logger", "callbacks")
"""Keys that do not distinguish experiments."""


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run.

    options: group -> option
    values: other key -> value as typed, without keys that affect no result
    asked: the keys that were set on the command line; one may contain others
    whole: whether these are all settings, and not those of the command line alone
    seed: its seed
    """

    options: Mapping[str, str]
    values: Mapping[str, str]
    asked: Sequence[str]
    whole: bool = True
    seed: int = 0

    def asks(self, key: str) -> bool:
        return any(key == own or key.startswith(f"{own}.") for own in self.asked)

    def option_of(self, key: str) -> str | None:
        """The option of the group that a key belongs to; None if it belongs to no group."""
        return self.options.get(key.partition(".")[0])


def settings_of(run_dir: Path | None, overrides: Sequence[str]) -> RunSettings:
    """The settings that distinguish a run; those of its overrides alone where it has no directory yet."""
    asked = {key: _as_stored(value) for key, _, value in (line.lstrip("+").partition("=") for line in overrides)}
    defaults, whole = default_choices(), True
    try:
        config, about = read_run(run_dir)
        values, choices = dict(_flat(config)), about["choices"]
    except rundir.NoRun:  # a job that has not begun, or numbers alone
        values, whole = dict(asked), False
        choices = {group: asked.get(group, option) for group, option in defaults.items()}
    options = {g: to_text(choices[g]) for g in [*defaults, *choices] if g in choices and g not in APART}
    if COLUMN in options:
        options[COLUMN] = values.pop("env.id", options[COLUMN])  # the id says more than `gym`
    seed = values.get("seed", "0")
    values = {key: value for key, value in values.items() if key.partition(".")[0] not in APART and key not in choices}
    keys = [key for key in asked if key not in choices]
    return RunSettings(options, values, keys, whole, int(seed) if re.fullmatch("[0-9]{1,18}", seed) else 0)


def read_run(run_dir: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of config.yaml and run.json. Raises NoRun if they are missing or malformed."""
    if run_dir is None:
        raise rundir.NoRun("the run lies elsewhere")
    config, about = rundir.read(run_dir)
    texts = all(isinstance(about.get(name), str | None) for name in ("rlmem", "git"))
    if not (texts and isinstance(config.get("total_steps", 0), int)):
        raise rundir.NoRun(f"{run_dir}: config.yaml or run.json is damaged (not what was written); restore it")
    return config, about


def _as_stored(value: str) -> str:
    """A value of the command line in the form of config.yaml: `1e-3` is 0.001."""
    try:
        return to_text(loads(value))
    except ValueError:
        return value


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", to_text(value)


def labels(runs: Sequence[RunSettings]) -> list[tuple[str, str]]:
    """Row and column of every run: rows are named by what varies, and columns by the environment if it varies."""
    groups = dict.fromkeys(group for run in runs for group in run.options)
    varying = [group for group in groups if len({run.options.get(group) for run in runs}) > 1]
    rows = [group for group in varying if group != COLUMN]
    unsorted = dict.fromkeys(key for run in runs for key in run.values)
    every = sorted(unsorted, key=lambda key: not any(run.asks(key) for run in runs))  # those that were set come first
    often = Counter(key.rpartition(".")[2] for key in every)
    keys = [key for key in every if _differs(key, runs)]
    places = []
    for run in runs:
        words = [*_options(run, rows, runs), *(_word(key, run, often) for key in keys if key in run.values)]
        name = " ".join(words) or run.options.get(MEMORY, "")
        places.append((name, run.options.get(COLUMN, "") if COLUMN in varying else ""))
    return places


def between_rows(runs: Sequence[RunSettings], places: Sequence[tuple[str, str]]) -> str:
    """The keys in which rows differ within any column, but for those of the memory.

    A group stands for its keys where its options differ. The text is empty for a single row, and where nothing is found
    among the settings of the command line, since defaults may differ.
    """
    whole = any(run.whole for run in runs)
    columns: dict[str, list[RunSettings]] = defaultdict(list)
    for run, (_, column) in zip(runs, places, strict=True):
        if run.whole == whole:
            columns[column].append(run)
    differ = lambda of: any(len(set(map(of, column))) > 1 for column in columns.values())  # noqa: E731
    options = dict.fromkeys(group for run in runs for group in run.options)
    groups = [group for group in options if differ(lambda run, group=group: run.options.get(group))]
    keys = dict.fromkeys(key for run in runs for key in run.values if key.partition(".")[0] not in (MEMORY, *groups))
    differing = [group for group in groups if group != MEMORY]
    differing += [key for key in keys if differ(lambda run, key=key: run.values.get(key))]
    several = len({row for row, _ in places}) > 1
    return (", ".join(differing) or "nothing but the memory" * whole) if several else ""


def _differs(key: str, runs: Sequence[RunSettings]) -> bool:
    """True if a key distinguishes runs with equal options, or was set to different values."""
    having = [run for run in runs if key in run.values]
    if any(run.asks(key) for run in runs):
        options = {run.option_of(key) for run in having}
        lacking = any(key not in run.values and run.option_of(key) in options for run in runs)
        return lacking or len({run.values[key] for run in having}) > 1
    defaults = {(tuple(run.options.values()), run.values[key]) for run in having}
    return len(defaults) > len({options for options, _ in defaults})  # defaults may differ with options and versions


def _options(run: RunSettings, groups: Iterable[str], runs: Sequence[RunSettings]) -> list[str]:
    """`ffm`, or `encoder=mlp` with the group where another group has an option of the same name."""
    taken = Counter(option for group in groups for option in {other.options.get(group, "") for other in runs})
    named = [(group, run.options[group]) for group in groups if run.options.get(group)]
    return [option if taken[option] == 1 else f"{group}={option}" for group, option in named]


def _word(key: str, run: RunSettings, often: Mapping[str, int]) -> str:
    """`trace_size=16`: the last word of a group's key, unless another key ends in the same word."""
    last = key.rpartition(".")[2]
    return f"{last if often[last] == 1 and run.option_of(key) else key}={run.values[key]}"
