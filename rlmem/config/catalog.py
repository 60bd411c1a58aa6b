"""`rlmem list`: every group and option with one line each, read from the YAML alone (no Hydra, no torch)."""

import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from rlmem.config.messages import mistake, nearest
from rlmem.config.paths import conf_dir, experiments_dir, option_dirs
from rlmem.config.yamlfile import description, leaves
from rlmem.system.strictjson import dumps

Catalog = dict[str, dict[str, str]]
"""Group -> option -> its description."""


def catalog(lines: Sequence[str] = ()) -> Catalog:
    """Every group, in the order of config.yaml's defaults; experiments last. `lines` are as for `own_dirs`."""
    names = sorted(folder.name for folder in conf_dir().iterdir() if folder.is_dir() and folder.name[0] != "_")
    groups: Catalog = {name: {} for name in (*default_choices(), *names) if name in names}
    for name, found in groups.items():
        for folder in option_dirs(name, lines):  # the shipped ones come first, and are not replaced
            found |= _options(folder) | found
    experiments = experiments_dir()
    return groups | ({"experiment": _options(experiments)} if experiments else {})


def select(group: str | None, lines: Sequence[str] = ()) -> Catalog:
    """The whole catalogue, or one group of it; `lines` as for `catalog`."""
    groups = catalog(lines)
    if group is None:
        return groups
    if group not in groups:
        near = nearest(group, groups)
        raise mistake(group, "no such group", near=near, accepted=groups, example="rlmem list memory")
    return {group: groups[group]}


def as_json(groups: Catalog) -> str:
    """{"memory": [{"name": "ffm", "description": "..."}, ...]}"""
    rows = {g: [{"name": name, "description": text} for name, text in options.items()] for g, options in groups.items()}
    return dumps(rows, indent=2)


def as_text(groups: Catalog) -> str:
    """The options in aligned columns; `*` marks the default."""
    blocks = []
    for group, options in groups.items():
        default = default_choices().get(group)
        chosen = default if isinstance(default, list) else [default]
        marked = {f"{name} *" if name in chosen else name: text for name, text in options.items()}
        blocks.append(f"{group}\n{columns(marked)}")
    return "\n\n".join(blocks)


def columns(rows: dict[str, str]) -> str:
    """Names and texts side by side in at most 100 columns, the texts wrapped."""
    left = max(map(len, rows), default=0) + 4
    lines = []
    for name, text in rows.items():
        wrapped = textwrap.wrap(text, max(20, 100 - left)) or [""]
        lines.append(f"  {name:<{left - 2}}{wrapped[0]}".rstrip())
        lines += [" " * left + line for line in wrapped[1:]]
    return "\n".join(lines)


def train_help(overrides: list[str]) -> str:
    """What `rlmem train --help` adds: the groups, the top-level keys, the keys of the options named."""
    found = catalog(overrides)
    groups = {group: ", ".join(options) for group, options in found.items() if group != "experiment"}
    top = [leaf for leaf in leaves(conf_dir() / "config.yaml") if not leaf.path.startswith(("defaults", "hydra"))]
    keys = {f"{leaf.path}={leaf.text}": leaf.comment for leaf in top}
    parts = [f"groups (rlmem list says what each option is):\n{columns(groups)}", f"keys:\n{columns(keys)}"]
    for override in overrides:
        group, _, name = override.partition("=")
        files = [folder / f"{name}.yaml" for folder in option_dirs(group, overrides)] if group in groups else []
        if file := next((file for file in files if file.is_file()), None):
            parts.append(f"{override}: {description(file)}\n{columns(_keys(group, file))}")
    return "\n\n".join(parts)


@cache
def default_choices() -> dict[str, str | list[str]]:
    """The defaults list of config.yaml: group -> option, or a list of options."""
    entries = yaml.safe_load((conf_dir() / "config.yaml").read_text(encoding="utf-8"))["defaults"]
    pairs = [next(iter(entry.items())) for entry in entries if isinstance(entry, dict)]
    return {group: choice for group, choice in pairs if not group.startswith(("override ", "optional "))}


def _options(folder: Path) -> dict[str, str]:
    files = {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.yaml"))}
    return {name: description(file) for name, file in files.items() if not file.name.startswith("_")}


def _keys(group: str, file: Path) -> dict[str, str]:
    """`memory.hidden_size=256` -> its comment, with the private files that an option builds on."""
    package = "" if file.read_text(encoding="utf-8").startswith("# @package _global_") else group
    full = {leaf.path: leaf for part in with_parents(file) for leaf in leaves(part, package)}
    if group == "launcher":  # whose keys lie in Hydra's own
        full = {p.removeprefix("hydra."): leaf for p, leaf in full.items() if p.startswith("hydra.launcher.")}
    # The class of the option itself is fixed; that of an argument is a key.
    fixed = {f"{group}._target_", f"{group}.{file.stem}._target_", "defaults", f"{group}.defaults"}
    return {f"{path}={leaf.text}": leaf.comment for path, leaf in full.items() if path not in fixed}


def with_parents(file: Path) -> list[Path]:
    """A file and the files that its `defaults` name, in its folder or the shipped one; later ones win."""
    parents = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("defaults", [])
    folders = (conf_dir() / file.parent.name, file.parent)
    found = [folder / f"{parent}.yaml" for parent in parents for folder in dict.fromkeys(folders)]
    return [part for parent in found if parent.is_file() for part in with_parents(parent)] + [file]
