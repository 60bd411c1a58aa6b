"""The keys of an option: default, accepted values and meaning, from its yaml and from the class that it names."""

import re
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_origin

import yaml
from rlmem_envs.core.batched import BatchedEnv

from reference.docstrings import meanings
from reference.markdown import code, prose, table
from rlmem.config.catalog import leaves, option_keys, with_parents
from rlmem.config.messages import describe, to_text
from rlmem.config.paths import conf_dir
from rlmem.config.targets import annotation, locate, parameters

HEADER = ("key", "default", "accepts", "meaning")
NAMED = ("logger", "wrapper")
"""The groups whose options are nodes under their own names."""


def file_of_option(group: str, name: str) -> Path:
    return conf_dir() / group / f"{name}.yaml"


def node(group: str, name: str) -> dict[str, Any]:
    """The node of an option: its `_target_` and keys, with those of the files that it builds on."""
    merged: dict[str, Any] = {}
    for part in with_parents(file_of_option(group, name)):
        content: dict[str, Any] = yaml.safe_load(part.read_text(encoding="utf-8")) or {}
        content = content.get(group, content) if group == "algo" else content
        merged |= content.get(part.stem, content) if group in NAMED else content
    return {key: value for key, value in merged.items() if key != "defaults"}


def target_of(group: str, name: str) -> Callable[..., Any] | None:
    """The class or function that an option names, if it names one."""
    named = node(group, name).get("_target_")
    return locate(named) if named else None


def rows(group: str, name: str, up: str) -> list[tuple[str, str, str, str]]:
    """The rows of a table with HEADER; `up` leads from the page to the site's top."""
    target = target_of(group, name)
    known = (meanings(BatchedEnv) if group == "env" else {}) | (meanings(target) if target else {})
    accepted = parameters(target) if target else {}
    prefix = f"{group}.{name}." if group in NAMED else f"{group}."
    said = {leaf.path: leaf.comment for leaf in leaves(conf_dir() / "config.yaml")}
    said["env.num_envs"] = meanings(BatchedEnv)["num_envs"]
    found = []
    for setting, comment in option_keys(group, file_of_option(group, name)).items():
        path, _, default = setting.partition("=")
        key = path.removeprefix(prefix) if path.startswith(prefix) else ""
        kind = accepts(annotation(accepted[key], target)) if target and key in accepted else ""
        text = known.get(key, "") or comment or said.get(path, "")
        text = comment if comment and text.startswith("see ") else text
        listed = f"one of {text.replace(' | ', ', ')}" == kind  # which the column before says
        found.append((code(path), code(default), kind, "" if listed else prose(as_typed(text), up)))
    return found


def as_typed(text: str) -> str:
    """What the code calls None, True and False, as it is typed in a configuration."""
    return re.sub(r"\b(?:None|True|False)\b", lambda found: to_text(literal_eval(found[0])), text)


def accepts(kind: Any) -> str:
    """The values of a type in words; "" for a class with its own keys."""
    return "" if get_origin(kind) is Callable else describe(kind)


def key_table(group: str, name: str, up: str) -> str:
    return table(HEADER, rows(group, name, up))
