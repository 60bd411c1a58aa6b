"""A page for every environment: rule card, levels, scores, a picture, keys."""

import inspect
from collections import defaultdict
from contextlib import closing
from typing import Any

from gymnasium.vector import VectorEnv

from reference.docstrings import docstring, family
from reference.keys import key_table, node
from reference.markdown import Page, code, commands, defined, file_of, prose, sections, table
from reference.screens import Screen, screen
from rlmem.config.catalog import catalog
from rlmem.config.targets import build, locate
from rlmem.core.errors import UserError
from rlmem.run.env_table import PLAYERS, TaskRow, rows

UP = "../../"
SCORES = (
    "Mean returns of an episode under uniform random actions, the best known play without memory, and perfect play "
    f"([how they are known]({UP}environments.md#the-tasks))."
)
LEGEND = (
    "Observations and actions: 4 is one of four, 4,4 two of four each, R3 three numbers, 3x5x5 an image. Recall: slots "
    "back to what must be recalled, where that is known."
)


def pages() -> dict[str, Page]:
    options = catalog()["env"]
    levels: dict[str, list[TaskRow]] = defaultdict(list)
    for row in rows():
        levels[row.name].append(row)
    every = {f"reference/env/{name}.md": page(name, text, levels[name]) for name, text in options.items()}
    return {"reference/env/index.md": index(options, levels)} | every


def index(options: dict[str, str], levels: dict[str, list[TaskRow]]) -> Page:
    listed = [
        (f"[`{name}`]({name}.md)", prose(text, UP), *(number(getattr(levels[name][0], player)) for player in PLAYERS))
        for name, text in options.items()
    ]
    said = (
        "`env=NAME` chooses one; its keys are `env.KEY=VALUE`. Scores are mean returns at the first level, where they "
        f"are known. [Choose an environment]({UP}environments.md) says what each suite is for."
    )
    return Page(sections("# Environments", said, table(("`env=`", "", *PLAYERS), listed)), "docs/environments.md")


def page(name: str, description: str, levels: list[TaskRow]) -> Page:
    found = node("env", name)
    cls, seen = built(found)
    thing = cls or locate(found["_target_"])
    shown = [one for one in family(thing) if docstring(one).prose and rule_card(one)] or [thing]
    card, first = docstring(shown[0]), levels[0]
    facts = [
        ("code", defined(thing)),
        ("what it tests", first.tests),
        ("source", prose(first.source, UP)),
    ]
    pictures = {f"{name}.png": seen.picture} if seen and seen.picture else {}
    text = sections(
        f"# env={name}",
        prose(f"{description}.", UP),
        lines(name, found, first, streams=cls is not None and not issubclass(cls, VectorEnv)),
        ("Facts", table(("", ""), [row for row in facts if row[1]])),
        ("Rules", prose(card.prose, UP)),
        ("Levels and scores", scored(levels)),
        ("On the screen", seen.markdown(f"{name}.png") if seen else ""),
        ("Keys", key_table("env", name, UP)),
        ("Parameters of the game", parameters(found, thing, card.arguments)),
    )
    return Page(text, file_of(thing), pictures)


def lines(name: str, found: dict[str, Any], row: TaskRow, streams: bool) -> str:
    """What to type to train in it and to watch it; `streams`: nothing acts in it."""
    if "???" in found.values():
        return ""
    if streams:
        return commands(f"rlmem train env={name} algo=classify")
    player = "oracle" if row.oracle is not None else "random"
    return commands(f"rlmem train env={name}", f"rlmem play env={name} --player {player}")


def built(found: dict[str, Any]) -> tuple[type | None, Screen | None]:
    """The class of the environment that a node gives, and what it looks like; None where it cannot be told here."""
    if "???" in found.values():
        return None, None
    try:
        one = {"num_envs": 1} if "num_envs" in found else {}
        env = build({key: value for key, value in found.items() if key != "evaluation"} | one)
    except (ImportError, UserError):  # its package is not installed
        return None, None
    if not hasattr(env, "unwrapped"):  # a stream of sequences
        return type(env), None
    with closing(env):
        task = env.unwrapped
        return type(task), screen(task)


def rule_card(cls: Any) -> bool:
    """Whether the docstring of a class is about one task, not about a base of several."""
    return inspect.isclass(cls) and ("tests" in vars(cls) or "| |" in (cls.__doc__ or ""))


def scored(levels: list[TaskRow]) -> str:
    """What is seen and done at each level, and what returns are known."""
    shown = [
        (
            code(row.level or row.backend or ""),
            row.observation,
            row.action,
            row.steps,
            row.recall,
            *map(number, returns(row)),
        )
        for row in levels
        if row.observation
    ]
    text = table(("level", "observes", "acts", "steps", "recall", *PLAYERS), shown)
    known = any(getattr(row, player) is not None for row in levels for player in PLAYERS)
    return "\n\n".join([text, *([SCORES] if known else []), LEGEND]) if text else ""


def returns(row: TaskRow) -> list[float | None]:
    return [getattr(row, player) for player in PLAYERS]


def number(score: float | None) -> str:
    if score is None:
        return ""
    return f"{score:.3f}" if abs(score) < 10 else f"{score:,.1f}"


def parameters(found: dict[str, Any], thing: Any, meanings: dict[str, str]) -> str:
    """What `env.params` may replace, at each level: only where the keys are not the class's own arguments."""
    if "params" not in found:
        return ""
    levels = getattr(thing, "levels", {})
    values = lambda key: [code(level.get(key, "")) for level in levels.values()]  # noqa: E731
    listed = [(code(key), *values(key), prose(text, UP)) for key, text in meanings.items()]
    said = "`'env.params={KEY: VALUE}'` replaces those of the level."
    shown = table(("key", *levels, "meaning"), listed)
    return f"{said}\n\n{shown}" if shown else ""
