"""What a configuration of another user may hold: rlmem's own classes, and values without effects outside the run.

A configuration names classes to import and call, Gymnasium ids that may name a module, folders to write to and servers
to connect to. In a run directory of another user all of that is refused, before anything is imported.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlmem.config.messages import sentence
from rlmem.errors import UserError

PACKAGES = {
    "memory": ("rlmem.memory",),
    "algo": ("rlmem.algos", "rlmem.supervised"),
    "batching": ("rlmem.batching",),
    "encoder": ("rlmem.nets",),
    "env": ("rlmem_envs",),
    "logger": ("rlmem.record.loggers",),
}
"""The packages of each group's classes. A foreign configuration may import nothing else, even of rlmem."""

EVERY_PACKAGE = tuple(package for packages in PACKAGES.values() for package in packages)
"""The packages for a section that is not a group, such as a misspelt one; nothing is built from it."""

REACHING = ("algo.replay_dir", "algo.ray_address")
"""Keys that name a folder to write to, or a server whose answers are unpickled."""

LAUNCHING = re.compile(r"[-+~]*(hydra|launcher)\b")
"""The beginning of overrides that choose where jobs run or where options are found."""


def foreign_problems(values: Mapping[str, Any]) -> dict[str, str]:
    """{dotted key: why it is refused} of a configuration that another user wrote."""
    found = {}
    for path, value in _walk(values):
        group, key = path.split(".")[0], path.rpartition(".")[2]
        if value is None:
            continue
        if key == "_target_":
            packages = PACKAGES.get(group, EVERY_PACKAGE)
            if not any(str(value).startswith(f"{package}.") for package in packages):
                found[path] = f"`{value}` is code outside rlmem"
        elif path in REACHING:
            found[path] = f"`{value}` is a place outside the run"
        elif group == "env" and isinstance(value, str) and ":" in value:
            found[path] = f"`{value}` may name a module to import"
    return found


def foreign_lines(lines: Iterable[str]) -> dict[str, str]:
    """{override: why it is refused} of overrides that another user wrote, such as those of a sweep's jobs."""
    found = {}
    for line in lines:
        key, _, value = line.lstrip("+~").partition("=")
        if "_target_" in line:
            found[line] = "it may name code outside rlmem"
        elif "${" in line:
            found[line] = "it may name what lies outside the sweep"
        elif LAUNCHING.match(line) or any(name.partition(".")[2] in line for name in REACHING):
            found[line] = "it may name a place outside the sweep"
        elif key.startswith("env") and ":" in value:
            found[line] = "it may name a module to import"
    return found


def refuse(problems: Mapping[str, str], where: Path) -> None:
    """Raise a UserError of one line if there are problems, {place: what is wrong}, in another user's directory."""
    if problems:
        path, what = next(iter(problems.items()))
        more = f" ({len(problems) - 1} more such values)" if len(problems) > 1 else ""
        reason = f"{what}, and this user did not write it, or it was edited since{more}"
        example = "--trust if you know that code; machines that share a user but no home directory set RLMEM_KEY"
        raise UserError(sentence(f"{where}: {path}", reason, example=example))


def _walk(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every value, also of those in lists."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _walk(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _walk(value, f"{path}.{index}")
    else:
        yield path, node
