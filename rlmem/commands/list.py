"""`rlmem list`: show the memories, environments and other options."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from rlmem.commands.toolkit import Flag, Words, stdout_to_stderr
from rlmem.config.messages import mistake, nearest, shell
from rlmem.core.command import show
from rlmem.core.received import dumps

PRINTS = True

Groups = Mapping[str, Mapping[str, str]]
"""Group -> option -> its description."""


def run(what: Words, *, json: Flag = False, markdown: Flag = False) -> None:
    """Show every config group and its options, or those that are named; `*` marks the default.

    what GROUP: a group, experiment, claim (its names are papers) or metric, then names in it if not all; also
        hydra.searchpath=[file://FOLDER]
    json: print JSON: a list for each group, by its name; of experiments or of claims alone, the list itself
    markdown: print claims, or how experiments stand, as Markdown

    Examples:

        env
        memory algo --json
        memory ffm gru
        experiment           what `rlmem reproduce` can run, its cost, and what has come out so far
        experiment shm ffm/table4    the items of one paper, and one of another
        experiment --markdown    budget, verdict, runs and commit of every item as a table
        claim --markdown     what the papers say, clause by clause, and what tests it
        claim ffm            the same of one paper
        metric               what the names in metrics.jsonl mean
    """
    from rlmem.config.catalog import as_text, catalog

    lines = [text for text in what if text.startswith("hydra.searchpath=")]
    groups = catalog(lines)
    asked = _asked([text for text in what if text not in lines], lines, groups)
    of_papers = list(asked) in (["claim"], ["experiment"])
    if markdown and (json or not of_papers):
        problem = "is for claims or experiments alone, and without --json"
        raise mistake("--markdown", problem, example="rlmem list claim --markdown")
    if json:
        data = {group: listing.data(chosen) for group, (listing, chosen) in asked.items()}
        data = data or {group: _options(options) for group, options in groups.items()}
        show(dumps(next(iter(data.values())) if of_papers else data, indent=2))
    elif asked:
        show("\n\n".join(listing.text(chosen, markdown).rstrip() for listing, chosen in asked.values()))
    else:
        show(as_text(groups))


class Listing(NamedTuple):
    """How a group is listed. Both functions accept the names that are asked for; []: all of them.

    names: those that may be asked for: of the experiments also the papers, for all of their items; of claims, papers
    data: list for JSON
    text: text for readers, or Markdown
    """

    names: Sequence[str]
    data: Callable[[Sequence[str]], list[Any]]
    text: Callable[[Sequence[str], bool], str]


def _listing(group: str, lines: Sequence[str], groups: Groups) -> Listing:
    from rlmem.config.catalog import as_text, columns

    if group == "env":
        from rlmem.run import env_table

        def rows(names: Sequence[str]) -> list[env_table.TaskRow]:
            with stdout_to_stderr():
                return env_table.rows(lines, names)

        data = lambda names: [asdict(row) for row in rows(names)]  # noqa: E731
        return Listing(list(groups[group]), data, lambda names, _: _environments(rows(names)))
    if group == "experiment":
        from rlmem.evidence import catalog, items

        experiments = catalog.names()
        of_papers = dict.fromkeys(item.partition("/")[0] for item in experiments)
        text = lambda names, markdown: items.as_table(names).markdown() if markdown else items.as_text(names)  # noqa: E731
        return Listing([*of_papers, *experiments], items.as_data, text)
    if group == "claim":
        from rlmem.evidence.items import claims, papers

        data = lambda names: [dict(zip(claims(names).columns, row, strict=True)) for row in claims(names).rows]  # noqa: E731
        text = lambda names, markdown: claims(names).markdown() if markdown else claims(names).text()  # noqa: E731
        return Listing(list(papers()), data, text)
    every, layout = _options(groups.get(group, {})), lambda described: as_text({group: described})
    if group == "metric":
        from rlmem.record.metrics import METRICS

        every = [{"name": name, "logged_by": by, "description": text} for name, (by, text) in METRICS.items()]
        layout = columns
    data = lambda names: [row for row in every if not names or row["name"] in names]  # noqa: E731
    text = lambda names, _: layout({row["name"]: row["description"] for row in data(names)})  # noqa: E731
    return Listing([row["name"] for row in every], data, text)


def _options(options: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "description": text} for name, text in options.items()]


def _environments(rows: Sequence[Any]) -> str:
    """The table of environments; `*` marks the default."""
    from rlmem.config.catalog import default_choices
    from rlmem.record.tables import Table
    from rlmem.run.env_table import PLAYERS

    default, last, cells = default_choices()["env"], "", []
    for row in rows:
        name = "" if row.name == last else f"{row.name}{' *' if row.name == default else ''}"
        spaces = (row.observation, row.action, row.steps, row.recall)
        scores = (getattr(row, player) for player in PLAYERS)
        cells.append((name, row.level or row.backend or "", *spaces, *scores, row.description if name else ""))
        last = row.name
    legend = (
        "level: env.level, or env.backend of tasks without levels",
        "observes, acts: 4 is one of four, 4,4 two of four each, R3 three numbers, 3x5x5 an image",
        "recall: slots back to what must be recalled, 0: nothing need be; -: nobody knows",
        "random, memoryless, oracle: mean return of an episode of `steps` (docs/environments.md)",
    )
    columns = ("env", "level", "observes", "acts", "steps", "recall", *PLAYERS, "")
    return Table("", columns, cells, notes=legend).text()


def _asked(words: Iterable[str], lines: Sequence[str], groups: Groups) -> dict[str, tuple[Listing, list[str]]]:
    """Group -> its listing, and the names in it that are asked for. Raises UserError for a word that is neither."""
    known = list(dict.fromkeys([*groups, "experiment", "claim", "metric"]))
    asked: dict[str, tuple[Listing, list[str]]] = {}
    group = ""  # the group that words are names in, so far
    for word in words:
        if group and word in asked[group][0].names:
            asked[group][1].append(word)
        elif word in known:
            group = word
            asked.setdefault(group, (_listing(group, lines, groups), []))
        elif group:
            names = asked[group][0].names
            problem, near = f"nothing of that name in {group}, and no group", nearest(word, [*names, *known])
            short = [name for name in names if "/" not in name] if group != "metric" else ()
            raise mistake(word, problem, near=near, accepted=short, example=f"rlmem list {shell(group)}")
        else:
            home = next((group for group, options in groups.items() if word in options), None)
            example = f"rlmem list {shell(home, word)}" if home else "rlmem list memory"
            raise mistake(word, "no such group", near=nearest(word, known), accepted=known, example=example)
    return asked
