"""The specification of a sweep: a sweep file is only another way to write its command line, a list of overrides."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import yaml

from rlmem.config import plainyaml
from rlmem.config.catalog import yaml_problem
from rlmem.config.messages import nearest, sentence, to_text
from rlmem.config.overrides import assignment
from rlmem.core.errors import UserError
from rlmem.core.received import named
from rlmem.core.strictjson import loads

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
    given = {_key(line) for line in chain(overrides, *added)}
    if clashes := given & {_key(line) for pair in together for line in pair}:
        what = f"is in the pairs of {file}, whose values go together"
        raise UserError(sentence(min(clashes), what, example="a sweep file of its own"))
    kept = [line for line in lines if _key(line) not in given]
    return SweepSpec((*kept, *overrides), (*together, *added), direction, sampler)


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
        what = "expected a list of mappings; e.g. pairs: [{env: [a, b], algo.gamma: [1, 2]}]"
        raise UserError(f"{file}: pairs: {what}")
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
