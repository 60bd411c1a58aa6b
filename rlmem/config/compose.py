"""A command line or a stored run plus overrides -> one checked Config, or all its problems at once."""

import json
import re
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import lru_cache, reduce
from operator import getitem
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from rlmem.config import rules
from rlmem.config.catalog import (
    COMMAND_LINE,
    TASKS,
    Choice,
    Origins,
    Placed,
    default_choices,
    hint,
    lookup,
    merged,
    option,
    option_names,
    sources,
    yaml_problem,
)
from rlmem.config.messages import sentence, shell, to_text
from rlmem.config.overrides import (
    Options,
    choice_problem,
    form_problem,
    is_choice,
    is_class,
    key_problem,
    leaf_paths,
    parse,
)
from rlmem.config.paths import conf_dir, own_dirs
from rlmem.config.schema import GROUPS, NODES, SECTIONS, WRAPPER, Settings, TopLevel
from rlmem.config.targets import signature_node
from rlmem.config.validate import MISSING, Refusal, validate
from rlmem.core.errors import UserError, first_line
from rlmem.core.received import map_values

FAILURES = (HydraException, OmegaConfBaseException, yaml.YAMLError, UserWarning, AttributeError)
"""What composing raises beside UserError: AttributeError if a mapping would replace a null of Hydra's, and others."""


@dataclass(frozen=True)
class Config:
    """One run.

    values: plain and nested
    choices: the option of each group, or `package.module.Class`
    overrides: as given
    ruled: the defaults that follow from the algorithm, the task and the budget: dotted path -> why, or the file
    """

    values: dict[str, Any]
    choices: dict[str, Choice]
    overrides: tuple[str, ...]
    ruled: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The values that belong to no group, typed."""
        scalars = {field.name: self.values[field.name] for field in fields(TopLevel)}
        return Settings(**scalars, **{name: section(**self.values[name]) for name, section in SECTIONS.items()})


@dataclass(frozen=True)
class Base:
    """The composition before single values are set and resolved; files are those that were merged, in order."""

    tree: dict[str, Any]
    choices: dict[str, Choice]
    options: Options
    files: tuple[Placed, ...]

    def origins(self) -> Origins:
        """The line of a file, or the class, that set each value."""
        return sources(self.files) | {group: str(self.choices[group]) for group in self.classes()}

    def classes(self) -> set[str]:
        """The groups for which a class was chosen, not an option."""
        return {g for g, name in self.choices.items() if is_class(g, name) and name not in self.options.get(g, ())}


def load(overrides: Sequence[str]) -> Config:
    """Compose conf/ with overrides and check the result. Raises UserError with every problem."""
    base, assignments, problems = compose_base(overrides)
    values, assigned = _settle(base, assignments, problems), _given(assignments)
    ruled = sources((package, file) for package, file in base.files if TASKS in file.parts)
    for path, value, why in rules.defaults(values, base.choices):
        *sections, key = path.split(".")
        node = reduce(getitem, sections, values)
        if path not in assigned and node[key] != value:
            node[key], ruled[path] = value, why
    ruled = {path: why for path, why in ruled.items() if path not in assigned}
    return Config(values, base.choices, tuple(overrides), ruled)


def explain(overrides: Sequence[str]) -> tuple[Config, Origins]:
    """The checked configuration of a command line, and the origins of its values."""
    config = load(overrides)
    base, assignments, _ = compose_base(overrides)
    origins = base.origins() | config.ruled | dict.fromkeys(_given(assignments), COMMAND_LINE)
    return config, {path: lookup(path, origins) or "config.yaml" for path, _ in leaf_paths(config.values)}


def _given(assignments: Iterable[Override]) -> dict[str, Any]:
    """The values that overrides set, by their dotted paths."""
    return dict(leaf for o in assignments for leaf in leaf_paths({o.key_or_group: o.value()}))


def apply(config: Config, overrides: Sequence[str]) -> Config:
    """A stored run's configuration with some values replaced, checked as in `load`; its groups are fixed.

    Raises one UserError, however much of the stored configuration is missing or wrong.
    """
    missing = [
        Refusal(group, "is missing", MISSING) for group in (*GROUPS, "logger", *SECTIONS) if group not in config.values
    ]
    values, refused = validate(config.values)
    if faults := missing + refused:
        more = f"; {len(faults) - 1} other values are missing or wrong, too" if len(faults) > 1 else ""
        raise UserError(f"{_as_text(faults[0], {}, {}, {})}{more}; restore the run's config.yaml")
    parsed, problems = parse(overrides)
    assignments = [override for override in parsed if not is_choice(override, config.choices)]
    for line, group in [(o.input_line, o.key_or_group) for o in parsed if is_choice(o, config.choices)]:
        fixed = f"`{group}` is fixed for this run ({to_text(config.choices[group])})"
        problems.append(f"{line}: {fixed}; start a new run instead")
    # A `${` is escaped: the value was resolved when it was stored, and means itself.
    escaped = lambda value: re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value  # noqa: E731
    base = Base(map_values(escaped, values), config.choices, {}, ())
    return Config(_settle(base, assignments, problems), config.choices, config.overrides + tuple(overrides))


class OwnFolders(SearchPathPlugin):
    """Lets Hydra find the user's options, behind the shipped ones, which they do not replace."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if any(element.path == str(conf_dir()) for element in search_path.get_path()):
            for folder in own_dirs():
                search_path.append("own", f"file://{folder}")


@contextmanager
def config_loader() -> Iterator[ConfigLoader]:
    """Hydra's loader for conf/ and the user's folders."""
    Plugins.instance().register(OwnFolders)
    outer = GlobalHydra.instance().hydra  # that of a surrounding job, which is restored afterwards
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), job_name="rlmem", version_base="1.3"), warnings.catch_warnings():
            warnings.filterwarnings("error", message="provider=hydra.searchpath")
            yield GlobalHydra.instance().config_loader()
    finally:
        GlobalHydra.instance().hydra = outer


def compose_base(overrides: Sequence[str]) -> tuple[Base, list[Override], list[str]]:
    """Compose the group choices alone; also the overrides of single values, and the problems so far."""
    with config_loader() as loader:
        parsed, problems = parse(overrides, loader)
        hydra = [str(override.input_line) for override in parsed if override.is_hydra_override()]
        options, lines, assignments = option_names(hydra), [*hydra], list[Override]()
        chooses_memory = any(override.key_or_group == "memory" for override in parsed)
        classes: list[tuple[str, str, str]] = []  # line, group, class
        for override in parsed:
            line, key, value = str(override.input_line), override.key_or_group, override.value()
            if override.is_hydra_override():
                continue
            if key.partition(".")[0] == "launcher":
                example = f"rlmem train -m seed=0,1 {shell(line)}"
                problems.append(sentence(line, "a launcher is for several jobs, with -m", example=example))
            elif not is_choice(override, options):
                assignments.append(override)
                # Other groups always keep their keys: environments share most of them.
                if key == "memory._target_" and is_class("memory", value) and not chooses_memory:
                    lines.append(f"memory={value}")
                    classes.append((line, "memory", str(value)))
            elif problem := choice_problem(override, options):
                problems.append(problem)
            else:
                lines.append(line)
                if is_class(key, value) and value not in options[key]:
                    classes.append((line, key, str(value)))
        try:
            nodes = tuple(_offer(*which) for which in classes)
            return _compose(tuple(lines), (nodes, _files(hydra))), assignments, problems
        except UserError as error:
            raise UserError(*problems, *error.problems) from error
        except FAILURES as error:
            raise UserError(*problems, root_cause(error)) from error


def _offer(line: str, group: str, name: str) -> str:
    """Make a class an option of its group, with the arguments that have defaults; returns the option as text."""
    try:
        node = signature_node(name, NODES[group].supplied)
    except UserError as error:
        raise UserError(f"{line}: {error}") from error
    ConfigStore.instance().store(name, node, group)
    return json.dumps(node)


def _files(lines: Sequence[str]) -> Hashable:
    """A key of the cache, which changes with every YAML file."""
    files = [file for folder in (conf_dir(), *own_dirs(lines)) for file in folder.rglob("*.yaml") if file.is_file()]
    return tuple((str(file), known.st_mtime_ns, known.st_size) for file in files for known in [file.stat()])


@lru_cache(maxsize=500)
def _compose(lines: tuple[str, ...], key: Hashable) -> Base:
    """The composition of choices; Hydra takes an eighth of a second. `key` changes with all that it reads."""
    composed = compose("config", overrides=list(lines), return_hydra_config=True)
    typed = {override.key_or_group: override.value() for override in parse(lines)[0]}
    hydra = [line for line in lines if line.startswith("hydra")]
    choices, files = merged(composed.hydra.runtime.choices, typed, hydra)
    with open_dict(composed):
        del composed["hydra"]
    tree: Any = OmegaConf.to_container(composed)
    tree |= {group: {} for group in choices if group not in tree}
    return Base(tree, choices, option_names(hydra), tuple(files))


def _settle(base: Base, assignments: Sequence[Override], problems: list[str]) -> dict[str, Any]:
    """Set the single values, resolve interpolations and validate."""
    tree = OmegaConf.create(base.tree)
    # What a class on the command line accepts is known once the class is.
    free = {o.key_or_group.removesuffix("._target_") for o in assignments if o.key_or_group.endswith("._target_")}
    free |= base.classes()
    assigned: Origins = {}
    try:
        for override in assignments:
            key, known = override.key_or_group, override.key_or_group.rpartition(".")[0] in free
            problem = form_problem(override, base.tree)
            if problem := problem or (None if known else key_problem(override, base.tree, base.options)):
                problems.append(problem)
            else:
                OmegaConf.update(tree, key, override.value(), merge=True, force_add=True)
                assigned |= dict.fromkeys(_given([override]), COMMAND_LINE)
        values: Any = OmegaConf.to_container(tree, resolve=True)
    except FAILURES as error:
        raise UserError(*problems, root_cause(error)) from error
    for path in (path for path, value in leaf_paths(values) if value == MISSING):
        group = path.partition(".")[0]
        required = f"required by {group}={to_text(base.choices.get(group))}"
        problems.append(sentence(path, required, example=hint(path, base.files)))
    touched = dict.fromkeys(
        path.partition(".")[0] for path in assigned
    )  # after a wrong name, only these: it stays fast
    checked, refusals = validate(values, only=touched if problems else None)
    origins = base.origins() if refusals else {}
    problems += [_as_text(fault, assigned, base.tree, origins) for fault in refusals]
    if problems:
        raise UserError(*dict.fromkeys(problems))
    if not checked.get(WRAPPER, True):  # runs without any are stored, and known, as those of before there were some
        del checked[WRAPPER]
    return checked


def _as_text(refusal: Refusal, assigned: Origins, before: Mapping[str, Any], origins: Origins) -> str:
    """The sentence for a refused value: where it was set, and the shipped value as the example."""
    if refusal.value == MISSING:
        return f"{refusal.path}: {refusal.what}"
    source = lookup(refusal.path, assigned)
    default = dict(leaf_paths(before)).get(refusal.path, MISSING)
    if refusal.path == "memory._target_":  # it may have taken the place of the default memory
        default = option("memory", str(default_choices()["memory"]))["_target_"]
    example = f"{refusal.path}={to_text(default)}" if source and default != MISSING else None
    source = source or lookup(refusal.path, origins) or "the stored run"
    where, group = f"{refusal.path}={to_text(refusal.value)} ({source})", refusal.path.removesuffix("._target_")
    if source == refusal.value and group in default_choices():  # a class that was typed as GROUP=CLASS
        where, example = f"{group}={source} ({COMMAND_LINE})", f"{group}={to_text(default_choices()[group])}"
    return sentence(where, refusal.what, near=refusal.near, accepted=refusal.accepted, example=example)


def root_cause(error: BaseException) -> str:
    """Hydra's or OmegaConf's error as one line: its own first line, and that of the error that started it."""
    root = error
    while root.__cause__:
        root = root.__cause__
    if isinstance(root, yaml.YAMLError):
        return yaml_problem(root)
    if isinstance(root, AttributeError) and (match := re.search(r"full_key: (\S+)", str(error))):
        return f"{match[1]}: takes no such value"
    said = f"{key}: {first_line(root)}" if (key := getattr(root, "full_key", None)) else first_line(root)
    return " ".join(dict.fromkeys([first_line(error), said] if str(error).strip() else [said]))
