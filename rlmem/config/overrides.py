"""The command line's `key=value` items: reading them, and refusing a wrong key before Hydra sees it."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString, RangeSweep
from hydra.errors import HydraException

from rlmem.config.catalog import default_choices, option_keys
from rlmem.config.catalog import options as options_of
from rlmem.config.messages import SYNONYMS, mistake, nearest, nearest_key, sentence, shell, to_text
from rlmem.config.schema import GROUPS, NODES
from rlmem.core.errors import UserError, brief

EXAMPLE = "rlmem train memory=ffm"

PATHS = ("run_dir", "init_from", "algo.replay_dir", "algo.dataset")
"""Keys whose values are paths, which are taken as typed, whatever they mean in Hydra's grammar."""

Tree = Mapping[str, Any]

Options = Mapping[str, list[str]]
"""Group -> its options: files of the group's folders, but those that start with `_`."""

GYMNASIUM_ID = r"([\w.-]+:)?(?:[\w.-]+/)?[\w.-]+-v\d+"
"""An id such as CartPole-v1 or ALE/Pong-v5."""

CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
"""The form of `package.module.Class`."""

MOST_JOBS = 10_000
"""The most jobs of one command: all are composed and checked, at a quarter of a second each, before one starts."""


def parse(lines: Iterable[str], loader: ConfigLoader | None = None) -> tuple[list[Override], list[str]]:
    """The readable overrides, and a sentence for each line that cannot be read."""
    parser = OverridesParser.create(config_loader=loader)
    parsed, problems = [], []
    for line in lines:
        override, (key, _, value) = _read(parser, line), line.partition("=")
        # Hydra refuses unprintable characters, and a value with quotes of its own stays as it is.
        if key in PATHS and not _is_read_as_typed(override) and value.isprintable() and value[:1] not in ("'", '"'):
            quoted = QuotedString(os.path.expanduser(value), Quote.single).with_quotes()
            override = _read(parser, f"{key}={quoted}") or override
        if override is not None and override.key_or_group:
            parsed.append(override)
        else:
            problems.append(_malformed(line))
    return parsed, problems


def assignment(key: str, value: Any) -> str:
    """`key=value` that Hydra reads as this value; a text is quoted if it would be several values or none."""
    line = f"{key}={to_text(value)}"
    if isinstance(value, str):
        parsed, problems = parse([line])
        if problems or not value or value.startswith("~") or parsed[0].is_sweep_override():
            return f"{key}={QuotedString(value, Quote.single).with_quotes()}"
    return line


def _read(parser: OverridesParser, line: str) -> Override | None:
    try:
        return parser.parse_overrides([line])[0]
    except (HydraException, ValueError, RecursionError):  # ValueError: a number with thousands of digits
        return None


def _is_read_as_typed(override: Override | None) -> bool:
    """Whether an override gives null, several values, or a text that Hydra reads as it was typed."""
    if override is None:
        return False
    value = override.value()
    if isinstance(value, str):
        return value == str(override.input_line).partition("=")[2] and not value.startswith("~")
    return value is None or override.is_sweep_override()


def form_problem(override: Override, tree: Tree) -> str | None:
    """Why this form of override (deleting, adding, several values, a package) is refused; None if it is not."""
    line, key = override.input_line or "", override.key_or_group
    known = not key_problem(override, tree, {})
    if override.is_delete():
        example = _setting(key, tree) if known else EXAMPLE
        return sentence(line, "keys cannot be removed; give a value instead", example=example)
    if override.package is not None:
        return sentence(line, "`@` is not accepted in a key", example=EXAMPLE)
    if override.is_sweep_override():
        return sentence(line, "several values; -m runs one job per value", example=f"rlmem train -m {shell(line)}")
    if known and line.startswith("+"):
        return sentence(line, "keys cannot be added, only set; write it without `+`", example=line.lstrip("+"))
    return None


def key_problem(override: Override, tree: Tree, options: Options) -> str | None:
    """Why the key of an override does not name a value of `tree`; None if it does."""
    line, parts = override.input_line or "", override.key_or_group.split(".")
    node: Any = tree
    for depth, part in enumerate(parts):
        walked = ".".join(parts[:depth])
        if not isinstance(node, Mapping):
            return sentence(line, f"`{walked}` is a value, not a section", example=f"{walked}={to_text(node)}")
        if part not in node:
            return _unknown_key(line, parts[: depth + 1], node, tree, options)
        inside_target = "_target_" in node
        node = node[part]
        if inside_target and isinstance(node, Mapping):
            return None  # an argument that is itself a mapping: its keys are free
    if not isinstance(node, Mapping) or isinstance(override.value(), dict):
        return None
    key, names = override.key_or_group, [name for name in node if not str(name).startswith("_")]
    return sentence(line, f"`{key}` is a section; set one of its keys", accepted=names, example=_setting(key, tree))


def is_choice(override: Override, groups: Mapping[str, Any]) -> bool:
    """Whether an override chooses an option, rather than setting a value."""
    return override.key_or_group in groups and not isinstance(override.value(), dict)


def is_class(group: str, name: object) -> bool:
    """Whether a choice of a group has the form of a class or function, which may take the place of an option."""
    return group in GROUPS and isinstance(name, str) and CLASS.fullmatch(name) is not None


def choice_problem(override: Override, options: Options) -> str | None:
    """Why a choice is refused; None if it is not."""
    group, choice, line = override.key_or_group, override.value(), override.input_line or ""
    names, default = options[group], default_choices().get(group, options[group][0])
    if problem := form_problem(override, {group: default}):
        return problem
    example = f"rlmem train {shell(f'{group}={to_text(default)}')}"
    if isinstance(choice, list) and not isinstance(default, list):
        return sentence(line, f"`{group}` takes one option", accepted=names, example=example)
    several = choice if isinstance(choice, list) else [choice]
    wrong = [name for name in several if name not in names and not is_class(group, name)]
    if not wrong:
        return None
    reason = f"`{group}` has no option {to_text(wrong[0]) or 'without a name'}"
    if group == "env" and re.fullmatch(GYMNASIUM_ID, str(wrong[0])):
        near = option_for_id(str(wrong[0]))
        return sentence(line, reason, near=[near], accepted=names, example=f"rlmem train {near}")
    return sentence(line, reason, near=nearest(wrong[0], names), accepted=names, example=example)


def option_for_id(id: str) -> str:
    """The overrides that choose a Gymnasium environment by its id; the packages of some have an option of their own."""
    name = id.rpartition(":")[2]
    if name.startswith("ALE/"):
        return f"env=atari env.game={name.removeprefix('ALE/').rpartition('-v')[0] or name}"
    return f"env=minigrid env.id={name}" if name.startswith(("MiniGrid-", "BabyAI-")) else f"env=gym env.id={id}"


def lines_of(override: Override, example: str) -> list[str]:
    """An override as a line for each of its values; one value as it was typed.

    Raises UserError with a command that has several values as its `example`, for values that are no list or too many.
    """
    line, value = str(override.input_line), override.value()
    if override.is_hydra_override() or not override.is_sweep_override():
        return [line]
    if not override.is_discrete_sweep():
        raise mistake(line, "no list or range of values", example=example)
    if isinstance(value, RangeSweep):
        require_short(line, value, example)
    try:
        return [f"{override.get_key_element()}={text}" for text in override.sweep_string_iterator()]
    except HydraException as error:
        raise mistake(line, str(error), example=example) from error


def require_short(line: str, value: RangeSweep, example: str) -> None:
    """Raise UserError for a range of more than MOST_JOBS values."""
    start, stop, step = (float(number) for number in (value.start or 0, value.stop or 0, value.step))
    if not step or not (stop - start) / step <= MOST_JOBS:
        raise mistake(line, f"more than {MOST_JOBS:,} values, or without end", example=example)


def require_few(values: Iterable[Sequence[Any]]) -> None:
    """Raise UserError if these values have more than MOST_JOBS combinations."""
    if (jobs := math.prod(map(len, values))) > MOST_JOBS:
        raise UserError(f"{jobs:,} jobs: expected at most {MOST_JOBS:,} in one command; e.g. several commands")


def leaf_paths(tree: Tree | list[Any], prefix: str = "", lists: bool = False) -> Iterator[tuple[str, Any]]:
    """Every value of nested mappings, with `lists` also of lists, by its dotted path; an empty mapping is a value."""
    for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        if value and (isinstance(value, Mapping) or (lists and isinstance(value, list))):
            yield from leaf_paths(value, f"{prefix}{key}.", lists)
        else:
            yield f"{prefix}{key}", value


def _malformed(line: str) -> str:
    key, equals, value = line.partition("=")
    if not equals:
        return sentence(line or repr(line), "expected key=value", example=EXAMPLE)
    if not re.fullmatch(r"[~+]*\w+([./@]\w+)*", key):
        return sentence(line, f"cannot read the key {brief(repr(key))}", example=EXAMPLE)
    problem = f"cannot read the value {brief(repr(value))}; check brackets, and put quotes around special characters"
    readable = {"{": "{k: 4}", "[": "[1, 2]"}.get(value[:1]) or QuotedString(brief(value), Quote.double).with_quotes()
    return sentence(line, problem, example=shell(f"{key.lstrip('~+')}={readable}"))


def _setting(key: str, tree: Tree) -> str:
    """An override that sets `key` to its present value, or the first value of a section."""
    inside = (leaf for leaf in leaf_paths(tree) if f"{leaf[0]}.".startswith(f"{key}."))
    path, value = next((leaf for leaf in inside if not leaf[0].endswith("._target_")), (key, "..."))
    return shell(f"{path}={to_text(value)}")


def _unknown_key(line: str, parts: list[str], node: Tree, tree: Tree, options: Options) -> str:
    *parents, name = parts
    group = parents[0] if parents else ""
    if group in NODES and name in NODES[group].supplied:
        return sentence(line, f"`{name}` is supplied at run time, not by the configuration")
    prefix = "".join(f"{parent}." for parent in parents)
    accepted = sorted(str(key) for key in node if not str(key).startswith("_"))
    near = [prefix + key for key in nearest_key(name, accepted)]
    # Elsewhere, `lr` is `algo.lr`, `gru` is `memory=gru`, and `wandb` is `logger=[local,wandb]`.
    near = near or [path for path, _ in leaf_paths(tree) if path.rpartition(".")[2] in (name, SYNONYMS.get(name))]
    groups = [group for group, names in options.items() if name in names]
    near = near or [f"{g}={name if '_target_' in tree[g] else to_text([*tree[g], name])}" for g in groups]
    problem = "no such key" if accepted else f"`{'.'.join(parents)}` has no keys"
    files = options_of()[group] if parents == [group] and "=" in line and group in options else {}
    prefixed = f"{group}.{name}="
    having = (it for it, file in files.items() if any(key.startswith(prefixed) for key in option_keys(group, file)))
    option = next(having, None)
    if option is None:
        example = _example(near, tree, options)
    else:
        example = f"rlmem train {shell(f'{group}={option}', line.lstrip('+~'))}"
    return sentence(line, problem, near=near, accepted=accepted, example=example)


def _example(near: list[str], tree: Tree, options: Options) -> str:
    if not near:
        return EXAMPLE
    name = f"{near[0]}={to_text(default_choices()[near[0]])}" if near[0] in options else near[0]
    return f"rlmem train {shell(name) if '=' in name else _setting(name, tree)}"
