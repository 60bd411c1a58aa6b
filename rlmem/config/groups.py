"""The config groups as Hydra finds them: the options of each, and what a run chose."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override

from rlmem.config.catalog import default_choices
from rlmem.config.messages import nearest, sentence, shell, to_text
from rlmem.config.overrides import form_problem

Choice = str | list[str]
Options = Mapping[str, list[str]]
"""Group -> its options: files of the group's folders, but those that start with `_`."""

GYMNASIUM_ID = r"([\w.-]+:)?(?:([\w.-]+)/)?([\w.-]+)-v\d+"
"""Such as CartPole-v1 or ALE/Pong-v5; groups 2 and 3 are the namespace and the name."""


def read_options(loader: ConfigLoader, hydra_lines: Iterable[str]) -> Options:
    """The groups in Hydra's search path, which `hydra.searchpath=[...]` may extend."""
    # `loader.get_group_options` makes a repository for every group, which takes half the time of a composition.
    _, repository = cast(ConfigLoaderImpl, loader)._parse_overrides_and_create_caching_repo("config", [*hydra_lines])
    groups = [g for g in loader.list_groups("") if g[0] != "_" and g not in ("hydra", "launcher")]  # not part of a run
    found = {group: repository.get_group_options(group, ObjectType.CONFIG) for group in groups}
    return {group: sorted(name for name in names if not name.startswith("_")) for group, names in found.items()}


def is_choice(override: Override, groups: Mapping[str, Any]) -> bool:
    """Whether an override chooses an option, rather than setting a value."""
    return override.key_or_group in groups and not isinstance(override.value(), dict)


def choice_problem(override: Override, options: Options) -> str | None:
    """Why a choice is refused; None if it is not."""
    group, choice, line = override.key_or_group, override.value(), override.input_line or ""
    names, default = options[group], default_choices().get(group, options[group][0])
    if problem := form_problem(override, {group: default}):
        return problem
    example = f"rlmem train {shell(f'{group}={to_text(default)}')}"
    if isinstance(choice, list) and not isinstance(default, list):
        return sentence(line, f"`{group}` takes one option", accepted=names, example=example)
    wrong = [name for name in (choice if isinstance(choice, list) else [choice]) if name not in names]
    if not wrong:
        return None
    what = f"`{group}` has no option {to_text(wrong[0]) or 'without a name'}"
    if group == "env" and (found := re.fullmatch(GYMNASIUM_ID, str(wrong[0]))):
        near = f"env=atari env.game={found[3]}" if found[2] == "ALE" else f"env=gym env.id={wrong[0]}"
        return sentence(line, what, near=[near], accepted=names, example=f"rlmem train {near}")
    return sentence(line, what, near=nearest(wrong[0], names), accepted=names, example=example)


def chosen_options(defaults: Sequence[ResultDefault], options: Options) -> dict[str, Choice]:
    """The option of every group in a resolved defaults list; a list where the default is one."""
    paths = [(entry.config_path or "").partition("/") for entry in defaults if entry.parent == "config"]
    found: dict[str, Choice] = {}
    for group in options:
        names = [name for own, _, name in paths if own == group]
        if isinstance(default_choices().get(group), list):
            found[group] = names
        elif names:
            found[group] = names[0]
    return found
