"""A command line or a stored run plus overrides -> one checked Config, or all its problems at once."""

import re
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from rlmem.config import rules
from rlmem.config.catalog import COMMAND_LINE, Origins, default_choices, hint, lookup, sources, yaml_problem
from rlmem.config.messages import sentence, shell, to_text
from rlmem.config.overrides import Options, assign, choice_problem, is_choice, leaf_paths, parse, read_options
from rlmem.config.paths import conf_dir, own_dirs
from rlmem.config.schema import SECTIONS, SUPPLIED, WRAPPER, Settings, TopLevel
from rlmem.config.validate import MISSING, Refusal, validate
from rlmem.errors import UserError, first_line
from rlmem.system.strictjson import map_values

Choice = str | list[str]

TASKS = "_tasks"
"""The folder of conf with the defaults that follow from the algorithm, the task and the budget."""

FAILURES = (HydraException, OmegaConfBaseException, yaml.YAMLError, UserWarning, AttributeError)
"""What composing raises beside UserError: AttributeError if a mapping would replace a null of Hydra's, and others."""


@dataclass(frozen=True)
class Config:
    """One run.

    values: plain and nested
    choices: the option of each group
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
    """The composition before single values are set; files are the (package, file) pairs merged, in order."""

    tree: DictConfig
    choices: dict[str, Choice]
    options: Options
    files: tuple[tuple[str, Path], ...]


def load(overrides: Sequence[str]) -> Config:
    """Compose conf/ with overrides and check the result. Raises UserError with every problem."""
    base, assignments, problems = compose_base(overrides)
    # `memory._target_=module.Class` alone replaces the default memory with its keys; beside `memory=OPTION` only the
    # class of that. Other groups always keep their keys: environments share most of them.
    alone = not any(line.startswith("memory=") for line in overrides)
    classes = [str(o.value()) for o in assignments if o.key_or_group == "memory._target_" and alone]
    own: dict[str, Choice] = {"memory": classes[0]} if classes else {}
    values = _settle(base, assignments, problems, emptied=own)
    choices, given = base.choices | own, _given(assignments)
    ruled = sources((package, file) for package, file in base.files if TASKS in file.parts)
    for path, value, why in rules.defaults(values, choices):
        *sections, key = path.split(".")
        node = reduce(getitem, sections, values)
        if path not in given and node[key] != value:
            node[key], ruled[path] = value, why
    return Config(values, choices, tuple(overrides), {path: why for path, why in ruled.items() if path not in given})


def explain(overrides: Sequence[str]) -> tuple[Config, Origins]:
    """The checked configuration of a command line, and the origins of its values."""
    config = load(overrides)
    base, assignments, _ = compose_base(overrides)
    found = sources(base.files) | config.ruled | dict.fromkeys(_given(assignments), COMMAND_LINE)
    return config, {path: lookup(path, found) or "config.yaml" for path, _ in leaf_paths(config.values)}


def _given(assignments: Iterable[Override]) -> dict[str, Any]:
    """The values that overrides set, by their dotted paths."""
    return dict(leaf for o in assignments for leaf in leaf_paths({o.key_or_group: o.value()}))


def apply(config: Config, overrides: Sequence[str]) -> Config:
    """A stored run's configuration with some values replaced, checked as in `load`; its groups are fixed.

    Raises one UserError, however much of the stored configuration is missing or wrong.
    """
    missing = [Refusal(group, "is missing", MISSING) for group in (*SUPPLIED, *SECTIONS) if group not in config.values]
    if faults := missing + validate(config.values)[1]:
        more = f"; {len(faults) - 1} other values are missing or wrong, too" if len(faults) > 1 else ""
        raise UserError(f"{_as_text(faults[0], {}, {}, ())}{more}; restore the run's config.yaml")
    parsed, problems = parse(overrides)
    assignments = [override for override in parsed if not is_choice(override, config.choices)]
    for line, group in [(o.input_line, o.key_or_group) for o in parsed if is_choice(o, config.choices)]:
        fixed = f"`{group}` is fixed for this run ({to_text(config.choices[group])})"
        problems.append(f"{line}: {fixed}; start a new run instead")
    # A `${` is escaped: the value was resolved when it was stored, and means itself.
    escaped = lambda value: re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value  # noqa: E731
    base = Base(OmegaConf.create(map_values(escaped, config.values)), config.choices, {}, ())
    values = _settle(base, assignments, problems, emptied=())
    return Config(values, config.choices, config.overrides + tuple(overrides))


@contextmanager
def config_loader() -> Iterator[ConfigLoader]:
    """Hydra's loader for conf/ and the user's folders."""
    outer = GlobalHydra.instance().hydra  # that of a surrounding job, which is restored afterwards
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), job_name="rlmem", version_base="1.3"), warnings.catch_warnings():
            warnings.filterwarnings("error", message="provider=hydra.searchpath")
            loader = GlobalHydra.instance().config_loader()
            for folder in reversed(own_dirs()):  # behind the shipped ones, which they do not replace
                loader.get_search_path().append("own", f"file://{folder}", SearchPathQuery(provider="main"))
            # The loader built its repository from the old search path, and does not rebuild it.
            cast(ConfigLoaderImpl, loader).repository = ConfigRepository(loader.get_search_path())
            yield loader
    finally:
        GlobalHydra.instance().hydra = outer


def compose_base(overrides: Sequence[str]) -> tuple[Base, list[Override], list[str]]:
    """Compose the group choices alone; also the overrides of single values, and the problems so far."""
    with config_loader() as loader:
        parsed, problems = parse(overrides, loader)
        hydra = tuple(str(override.input_line) for override in parsed if override.is_hydra_override())
        lines, files, assignments = [*hydra], _files(hydra), []
        try:
            options = _options(hydra, files)
            for override in parsed:
                line = str(override.input_line)
                if override.is_hydra_override():
                    continue
                if override.key_or_group.partition(".")[0] == "launcher":
                    example = f"rlmem train -m seed=0,1 {shell(line)}"
                    problems.append(sentence(line, "a launcher is for several jobs, with -m", example=example))
                elif not is_choice(override, options):
                    assignments.append(override)
                elif problem := choice_problem(override, options):
                    problems.append(problem)
                else:
                    lines.append(line)
            base = _compose(tuple(lines), hydra, files)
            return replace(base, tree=deepcopy(base.tree), choices=deepcopy(base.choices)), assignments, problems
        except FAILURES as error:
            raise UserError(*problems, root_cause(error)) from error


def _files(hydra: Sequence[str]) -> Hashable:
    """A key of the caches, which changes with every YAML file; it is always new where `hydra` may name other files."""
    if hydra:
        return object()
    files = [file for folder in (conf_dir(), *own_dirs()) for file in folder.rglob("*.yaml") if file.is_file()]
    return tuple((str(file), known.st_mtime_ns, known.st_size) for file in files for known in [file.stat()])


# Hydra takes a quarter of a second for these two.
@lru_cache(maxsize=500)
def _options(hydra: tuple[str, ...], files: Hashable) -> Options:
    return read_options(GlobalHydra.instance().config_loader(), hydra)


@lru_cache(maxsize=500)
def _compose(chosen: tuple[str, ...], hydra: tuple[str, ...], files: Hashable) -> Base:
    lines, options = list(chosen), _options(hydra, files)
    tree = compose("config", overrides=lines, return_hydra_config=True)
    folders = [Path(source.path) for source in tree.hydra.runtime.config_sources if source.schema == "file"]
    defaults = GlobalHydra.instance().config_loader().compute_defaults_list("config", lines, RunMode.RUN).defaults
    paths = [(entry.config_path or "").partition("/") for entry in defaults if entry.parent == "config"]
    choices: dict[str, Choice] = {}
    for group in options:
        names, several = [n for own, _, n in paths if own == group], isinstance(default_choices().get(group), list)
        if names or several:
            choices[group] = names if several else names[0]
    with open_dict(tree):
        del tree["hydra"]
        for group in choices:
            tree.setdefault(group, {})
    merged: list[tuple[str, Path]] = []
    for entry in defaults:
        places = [folder / f"{entry.config_path}.yaml" for folder in folders]
        merged += [(entry.package or "", file) for file in places if file.is_file()][:1]
    return Base(tree, choices, options, tuple(merged))


def _settle(base: Base, assignments: Sequence[Override], problems: list[str], emptied: Iterable[str]) -> dict[str, Any]:
    """Set the single values, resolve interpolations and validate; the groups `emptied` begin without keys."""
    before: Any = OmegaConf.to_container(base.tree)
    try:
        with open_dict(base.tree):
            base.tree.update({group: {} for group in emptied})
        given = assign(base.tree, before, assignments, base.options, problems)
        values: Any = OmegaConf.to_container(base.tree, resolve=True)
    except FAILURES as error:
        raise UserError(*problems, root_cause(error)) from error
    for path in (path for path, value in leaf_paths(values) if value == MISSING):
        group = path.partition(".")[0]
        required = f"required by {group}={to_text(base.choices.get(group))}"
        problems.append(sentence(path, required, example=hint(path, base.files)))
    touched = dict.fromkeys(path.partition(".")[0] for path in given)  # after a wrong name, only these: it stays fast
    checked, faults = validate(values, only=touched if problems else None)
    problems += [_as_text(fault, given, before, base.files) for fault in faults]
    if problems:
        raise UserError(*dict.fromkeys(problems))
    if not checked.get(WRAPPER, True):  # runs without any are stored, and known, as those of before there were some
        del checked[WRAPPER]
    return checked


def _as_text(fault: Refusal, given: Origins, before: Mapping[str, Any], files: Iterable[tuple[str, Path]]) -> str:
    """The sentence for a refused value: where it was set, and the shipped value as the example."""
    if fault.value == MISSING:
        return f"{fault.path}: {fault.what}"
    source = lookup(fault.path, given)
    default = dict(leaf_paths(before)).get(fault.path, MISSING)
    example = f"{fault.path}={to_text(default)}" if source and default != MISSING else None
    source = source or lookup(fault.path, sources(files)) or "the stored run"
    where = f"{fault.path}={to_text(fault.value)} ({source})"
    return sentence(where, fault.what, near=fault.near, accepted=fault.accepted, example=example)


def root_cause(error: BaseException) -> str:
    """Hydra's or OmegaConf's error as one line: its own first line, and that of the error that started it."""
    root = error
    while root.__cause__:
        root = root.__cause__
    if isinstance(root, yaml.YAMLError):
        return yaml_problem(root)
    if isinstance(root, AttributeError) and (found := re.search(r"full_key: (\S+)", str(error))):
        return f"{found[1]}: takes no such value"
    said = f"{key}: {first_line(root)}" if (key := getattr(root, "full_key", None)) else first_line(root)
    return " ".join(dict.fromkeys([first_line(error), said] if str(error).strip() else [said]))
