"""Experiment files: how one is read, with every mistake that it may have, and those that are shipped.

The shipped experiments are `experiments/<paper>/<item>.yaml`, named `<paper>/<item>`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rlmem.config import plainyaml
from rlmem.config.catalog import yaml_problem
from rlmem.config.messages import got, mistake, nearest, sentence, shell
from rlmem.config.paths import experiments_dir
from rlmem.core import received
from rlmem.core.errors import UserError
from rlmem.evidence import registration
from rlmem.evidence.drawings import COLUMN
from rlmem.evidence.expect import Expectation
from rlmem.evidence.experiment import BUDGETS, TRAINED, Experiment, Planned, words
from rlmem.evidence.sections import MOST, AnalysisSection, Budget, Exceptional, Leaderboard, Peer, Published, Twins
from rlmem.record.trust import MARK, is_own

NAME = r"\w[\w.+-]*/\w[\w.+-]*"
"""The pattern of the name of an item."""


def read(file: Path, name: str | None = None, own: bool = False) -> Experiment:
    """The experiment in a file, whose first comment line is its title. Raises UserError with every problem.

    name: of the item whose results the file is kept with, as a text that needs no other file; None: it is an
        experiment file, with the name of its folder and its own
    own: the file is not shipped, so its text is kept with its results, as it is where a name is given
    """
    title, content = _content(file, with_results=name is not None)
    if other := content.get("runs"):
        if name is None:
            content = _upon(_content(_beside(file, str(other)))[1], content)
        elif not re.fullmatch(NAME, str(other)):
            raise mistake(f"{file}: runs: {other}", "is not the name of an item", example="ffm/table4")
    try:
        experiment = Experiment.model_validate({"title": title, **content})
    except ValidationError as error:
        raise UserError(*(_sentence(file, problem) for problem in error.errors())) from error
    experiment = _with_twins(file, experiment)
    seeds = max(len(budget.seeds or experiment.seeds) for budget in experiment.budgets.values())
    if (runs := len(experiment.rows) * len(experiment.columns) * seeds) > MOST:
        raise UserError(f"{file}: {runs:,} runs; expected at most {MOST:,}; e.g. fewer seeds")
    if problems := list(_inconsistent(experiment)):
        raise UserError(*(f"{file}: {problem}" for problem in problems))
    text = f"# {title}\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}" if own or name else None
    return experiment.known_as(name or f"{file.resolve().parent.name}/{file.stem}", text)


def _with_twins(file: Path, experiment: Experiment) -> Experiment:
    """The experiment with the rows on fully observed twins behind its own, if it asks for them. Raises UserError."""
    rows, twins = experiment.rows, experiment.twins
    if twins is None:
        return experiment
    if twins.memoryless not in rows:
        near = nearest(twins.memoryless, rows)
        raise mistake(f"{file}: twins: {twins.memoryless}", "no such row", near=near, accepted=rows)
    if taken := next((row for row in rows if Twins.name(row) in rows), None):
        raise mistake(f"{file}: rows: {Twins.name(taken)}", "is the name of a twin; give the row another name")
    return experiment.model_copy(update={"rows": {**rows, **{Twins.name(row): rows[row] for row in rows}}})


def _content(file: Path, with_results: bool = False) -> tuple[str, dict[str, Any]]:
    """The title, from the first comment line, and the keys, in which the files of peers have whole paths.

    with_results: the file is the copy that results have; unless this user wrote it, these files lie next to it
    """
    try:
        text = received.text(file, received.DESCRIPTION)
        content = plainyaml.load(text)
    except yaml.YAMLError as error:
        raise UserError(yaml_problem(error, file)) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({' '.join(str(error).split())}); expected an experiment") from error
    if not isinstance(content, dict):
        raise mistake(str(file), "no mapping", accepted=Experiment.model_fields)
    peers = content.get("peers")
    for peer in peers.values() if isinstance(peers, dict) else ():
        if isinstance(peer, dict) and isinstance(peer.get("file"), str):
            name = Path(peer["file"]).name if with_results and not is_own(text) else peer["file"]
            peer["file"] = str(file.resolve().parent / name)
    text = text.partition("\n")[2] if MARK.match(text) else text
    return text.partition("\n")[0].removeprefix("#").strip(), content


def _upon(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """`base` updated with the keys of `content`, and each of its budgets likewise."""
    shared, own = base.get("budgets"), content.get("budgets")
    if not isinstance(shared, Mapping) or not isinstance(own, Mapping):
        return base | content
    both = {k: shared[k] | v for k, v in own.items() if isinstance(v, dict) and isinstance(shared.get(k), dict)}
    return base | content | {"budgets": {**shared, **own, **both}}


def _beside(file: Path, item: str) -> Path:
    """The file of another item. Raises UserError if there is none."""
    folder, shipped = file.resolve().parent, experiments_dir()
    roots = [folder.parent, shipped] if shipped else [folder.parent]
    path = next((path for root in roots if (path := root / f"{item}.yaml").is_file()), None)
    if path is None:
        known = [other.relative_to(folder.parent).with_suffix("").as_posix() for other in folder.glob("*.yaml")]
        raise mistake(f"{file}: runs: {item}", "no such item", near=nearest(item, known), accepted=known)
    return path


def _sentence(file: Path, problem: Mapping[str, Any]) -> str:
    where, last = ".".join(map(str, problem["loc"])), str(problem["loc"][-1])
    if problem["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"budgets": Budget, "exceptions": Exceptional, "published": Published}
        parts |= {"peers": Peer, "analyses": AnalysisSection, "twins": Twins, "leaderboard": Leaderboard}
        accepted = list(parts.get(str(problem["loc"][0]), Experiment).model_fields)
        return sentence(f"{file}: {where}", "unknown key", near=nearest(last, accepted), accepted=accepted)
    message = problem["msg"].removeprefix("Value error, ")
    value = "" if problem["type"] == "missing" else f"; got {got(problem['input'])}"
    return f"{file}: {where}: {message[:1].lower()}{message[1:]}{value}"


def _inconsistent(experiment: Experiment) -> Iterator[str]:
    """A sentence for every name of a row or column that is not defined, and for every budget that is missing."""
    budgets = experiment.budgets.items()
    special = [("exceptions", e) for e in experiment.exceptions]
    special += [(f"budgets.{name}.exceptions", e) for name, budget in budgets for e in budget.exceptions]
    every = [*experiment.expect, *(e for _, budget in budgets for e in budget.expect or ())]
    expected = [e for e in every if isinstance(e, Expectation)]
    board, also = experiment.leaderboard, experiment.also
    metrics = [("expect", e.metric or None, also if experiment.run in TRAINED else ()) for e in expected]
    metrics += [("leaderboard.cost", board.cost, also), ("leaderboard.second", board.second, also)] if board else []
    for where, metric, known in dict.fromkeys(metrics):
        if metric is not None and metric not in known:
            yield sentence(where, f"`{metric}` is not in `also`", near=nearest(metric, known), accepted=known)
    for axis, names in (("row", list(experiment.rows)), ("column", list(experiment.columns))):
        parts = [*names, *words(names)]  # a word of a crossed name is enough in some places
        used: list[tuple[str, str | None, list[str]]]
        used = [(where, getattr(exception, axis), parts) for where, exception in special]
        used += [(f"budgets.{k}.{axis}s", name, parts) for k, b in budgets for name in getattr(b, f"{axis}s") or ()]
        beside = [*names, *experiment.peers] if axis == "row" else names
        used += [("expect", name, beside) for e in expected for name in (e.rows if axis == "row" else e.columns)]
        used += [(f"published.{axis}s", name, names) for name in getattr(experiment.published, f"{axis}s", ())]
        if axis == "column":
            used += [("task", name, parts) for name in experiment.task] if isinstance(experiment.task, dict) else []
            peers = experiment.peers.items()
            used += [(f"peers.{row}.columns", name, names) for row, peer in peers for name in peer.columns]
            used += [("leaderboard.bounds", name, names) for name in board.bounds] if board else []
        elif board:
            used.append(("leaderboard.beside", board.beside, names))
        for where, name, accepted in used:
            if name is not None and name not in accepted:
                yield sentence(where, f"`{name}` is no name here", near=nearest(name, accepted), accepted=accepted)
    if board and (lacking := [name for name in experiment.columns if name not in board.bounds]):
        yield f"leaderboard.bounds: {', '.join(lacking)} is missing; expected the returns that score 0 and 1"
    if wrong := [name for name, (low, high) in (board.bounds if board else {}).items() if not low < high]:
        yield f"leaderboard.bounds.{wrong[0]}: expected [the return that scores 0, a larger one that scores 1]"
    yield from (f"peers: `{name}` is a row already" for name in experiment.peers if name in experiment.rows)
    if odd := [name for name in experiment.columns if experiment.draw and not COLUMN.fullmatch(name)]:
        yield f"draw: the column `{odd[0]}`: expected a panel and two dials; e.g. `hold delay=4 items=1`"
    lacking = [name for name in BUDGETS if name not in experiment.budgets]
    yield from (f"budgets: {name} is missing; expected {', '.join(BUDGETS)}" for name in lacking)


OTHERS = ("first_run", "papers", "published")
"""The folders beside those of experiments."""


def names(chosen: Sequence[str] = ()) -> list[str]:
    """The names of the shipped experiments, sorted by paper and item.

    chosen: only these papers and items
    """
    root = experiments_dir()
    files = [file.relative_to(root) for file in root.glob("*/*.yaml")] if root else []
    every = sorted(f.with_suffix("").as_posix() for f in files if f.parts[0] not in OTHERS)
    return [name for name in every if not chosen or {name, name.partition("/")[0]} & {*chosen}]


def find(item: str) -> Experiment:
    """The experiment `<paper>/<item>`, or that of a file of the user's own. Raises UserError."""
    root, known = experiments_dir(), names()
    file = Path(item).resolve() if item.endswith((".yaml", ".yml")) else None
    name = f"{file.parent.name}/{file.stem}" if file else item
    if root is not None and name in known:
        if file and file != (root / f"{name}.yaml").resolve():
            problem = f"{name} is the name of a shipped experiment; rename the file or its folder"
            raise mistake(item, problem, example=f"my_{file.name}")
        experiment, folder = read(root / f"{name}.yaml"), root
    elif file is not None:
        experiment, folder = read(received.named(Path(item)), own=True), file.parent
    else:
        near = nearest(name, known) or nearest(name, [name.partition("/")[2] for name in known])
        papers = sorted({name.partition("/")[0] + "/..." for name in known})
        raise mistake(item, "no such experiment", near=near, accepted=papers, example="rlmem list experiment")
    return experiment.known_as(name, experiment.text, registration.read(folder / registration.FILE, name))


def register(item: str, budget: str) -> str:
    """Register the expectations of an experiment at a budget, and return a line about it. Raises UserError."""
    planned = find(item).at(budget)
    where, version, known = f"{planned.name} at the budget {budget}", planned.version, planned.registration
    if budget not in registration.COUNTED:
        again = f"rlmem reproduce {shell(item)} --budget laptop --register"
        raise mistake(f"--budget {budget}", "its runs are never judged, so nothing can be registered", example=again)
    if known.versions and known.versions[-1] == version:
        return f"{where}: registered already, {known.versions[-1].registered}"
    known = replace(known, versions=(*known.versions, replace(version, registered=registration.stamp(datetime.now()))))
    registration.write(registry(planned.experiment, item), planned.name, budget, known)
    count = f"{len(version.expect)} expectation{'s' * (len(version.expect) != 1)}"
    return f"{where}: {count} registered, hash {version.hash}"


def require_registered(item: str, planned: Planned) -> None:
    """Raise UserError if a counted run would start whose expectations, as they are now, are not registered.

    item: the experiment as the user named it
    """
    version, versions = planned.version, planned.registration.versions
    if planned.budget not in registration.COUNTED or versions[-1:] == (version,) or not (versions or version.expect):
        return
    problem = f"differ from those registered on {versions[-1].registered[:10]}" if versions else "are not registered"
    example = f"rlmem reproduce {shell(item)} --budget {planned.budget} --register"
    where = f"{item} at the budget {planned.budget}"
    raise mistake(where, f"its expectations {problem}; register them before its runs", example=example)


def registry(experiment: Experiment, item: str) -> Path:
    """The file that the expectations of an experiment, found as `item`, are registered in."""
    root = experiments_dir()
    folder = root if experiment.text is None and root is not None else Path(item).resolve().parent
    return folder / registration.FILE
