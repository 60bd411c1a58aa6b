"""Contents of the YAML files of conf, read without Hydra or torch: groups, options, comments, lines that set values."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rlmem.config import plainyaml
from rlmem.config.messages import mistake, nearest, to_text
from rlmem.config.paths import conf_dir, experiments_dir, own_dirs
from rlmem.core import received
from rlmem.core.errors import UserError, first_line

Catalog = dict[str, dict[str, str]]
"""Group -> option -> its description."""

Origins = dict[str, str]
"""Dotted path -> where its value was set."""

Choice = str | list[str]
"""The option of a group, or several."""

Placed = tuple[str, Path]
"""A file, and its package: the path below which its keys lie in a configuration; "" is the top."""

TASKS = "_tasks"
"""The folder of conf with the defaults that follow from the algorithm, the task and the budget."""

COMMAND_LINE = "command line"
"""The origin of a value that an override set."""


def catalog(lines: Sequence[str] = ()) -> Catalog:
    """Every group, in the order of config.yaml's defaults; experiments last. `lines` are as for `own_dirs`."""
    known = options(lines)
    groups = dict.fromkeys([*default_choices(), *known])
    listed = {group: {name: description(file) for name, file in known[group].items()} for group in groups}
    if folder := experiments_dir():
        files = [file for file in sorted(folder.rglob("*.yaml")) if file.is_file() and not file.name.startswith("_")]
        listed["experiment"] = {f.relative_to(folder).with_suffix("").as_posix(): description(f) for f in files}
    return listed


def options(lines: Iterable[str] = ()) -> dict[str, dict[str, Path]]:
    """Group -> option -> its file: the shipped ones first, which are not replaced; `lines` as for `own_dirs`."""
    folders, shipped = (conf_dir(), *own_dirs(lines)), sorted(conf_dir().iterdir())
    files_of: dict[str, dict[str, Path]] = {path.name: {} for path in shipped if path.is_dir() and path.name[0] != "_"}
    for group, files in files_of.items():
        for file in (file for folder in folders for file in sorted((folder / group).glob("[!_]*.yaml"))):
            if file.is_file():
                files.setdefault(file.stem, file)
    return files_of


def option_names(lines: Iterable[str] = ()) -> dict[str, list[str]]:
    """The options of each group of a run; `lines` as for `own_dirs`."""
    return {group: sorted(files) for group, files in options(lines).items() if group != "launcher"}


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
    wrapped = textwrap.TextWrapper(max(left + 20, 100), subsequent_indent=" " * left)
    lines = []
    for name, text in rows.items():
        wrapped.initial_indent = f"  {name:<{left - 2}}"
        lines.append(wrapped.fill(text) or f"  {name}")
    return "\n".join(lines)


def train_help(overrides: list[str]) -> str:
    """What `rlmem train --help` adds: the groups, the top-level keys, the keys of the options named."""
    listing = catalog(overrides)
    groups = {group: ", ".join(options) for group, options in listing.items() if group != "experiment"}
    top = [leaf for leaf in leaves(conf_dir() / "config.yaml") if not leaf.path.startswith(("defaults", "hydra"))]
    keys = {f"{leaf.path}={leaf.text}": leaf.comment for leaf in top}
    parts = [f"groups (rlmem list says what each option is):\n{columns(groups)}", f"keys:\n{columns(keys)}"]
    for override in overrides:
        group, _, name = override.partition("=")
        if group in groups and (file := options(overrides)[group].get(name)):
            parts.append(f"{override}: {description(file)}\n{columns(option_keys(group, file))}")
    return "\n\n".join(parts)


@cache
def default_choices() -> dict[str, Choice]:
    """The defaults list of config.yaml: group -> option, or a list of options."""
    entries = yaml.safe_load((conf_dir() / "config.yaml").read_text(encoding="utf-8"))["defaults"]
    pairs = [next(iter(entry.items())) for entry in entries if isinstance(entry, dict)]
    return {group: choice for group, choice in pairs if not group.startswith(("override ", "optional "))}


def option_keys(group: str, file: Path) -> dict[str, str]:
    """The keys of an option and of the private files that it builds on: `memory.hidden_size=256` -> its comment."""
    full: dict[str, Leaf] = {}
    for leaf in (leaf for place, part in placed(group, file) for leaf in leaves(part, place)):
        inherited = full[leaf.path].comment if leaf.path in full else ""
        full[leaf.path] = leaf._replace(comment=leaf.comment or inherited)
    if group == "launcher":  # whose keys lie in Hydra's own
        full = {p.removeprefix("hydra."): leaf for p, leaf in full.items() if p.startswith("hydra.launcher.")}
    # The class of the option itself is fixed; that of an argument is a key.
    fixed = {f"{group}._target_", f"{group}.{file.stem}._target_", "defaults", f"{group}.defaults"}
    return {f"{path}={leaf.text}": leaf.comment for path, leaf in full.items() if path not in fixed}


def text_of(file: Path) -> str:
    """The text of an option's file, which may come with somebody's repository. Raises UserError."""
    try:
        return received.text(file, received.DESCRIPTION)
    except received.Unreadable:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({first_line(error)}); expected an option in YAML") from error


def content_of(file: Path) -> dict[str, Any]:
    """The keys of an option's file; {} if it has none. Raises UserError."""
    try:
        content = plainyaml.load(text_of(file)) or {}
    except yaml.YAMLError as error:
        raise UserError(yaml_problem(error, file)) from error
    if not isinstance(content, dict):
        raise UserError(f"{file}: no mapping; expected the keys of an option; e.g. _target_: my_code.Memory")
    return content


def with_parents(file: Path) -> list[Path]:
    """A file and the files that its `defaults` name, in its folder or the shipped one; later ones win.

    Raises UserError for a name that leads out of these folders.
    """
    parts: dict[Path, None] = {}
    seen: set[Path] = set()

    def add(part: Path) -> None:
        if part in seen or not part.is_file():
            return
        seen.add(part)
        parents = content_of(part).get("defaults")
        for parent in parents if isinstance(parents, list) else ():
            if parent == "_self_":
                parts[part] = None
            for folder in dict.fromkeys((conf_dir() / part.parent.name, part.parent)):
                add(received.inside(folder, f"{parent}.yaml"))
        parts[part] = None

    add(file)
    return list(parts)


def placed(group: str, file: Path) -> list[Placed]:
    """An option's file and those that it builds on, each with its package, in the order in which they are merged."""

    def package(part: Path, default: str) -> str:
        directive = re.match(r"# @package (\S+)", text_of(part))
        return default if directive is None else directive[1].replace("_group_", group).replace("_global_", "")

    around = package(file, group)
    return [(package(part, around), part) for part in with_parents(file)]


def merged(
    told: Mapping[str, str], typed: Mapping[str, Any], lines: Sequence[str]
) -> tuple[dict[str, Choice], list[Placed]]:
    """The choice of each group, and the files of a composition in the order in which they are merged.

    told: choices as Hydra reports them, without the groups that allow several options
    typed: the choices on the command line
    lines: as for `own_dirs`
    """
    known, defaults, choices = options(lines), default_choices(), dict[str, Choice](told)

    def of(group: str) -> list[Placed]:
        names = choices[group] if isinstance(choices[group], list) else [choices[group]]
        return [part for name in names if name in known[group] for part in placed(group, known[group][name])]

    several = [group for group, default in defaults.items() if isinstance(default, list)]
    files = {group: of(group) for group in defaults if group not in several}
    entries = [entry for parts in files.values() for _, file in parts for entry in content_of(file).get("defaults", ())]
    overriding = dict(pair for entry in entries if isinstance(entry, dict) for pair in entry.items())
    for group in several:
        names = typed.get(group, overriding.get(f"override /{group}", defaults[group]))
        choices[group] = names if isinstance(names, list) else [names]
        files[group] = of(group)
    of_task = [folder / TASKS / f"{told['algo']}/{told['env']}.yaml" for folder in (conf_dir(), *own_dirs(lines))]
    tasks = [("", file) for file in of_task if file.is_file()][:1]
    all_files = [("", conf_dir() / "config.yaml"), *(part for group in defaults for part in files[group]), *tasks]
    return {group: choices[group] for group in sorted(defaults)}, all_files


def option(group: str, name: object) -> dict[str, Any]:
    """The keys of an option, with those of the files that it builds on. Raises UserError for an unknown name."""
    files = options()[group]
    if name not in files:
        example = f"{group}={default_choices()[group]}"
        problem, where = f"`{group}` has no option {to_text(name)}", f"{group}={to_text(name)}"
        raise mistake(where, problem, near=nearest(name, files), accepted=sorted(files), example=example)
    return node_of(files[str(name)])


def node_of(file: Path) -> dict[str, Any]:
    """The keys of an option's file, with those of the files that it builds on."""
    node: dict[str, Any] = {}
    for part in with_parents(file):
        node |= content_of(part)
    return {key: value for key, value in node.items() if key != "defaults"}


class Leaf(NamedTuple):
    """One value of a file: its dotted path, its text, its line (from 1) and the comment behind it."""

    path: str
    text: str
    line: int
    comment: str


def description(file: Path) -> str:
    """The first comment line that is not a `# @package` directive; empty if there is none."""
    comments = (line[1:].strip() for line in text_of(file).splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@")), "")


def yaml_problem(error: yaml.YAMLError, file: Path | None = None) -> str:
    """Where and why a file is not YAML, in one line; `file` is named if the error does not name one."""
    mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return f"{file or 'a config file'}: cannot be read as YAML ({' '.join(str(error).split())})"
    where = f"{file or mark.name}:{mark.line + 1}"
    return f"{where}: cannot be read as YAML ({why}); check the indentation and the quotes there"


def leaves(file: Path, package: str = "") -> list[Leaf]:
    """The values of a file in order, below the path `package`; lists and {} are values. UserError if it is not YAML."""
    text = text_of(file)
    content_of(file)  # is a mapping
    root = yaml.compose(text, Loader=plainyaml.Loader)
    return list(_walk(root, f"{package}." if package else "", text.splitlines())) if root else []


def _walk(node: yaml.Node, prefix: str, lines: list[str]) -> Iterator[Leaf]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _walk(value, f"{path}.", lines)
            continue
        start, end, text, comment = value.start_mark, value.end_mark, "...", ""
        if start.line == end.line:
            text = lines[start.line][start.column : end.column]
            comment = lines[start.line][end.column :].partition("#")[2].strip()
        yield Leaf(path, text, start.line + 1, comment)


def sources(files: Iterable[Placed]) -> Origins:
    """Dotted path -> `conf/algo/ppo.yaml:7`, for (package, file) pairs in the order they are merged."""
    root = conf_dir().parent
    shown = lambda file: file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)  # noqa: E731
    return {leaf.path: f"{shown(file)}:{leaf.line}" for package, file in files for leaf in leaves(file, package)}


def lookup(path: str, origins: Origins) -> str | None:
    """The origin of a value, or else of the nearest mapping around it or the last value in it that has one."""
    parts = path.split(".")
    around = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    inside = (origin for name, origin in reversed(origins.items()) if name.startswith(f"{path}."))
    return next((origins[name] for name in around if name in origins), next(inside, None))


def hint(path: str, files: Iterable[Placed]) -> str | None:
    """The `e.g. ...` of the comment beside a value, such as the one that says what a required key may be."""
    comments = (leaf.comment for package, file in files for leaf in leaves(file, package) if leaf.path == path)
    return next((comment.partition("e.g. ")[2] for comment in comments if "e.g. " in comment), None)
