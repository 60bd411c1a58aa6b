"""A page for every config group that has none by its options, and one for the keys of config.yaml itself."""

from reference.docstrings import docstring
from reference.keys import HEADER, key_table, target_of
from reference.markdown import SOURCE, Page, code, defined, prose, sections, table
from rlmem.config.catalog import catalog, default_choices, leaves
from rlmem.config.messages import describe
from rlmem.config.paths import conf_dir, experiments_dir
from rlmem.config.schema import SECTIONS, TopLevel
from rlmem.config.targets import annotation, parameters

UP = "../../"
WITH_PAGES = {"memory": "../memory/index.md", "env": "../env/index.md", "algo": "../algo/index.md"}
"""Groups whose options have a page each -> the page that lists them."""
PURPOSE = {
    "memory": "the model that remembers",
    "env": "the task",
    "wrapper": "what is put around the task, several if need be",
    "algo": "how the agent learns",
    "batching": "how time is cut into rows",
    "encoder": "the network before the memory",
    "logger": "where metrics are shown, beside metrics.jsonl",
    "launcher": "where the jobs of `rlmem train -m` run",
    "experiment": "tables and figures of papers, for `rlmem reproduce`",
}
GUIDES = {
    "batching": "batching.md", "logger": "logging.md", "launcher": "clusters.md", "experiment": "experiments.md",
    "encoder": "environments.md#pixels", "wrapper": "environments.md#wrappers",
}  # fmt: skip
"""Group -> the guide about it."""


def pages() -> dict[str, Page]:
    groups = catalog()
    own = {group: options for group, options in groups.items() if group not in WITH_PAGES}
    return {"reference/config/index.md": index(groups)} | {
        f"reference/config/{group}.md": experiments(options) if group == "experiment" else page(group, options)
        for group, options in own.items()
    }


def index(groups: dict[str, dict[str, str]]) -> Page:
    """The groups, and the keys that belong to none."""
    chosen = lambda group: default_choices().get(group, "")  # noqa: E731
    default = lambda group: chosen(group) if isinstance(chosen(group), str) else ", ".join(chosen(group))  # noqa: E731
    listed = [
        (f"[`{group}`]({WITH_PAGES.get(group, f'{group}.md')})", PURPOSE[group], len(options), code(default(group)))
        for group, options in groups.items()
    ]
    said = (
        "A run is composed of one option of every group, and of keys. Every value can be set by its dotted name, as in "
        "`rlmem train memory=gru algo.lr=3e-4`, and `rlmem config` shows all of them with the file and line of each."
    )
    top = [
        (code(leaf.path), code(leaf.text), accepted(leaf.path), prose(leaf.comment, UP))
        for leaf in leaves(conf_dir() / "config.yaml")
        if not leaf.path.startswith(("defaults", "hydra"))
    ]
    text = sections(
        "# Configuration",
        said,
        ("Groups", table(("group", "", "options", "default"), listed)),
        ("Keys of no group", table(HEADER, top)),
    )
    return Page(text, "conf/config.yaml")


def accepted(path: str) -> str:
    """The values that a key of config.yaml takes, in words."""
    section, _, key = path.rpartition(".")
    target = SECTIONS.get(section) if section else TopLevel
    found = parameters(target) if target else {}
    return describe(annotation(found[key], target)) if target and key in found else ""


def page(group: str, options: dict[str, str]) -> Page:
    """The options of a group with the keys of each."""
    parts: list[str | tuple[str, str]] = []
    for name, text in options.items():
        target = target_of(group, name)
        said = docstring(target).prose if target else ""
        facts = f"Class: {defined(target)}" if target else ""
        body = [f"{prose(text, UP)}.", facts, prose(said, UP), key_table(group, name, UP)]
        parts.append((f"{group}={name}", "\n\n".join(part for part in body if part)))
    return Page(sections(f"# {group}=", heading(group), *parts), f"conf/{group}/{next(iter(options))}.yaml")


def heading(group: str) -> str:
    guide = f" See [the guide]({UP}{GUIDES[group]})." if group in GUIDES else ""
    return f"The group `{group}`: {PURPOSE[group]}.{guide}"


def experiments(options: dict[str, str]) -> Page:
    """The experiments by name."""
    folder = experiments_dir()
    assert folder is not None
    listed = [(f"[`{name}`]({SOURCE}/experiments/{name}.yaml)", prose(text, UP)) for name, text in options.items()]
    text = sections("# experiment", heading("experiment"), table(("`rlmem reproduce`", ""), listed))
    return Page(text, f"experiments/{next(iter(options))}.yaml")
