"""The config groups as Hydra finds them: the options of each, the default of each, and what a run chose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Groups:
    """Options by group (files that start with `_` are private), and the default choices."""

    options: dict[str, list[str]]
    defaults: dict[str, Any]

    @classmethod
    def read(cls, loader: ConfigLoader, hydra_lines: Sequence[str]) -> Groups:
        """The groups in Hydra's search path, which `hydra.searchpath=[...]` may extend."""
        # `loader.get_group_options` makes a repository for every group, which takes half the time of a composition.
        _, repository = cast(ConfigLoaderImpl, loader)._parse_overrides_and_create_caching_repo(
            "config", list(hydra_lines)
        )
        options = {}
        for group in loader.list_groups(""):
            if group.startswith("_"):
                continue
            names = repository.get_group_options(group, ObjectType.CONFIG)
            options[group] = sorted(name for name in names if not name.startswith("_"))
        for name in ("hydra", "launcher"):  # neither is part of a run
            options.pop(name, None)
        return cls(options, default_choices())

    def is_choice(self, override: Override) -> bool:
        """Whether an override chooses an option, rather than setting a value."""
        return override.key_or_group in self.options and not isinstance(override.value(), dict)

    def problem(self, override: Override) -> str | None:
        """Why a choice is refused; None if it is not."""
        group, choice, line = override.key_or_group, override.value(), override.input_line or ""
        options, default = self.options[group], self.defaults.get(group, self.options[group][0])
        if problem := form_problem(override, {group: default}):
            return problem
        example = f"rlmem train {shell(f'{group}={to_text(default)}')}"
        if isinstance(choice, list) and not isinstance(default, list):
            return sentence(line, f"`{group}` takes one option", accepted=options, example=example)
        for name in choice if isinstance(choice, list) else [choice]:
            if name not in options:
                what = f"`{group}` has no option {to_text(name) or 'without a name'}"
                if group == "env" and (near := _by_id(str(name))):
                    return sentence(line, what, near=[near], accepted=options, example=f"rlmem train {near}")
                return sentence(line, what, near=nearest(name, options), accepted=options, example=example)
        return None

    def chosen(self, defaults: Iterable[ResultDefault]) -> dict[str, Choice]:
        """The option of every group in a resolved defaults list; a list where the default is one."""
        found: dict[str, list[str]] = {group: [] for group in self.options}
        for entry in defaults:
            group, _, name = (entry.config_path or "").partition("/")
            if entry.parent == "config" and group in found:
                found[group].append(name)
        several = {group for group, choice in self.defaults.items() if isinstance(choice, list)}
        return {
            group: names if group in several else names[0]
            for group, names in found.items()
            if names or group in several
        }


def _by_id(name: str) -> str | None:
    """How the environment of a Gymnasium id, such as CartPole-v1 or ALE/Pong-v5, is chosen; None for any other name."""
    found = re.fullmatch(r"([\w.-]+:)?(?:([\w.-]+)/)?([\w.-]+)-v\d+", name)
    if found is None:
        return None
    return f"env=atari env.game={found[3]}" if found[2] == "ALE" else f"env=gym env.id={name}"
