"""`rlmem list`: show the memories, environments and other options."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlmem.commands.toolkit import Flag, Words, stdout_to_stderr
from rlmem.config.messages import mistake, nearest, shell
from rlmem.errors import UserError
from rlmem.system.command import show
from rlmem.system.strictjson import dumps

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
    asked = _asked([text for text in what if text not in lines], groups)
    of_papers = list(asked) in (["claim"], ["experiment"])
    if markdown and (json or not of_papers):
        problem = "is for claims or experiments alone, and without --json"
        raise mistake("--markdown", problem, example="rlmem list claim --markdown")
    if json:
        found = {group: _data(group, names, lines, groups) for group, names in asked.items()}
        found = found or {group: _options(options) for group, options in groups.items()}
        show(dumps(next(iter(found.values())) if of_papers else found, indent=2))
    elif asked:
        show("\n\n".join(_text(group, names, lines, groups, markdown) for group, names in asked.items()))
    else:
        show(as_text(groups))


def _asked(words: Iterable[str], groups: Groups) -> dict[str, list[str]]:
    """Group -> the names in it that are asked for; []: all of them. Raises UserError for a word that is neither."""
    known = list(dict.fromkeys([*groups, "experiment", "claim", "metric"]))
    found: dict[str, list[str]] = {}
    group, names = "", list[str]()  # the group that words are names in, so far
    for word in words:
        if word in names:
            found[group].append(word)
        elif word in known:
            group, names = word, _names(word, groups)
            found.setdefault(group, [])
        elif group:
            raise _no_name(word, group, names, known)
        else:
            raise _no_group(word, groups, known)
    return found


def _no_name(word: str, group: str, names: Sequence[str], known: Sequence[str]) -> UserError:
    what, near = f"nothing of that name in {group}, and no group", nearest(word, [*names, *known])
    short = [name for name in names if "/" not in name] if group != "metric" else ()
    return mistake(word, what, near=near, accepted=short, example=f"rlmem list {shell(group)}")


def _no_group(word: str, groups: Groups, known: Sequence[str]) -> UserError:
    """The example is the group in which the word is a name, if there is one."""
    home = next((group for group, options in groups.items() if word in options), None)
    example = f"rlmem list {shell(home, word)}" if home else "rlmem list memory"
    return mistake(word, "no such group", near=nearest(word, known), accepted=known, example=example)


def _names(group: str, groups: Groups) -> list[str]:
    """What may be named in a group: of the experiments also the papers, for all of their items; of the claims these."""
    if group == "claim":
        from rlmem.evidence.items import papers

        return list(papers())
    if group == "experiment":
        from rlmem.evidence.catalog import names

        items = names()
        return [*dict.fromkeys(item.partition("/")[0] for item in items), *items]
    if group == "metric":
        from rlmem.record.metrics import METRICS

        return list(METRICS)
    return list(groups.get(group, ()))


def _options(options: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "description": text} for name, text in options.items()]


def _data(group: str, names: Sequence[str], lines: Sequence[str], groups: Groups) -> list[Any]:
    """What is known of the names in a group, as JSON has it; names: []: all of them."""
    if group == "env":
        from rlmem.run import env_table

        with stdout_to_stderr():
            return [asdict(row) for row in env_table.rows(lines, names)]
    if group == "experiment":
        from rlmem.evidence.items import as_data

        return as_data(names)
    if group == "claim":
        from rlmem.evidence.items import claims

        found = claims(names)
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    if group == "metric":
        from rlmem.record.metrics import METRICS

        every = [{"name": name, "logged_by": by, "description": text} for name, (by, text) in METRICS.items()]
        return [metric for metric in every if not names or metric["name"] in names]
    return _options({name: text for name, text in groups[group].items() if not names or name in names})


def _text(group: str, names: Sequence[str], lines: Sequence[str], groups: Groups, markdown: bool) -> str:
    """The same for readers."""
    from rlmem.config.catalog import as_text, columns

    if group == "env":
        from rlmem.run import env_table

        with stdout_to_stderr():
            return env_table.as_text(lines, names)
    if group == "experiment":
        from rlmem.evidence import items

        return (items.as_table(names).markdown() if markdown else items.as_text(names)).rstrip()
    if group == "claim":
        from rlmem.evidence.items import claims

        found = claims(names)
        return found.markdown() if markdown else found.text()
    told = {one["name"]: one["description"] for one in _data(group, names, lines, groups)}
    return columns(told) if group == "metric" else as_text({group: told})
