"""A page for every algorithm: equations, what it needs, keys, and the metrics that it logs."""

from typing import Any

from reference.docstrings import docstring, family
from reference.keys import key_table, target_of
from reference.markdown import Page, commands, defined, file_of, prose, sections, table
from rlmem.algos.base import Algorithm, Learner
from rlmem.algos.on_policy import FromRollouts
from rlmem.algos.supervised.base import Supervised
from rlmem.config.catalog import catalog
from rlmem.record.metrics import METRICS

UP = "../../"


def pages() -> dict[str, Page]:
    options = catalog()["algo"]
    every = {f"reference/algo/{name}.md": page(name, text) for name, text in options.items()}
    return {"reference/algo/index.md": index(options)} | every


def index(options: dict[str, str]) -> Page:
    listed = [(f"[`{name}`]({name}.md)", prose(text, UP)) for name, text in options.items()]
    said = (
        "`algo=NAME` chooses one; its keys are `algo.KEY=VALUE`. "
        f"[Choose an algorithm]({UP}algorithms.md) has losses, published forms, and what matters for learning."
    )
    return Page(sections("# Algorithms", said, table(("`algo=`", ""), listed)), "docs/algorithms.md")


def page(name: str, description: str) -> Page:
    cls: Any = target_of("algo", name)
    acts = issubclass(cls, Algorithm)
    actions = ", ".join(space.__name__ for space in cls.action_spaces) if acts else ""
    facts = [
        ("class", defined(cls)),
        ("learns from", source(cls)),
        ("action spaces", actions),
        ("continuous actions", "between bounds only" if "Box" in actions and cls.bounded_actions else ""),
        ("several processes", f"no: {cls.one_process}" if cls.one_process else "yes, by `trainer.devices`"),
    ]
    bases = [(one, docstring(one).prose) for one in family(cls) if one not in (cls, Algorithm, Learner)]
    text = sections(
        f"# algo={name}",
        prose(f"{description}.", UP),
        commands(command(name, cls)),
        ("The algorithm", prose(docstring(cls).prose, UP)),
        *((f"Shared by all of {one.__name__}", prose(said, UP)) for one, said in bases if "\n" in said),
        ("Facts", table(("", ""), [row for row in facts if row[1]])),
        ("Keys", key_table("algo", name, UP)),
        ("Metrics", logged(name, cls)),
    )
    return Page(text, file_of(cls))


def source(cls: type[Any]) -> str:
    """What an algorithm learns from, in words."""
    if issubclass(cls, Supervised):
        return "recorded episodes; it acts in evaluations alone" if cls.acts else "data, in which nothing acts"
    return "rollouts of the present policy" if issubclass(cls, FromRollouts) else "a replay of episodes"


def command(name: str, cls: type[Any]) -> str:
    """A command line that trains with it."""
    if issubclass(cls, Supervised):
        data = f" algo.dataset=data/{cls.example.removeprefix('env=')}.hdf5"
        return f"rlmem train algo={name} {cls.example}{data if 'dataset' in cls.__dataclass_fields__ else ''}"
    discrete = any(space.__name__ == "Discrete" for space in cls.action_spaces)
    return f"rlmem train algo={name} memory=gru env={'repeat_previous' if discrete else 'position_only_pendulum'}"


def logged(name: str, cls: type[Any]) -> str:
    """The metrics that its runs log beside those of every run."""
    own = cls.__name__.lower()
    reads, on = issubclass(cls, Supervised), issubclass(cls, FromRollouts)
    kinds = {
        "every run": False,
        "agents that learn by acting": not reads,
        "supervised algorithms": reads,
        "on-policy algorithms": on,
        "algorithms with a replay": not reads and not on,
        "continuous actions": not reads and "Box" in str(cls.action_spaces),
    }
    found = [
        metric.replace("ALGO", own)
        for metric, (by, _) in METRICS.items()
        if any(kinds.get(one, one in (name, own)) for one in by.split(", "))
    ]
    return f"{', '.join(f'`{name}`' for name in found)}. [What they mean](../metrics.md)."
