"""What a configuration of another user may not name: foreign code, folders and servers. Refused before any import."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlmem.config.messages import mistake
from rlmem.config.overrides import leaf_paths
from rlmem.config.schema import GROUPS, NODES
from rlmem.core.moved import current

REACHING = ("algo.replay_dir", "algo.ray_address")
"""Keys that name a folder to write to, or a server whose answers are unpickled."""

ELSEWHERE = re.compile(r"[/\\~]|\.\.?([/\\]|$)|.*[/\\]\.\.")
"""The form of a path that leads out of the folders in which an environment looks for its own files."""

NAMES_FILE = re.compile(r"(.*_)?(file|path|dir|folder)$")
"""Keys whose values are paths."""

LAUNCHING = re.compile(r"[-+~]*(hydra|launcher)\b")
"""The beginning of overrides that choose where jobs run or where options are found."""


def foreign_problems(values: Mapping[str, Any]) -> dict[str, str]:
    """{dotted key: why it is refused} of a configuration that another user wrote."""
    problems = {}
    every = sum((nodes.packages for nodes in NODES.values()), ())  # for a misspelt group, of which nothing is built
    for path, value in leaf_paths(values, lists=True):
        group, key = path.split(".")[0], path.rpartition(".")[2]
        if value in (None, {}, []):
            continue
        if key == "_target_":
            packages = NODES[group].packages if group in NODES else every
            if not any(current(str(value)).startswith(f"{package}.") for package in packages):
                problems[path] = f"`{value}` is code outside rlmem"
        elif path in REACHING:
            problems[path] = f"`{value}` is a place outside the run"
        elif group in ("env", "wrapper") and isinstance(value, str) and ":" in value:
            problems[path] = f"`{value}` may name a module to import"
        elif _may_be_file(path, value):
            problems[path] = f"`{value}` may be a file outside the run"
    return problems


def _may_be_file(path: str, text: object) -> bool:
    """True for a data set, and for a text of an environment or a wrapper that leads elsewhere or names a file here."""
    group, key = path.partition(".")[0], path.rpartition(".")[2]
    if key == "dataset":
        return True
    if group not in ("env", "wrapper") or not isinstance(text, str):
        return False
    may = re.search(r"[/\\.]", text) or NAMES_FILE.match(key)
    return ELSEWHERE.match(text) is not None or (may is not None and os.path.lexists(text))


def foreign_lines(lines: Iterable[str]) -> dict[str, str]:
    """{override: why it is refused} of overrides that another user wrote, such as those of a sweep's jobs."""
    problems = {}
    for line in lines:
        key, _, value = line.lstrip("+~").partition("=")
        if "_target_" in line or (key.strip() in GROUPS and "." in value):  # no shipped option has a dot in its name
            problems[line] = "it may name code outside rlmem"
        elif "${" in line:
            problems[line] = "it may name what lies outside the sweep"
        elif LAUNCHING.match(line) or key == "init_from" or any(name.partition(".")[2] in line for name in REACHING):
            problems[line] = "it may name a place outside the sweep"
        elif any(_may_be_file(key, word) for word in re.split(r"""[\s,{}[\]"':=]+""", value)):
            problems[line] = "it may name a file outside the sweep"
        elif key.startswith(("env", "wrapper")) and ":" in value:
            problems[line] = "it may name a module to import"
    return problems


def refuse(problems: Mapping[str, str], where: Path) -> None:
    """Raise a UserError of one line if there are problems, {place: what is wrong}, in another user's directory."""
    if problems:
        path, problem = next(iter(problems.items()))
        more = f" ({len(problems) - 1} more such values)" if len(problems) > 1 else ""
        reason = f"{problem}, and this user did not write it, or it was edited since{more}"
        trust = "--trust (trust=True in Python) if you know that code"
        example = f"{trust}; machines that share a user but no home directory set RLMEM_KEY"
        raise mistake(f"{where}: {path}", reason, example=example)
