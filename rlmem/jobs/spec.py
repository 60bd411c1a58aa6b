"""The specification of a sweep, what varies in it, and the overrides of every job.

A sweep file is only another way to write its command line, a list of overrides.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal

import yaml
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from rlmem.config import plainyaml
from rlmem.config.catalog import default_choices, option_names, yaml_problem
from rlmem.config.compose import config_loader
from rlmem.config.messages import nearest, sentence, shell, to_text
from rlmem.config.overrides import assignment, lines_of, parse, require_few, require_short
from rlmem.core.errors import UserError
from rlmem.core.received import loads, named

EXAMPLE = "rlmem sweep memory=ffm,gru seed=0,1,2"
PAIR = '--pair "env=repeat_first,autoencode algo.gamma=0.9,0.99"'
Direction = Literal["maximize", "minimize"] | None
Sampler = Literal["tpe", "random"]
SECTIONS = ("overrides", "grid", "pairs")


@dataclass(frozen=True)
class SweepSpec:
    """The jobs of a sweep, before they are multiplied out.

    overrides: `key=value` lines; one with several values is an axis of the grid
    pairs: lines whose values go together, the first with the first
    direction: `maximize` or `minimize` for a search; None: a grid
    sampler: for a search: `tpe` learns from the jobs so far what to try, `random` does not
    """

    overrides: tuple[str, ...]
    pairs: tuple[tuple[str, ...], ...] = ()
    direction: Direction = None
    sampler: Sampler = "tpe"

    @property
    def canonical(self) -> str:
        """The same text for the same jobs, in whatever order they are given."""
        ordered = asdict(self) | {"overrides": sorted(self.overrides), "pairs": sorted(map(sorted, self.pairs))}
        if self.sampler == "tpe":  # older directories of sweeps lack the key
            del ordered["sampler"]
        return json.dumps(ordered, sort_keys=True)

    @property
    def short_hash(self) -> str:
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:6]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SweepSpec:
        stored = loads(text)
        sampler = stored.get("sampler", "tpe")
        return cls(tuple(stored["overrides"]), tuple(map(tuple, stored["pairs"])), stored["direction"], sampler)


def specify(
    file: Path | None, overrides: Sequence[str], pairs: Sequence[str], direction: Direction, sampler: Sampler = "tpe"
) -> SweepSpec:
    """The specification of a command. Raises UserError.

    file: the sweep file, if there is one
    overrides: `key=value` lines, which replace those of the file for the same keys
    pairs: `key=a,b key=c,d` each, as `--pair` takes them
    """
    lines, together = _read(file) if file else ([], [])
    added = [_pair(text) for text in pairs]
    keys = {_key(line) for line in chain(overrides, *added)}
    if clashes := keys & {_key(line) for pair in together for line in pair}:
        problem = f"is in the pairs of {file}, whose values go together"
        raise UserError(sentence(min(clashes), problem, example="a sweep file of its own"))
    of_file = [line for line in lines if _key(line) not in keys]
    return SweepSpec((*of_file, *overrides), (*together, *added), direction, sampler)


def _pair(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UserError(f"--pair {text}: cannot be read ({error}); e.g. {PAIR}") from error


def _read(file: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    """The lines and the pairs of a sweep file; `grid: {seed: [0, 1]}` is `seed=0,1`, one of `pairs` is a `--pair`."""
    try:
        content = plainyaml.read(named(file)) or {}
    except yaml.YAMLError as error:
        raise UserError(yaml_problem(error, file)) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({' '.join(str(error).split())}); expected a sweep file") from error
    if not isinstance(content, dict):
        raise UserError(sentence(str(file), "no mapping", accepted=SECTIONS, example="grid: {seed: [0, 1, 2]}"))
    for name in content:
        if name not in SECTIONS:
            near = nearest(name, SECTIONS)
            raise UserError(sentence(f"{file}: {name}", "no such section", near=near, accepted=SECTIONS))
    overrides, grid, pairs = content.get("overrides") or [], content.get("grid") or {}, content.get("pairs") or []
    if not isinstance(overrides, list) or not all(isinstance(line, str) for line in overrides):
        raise UserError(f"{file}: overrides: expected a list of key=value; e.g. overrides: [env=repeat_first]")
    if not isinstance(pairs, list):
        raise UserError(f"{file}: pairs: expected a list of mappings; e.g. pairs: [{{env: [a, b], algo.lr: [1, 2]}}]")
    lines = [*overrides, *_axes(grid, f"{file}: grid")]
    return lines, [tuple(_axes(pair, f"{file}: pairs")) for pair in pairs]


def _axes(section: Any, where: str) -> Iterable[str]:
    if not isinstance(section, Mapping):
        raise UserError(f"{where}: expected key: [values]; e.g. seed: [0, 1, 2]")
    for key, values in section.items():
        if values == []:
            raise UserError(f"{where}: {key}: no values; e.g. seed: [0, 1, 2]")
        if isinstance(values, list):
            yield f"{key}={','.join(assignment(key, value).partition('=')[2] for value in values)}"
        else:  # a text is in Hydra's grammar, such as range(0,10)
            yield f"{key}={values if isinstance(values, str) else to_text(values)}"


def _key(line: str) -> str:
    return re.sub(r"^[+~]+", "", line).partition("=")[0]


Lines = tuple[str, ...]


@dataclass(frozen=True)
class NumberRange:
    """Numbers that a search draws from: all of an interval, or those `step` apart; `log`: uniform in the logarithm."""

    low: float
    high: float
    step: float | None
    log: bool


@dataclass(frozen=True)
class Axis:
    """One or more keys that take one value in every job.

    keys: the keys that it sets, as given
    points: the overrides of each of its values; an interval has those of its two ends
    when: group -> option of the jobs that have this axis; empty: all jobs
    numbers: the numbers that a search draws from; None: it draws one of `points`
    """

    keys: tuple[str, ...]
    points: tuple[Lines, ...]
    when: Mapping[str, str] = field(default_factory=dict)
    numbers: NumberRange | None = None

    @property
    def varies(self) -> bool:
        return len(self.points) > 1

    def fits(self, lines: Iterable[str]) -> bool:
        """Whether a job with these overrides has this axis."""
        choices = dict(default_choices())
        for line in lines:
            key, _, value = line.partition("=")
            if isinstance(choices.get(key), str):
                choices[key] = value.strip("'\"")
        return all(choices.get(group) == option for group, option in self.when.items())


def axes(spec: SweepSpec, own_directories: bool = True) -> list[Axis]:
    """The axes of a specification, including fixed values. Raises UserError with every problem.

    own_directories: whether every job has a run directory in that of the sweep, so that no line may choose one
    """
    with config_loader() as loader:
        parsed = [parse(together, loader) for together in [*([line] for line in spec.overrides), *spec.pairs]]
        if unreadable := [problem for _, problems in parsed for problem in problems]:
            raise UserError(*unreadable)
        options = option_names([line for line in spec.overrides if line.startswith("hydra.searchpath")])
        all_axes, problems = [], []
        if own_directories:
            problems = _problems_of_keys(chain.from_iterable(together for together, _ in parsed))
        for together, _ in parsed:
            try:
                all_axes.append(_axis(together, options, searched=spec.direction is not None))
            except UserError as error:
                problems += error.problems
    if problems := [*problems, *_problems_of_repetition(all_axes), *_problems_of_conditions(all_axes)]:
        raise UserError(*dict.fromkeys(problems))
    return all_axes


def expand(all_axes: Sequence[Axis]) -> list[Lines]:
    """The overrides of every job of a grid."""
    jobs, always = [], [axis.points for axis in all_axes if not axis.when]
    require_few(always)
    for point in product(*always):
        lines = tuple(chain(*point))
        fitting = [axis.points for axis in all_axes if axis.when and axis.fits(lines)]
        require_few(fitting)
        jobs += [lines + tuple(chain(*more)) for more in product(*fitting)]
        require_few([jobs])
    return jobs


def probes(all_axes: Sequence[Axis]) -> list[Lines]:
    """Jobs that have every value of every axis at least once, for a search that may draw any combination."""
    starts = _every_value([axis for axis in all_axes if not axis.when])
    fitting = [[axis for axis in all_axes if axis.when and axis.fits(lines)] for lines in starts]
    jobs = [lines + more for lines, special in zip(starts, fitting, strict=True) for more in _every_value(special)]
    return list(dict.fromkeys(jobs))


def _every_value(axes: Sequence[Axis]) -> list[Lines]:
    """Overrides with every value of each of these axes, the other axes at their first values."""
    first = [axis.points[:1] for axis in axes]
    varied = [[*first[:i], axis.points, *first[i + 1 :]] for i, axis in enumerate(axes) if axis.varies] or [first]
    return [tuple(chain(*point)) for points in varied for point in product(*points)]


def label(lines: Iterable[str], all_axes: Sequence[Axis]) -> str:
    """A readable name of a job, made of what varies: `ffm-trace_size16-seed0`."""
    varying = {_bare(key, axis.when) for axis in all_axes if axis.varies for key in axis.keys}
    groups = default_choices()
    parts = []
    for line in lines:
        key, _, value = line.lstrip("+").partition("=")
        if key in varying:
            if len(value) > 7 and re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", value):
                value = f"{float(value):.3g}"
            name = key.rpartition(".")[2]
            short = value.rpartition(".")[2] if name == "_target_" else name + value
            parts.append(value if key in groups else short)
    return re.sub(r"[^\w.+-]+", "_", "-".join(parts)).strip("_")[:80]


def _axis(together: Sequence[Override], options: Mapping[str, Sequence[str]], searched: bool) -> Axis:
    when: dict[str, str] = {}
    for override in together:
        when |= _condition(override.key_or_group, options)
    keys = tuple(override.key_or_group for override in together)
    if len(together) == 1 and isinstance(sweep := together[0].value(), IntervalSweep | RangeSweep):
        return _numeric(together[0], sweep, when, searched)
    columns = [[_bare(line, when) for line in lines_of(override, EXAMPLE)] for override in together]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{key} has {len(column)}" for key, column in zip(keys, columns, strict=True))
        problem = f"values that go together must be equally many; {lengths}"
        raise UserError(sentence(" ".join(str(o.input_line) for o in together), problem, example=PAIR))
    return Axis(keys, tuple(zip(*columns, strict=True)), when)


def _numeric(override: Override, sweep: IntervalSweep | RangeSweep, when: Mapping[str, str], searched: bool) -> Axis:
    line, key = str(override.input_line), override.key_or_group
    if isinstance(sweep, RangeSweep):
        require_short(line, sweep, EXAMPLE)
        values: list[float] = [value for value in override.sweep_iterator() if isinstance(value, int | float)]
        step: float | None = abs(sweep.step)
    elif searched:
        values, step = [sweep.start or 0, sweep.end or 0], None
    else:
        problem = "no list or range of values; an interval is for a search"
        raise UserError(sentence(line, problem, example=f"rlmem sweep --trials 20 {shell(line)}"))
    log = "log" in sweep.tags
    if not values or (step is None and values[0] >= values[1]) or (log and min(values) <= 0):
        problem = "expected a low and a higher end, above 0 for `tag(log, ...)`"
        raise UserError(sentence(line, problem, example=f"'{key}=tag(log, interval(1e-5,1e-2))'"))
    name = _bare(override.get_key_element(), when)
    numbers = NumberRange(min(values), max(values), step, log) if searched else None
    return Axis((key,), tuple((f"{name}={value}",) for value in values), when, numbers)


def _condition(key: str, options: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Which jobs have a key: {"memory": "ffm"} for `memory.ffm.trace_size`; all if its group has several options."""
    group, *rest = key.split(".")
    special = len(rest) > 1 and rest[0] in options.get(group, ()) and isinstance(default_choices().get(group), str)
    return {group: rest[0]} if special else {}


def _bare(line: str, when: Mapping[str, str]) -> str:
    """`memory.trace_size` for `memory.ffm.trace_size`."""
    for group, option in when.items():
        line = re.sub(rf"^(\+*){group}\.{re.escape(option)}\.", rf"\1{group}.", line)
    return line


def _problems_of_keys(overrides: Iterable[Override]) -> list[str]:
    problems = []
    for override in overrides:
        line, key = str(override.input_line), override.key_or_group
        if key in ("run_dir", "on_exists"):
            problems.append(sentence(line, "every job has a run directory of its own", example="--dir sweeps/mine"))
        elif key.partition(".")[0] == "launcher" or (override.is_hydra_override() and key != "hydra.searchpath"):
            problem = "Hydra's launchers and sweepers are for `rlmem train -m`; a sweep starts its jobs itself"
            problems.append(sentence(line, problem, example=EXAMPLE))
    return problems


def _problems_of_repetition(all_axes: Sequence[Axis]) -> list[str]:
    counts = Counter(key for axis in all_axes for key in axis.keys)
    varying = {key for axis in all_axes if axis.varies for key in axis.keys}
    twice = [key for key in counts if counts[key] > 1 and key in varying]
    return [f"{key}: given {counts[key]} times; give all its values at once" for key in twice]


def _problems_of_conditions(all_axes: Sequence[Axis]) -> list[str]:
    """Complaints about axes for an option that no job has."""
    choosing = [a.points for a in all_axes if not a.when and any(key in default_choices() for key in a.keys)]
    require_few(choosing)
    starts = [tuple(chain(*point)) for point in product(*choosing)]
    problems = []
    for axis in all_axes:
        if not any(axis.fits(lines) for lines in starts):
            wanted = [f"{group}={option}" for group, option in axis.when.items()]
            example = f"rlmem sweep {shell(*wanted)}"
            problems.append(sentence(", ".join(axis.keys), f"no job has {' and '.join(wanted)}", example=example))
    return problems
