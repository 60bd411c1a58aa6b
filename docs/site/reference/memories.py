"""A page for every memory: equation, state, cost, source, published forms, keys."""

import json
from collections import defaultdict
from functools import cache
from typing import Any, Literal, get_args, get_origin

from torch.utils._pytree import tree_leaves

from reference.docstrings import docstring
from reference.keys import key_table, node
from reference.markdown import ROOT, Page, code, commands, defined, file_of, prose, rows_of, sections, table
from rlmem.config.catalog import catalog
from rlmem.config.targets import annotation, build, locate, parameters
from rlmem.conformance import facts
from rlmem.core.errors import UserError
from rlmem.evidence.bench.skeleton import quotient
from rlmem.evidence.bench.timing import MIB

UP = "../../"
INPUT_SIZE = 128
"""Features that a memory reads, for the numbers of its page."""
MEASURED = "benchmarks/memory-2-cores.json"


def pages() -> dict[str, Page]:
    options = catalog()["memory"]
    every = {f"reference/memory/{name}.md": page(name, text) for name, text in options.items()}
    return {"reference/memory/index.md": index(options)} | every


def index(options: dict[str, str]) -> Page:
    listed = [(f"[`{name}`]({name}.md)", prose(text, UP)) for name, text in options.items()]
    said = (
        "`memory=NAME` chooses one; its keys are `memory.KEY=VALUE`. "
        f"[Choose a memory]({UP}memory.md) compares them, and says how to write your own."
    )
    return Page(sections("# Memories", said, table(("`memory=`", ""), listed)), "docs/memory.md")


def page(name: str, description: str) -> Page:
    found = node("memory", name)
    cls = locate(found["_target_"])
    row = rows_by_name().get(name, {})
    text = sections(
        f"# memory={name}",
        prose(f"{description}.", UP),
        commands(f"rlmem train memory={name} env=repeat_previous", f"rlmem check memory={name}"),
        ("The model", prose(docstring(cls).prose, UP)),
        ("Facts", table(("", ""), facts_of(found, row))),
        ("Measured", measured(name)),
        ("Published forms", published(found, row)),
        ("Keys", key_table("memory", name, UP)),
    )
    return Page(text, file_of(cls))


@cache
def rows_by_name() -> dict[str, dict[str, str]]:
    """The rows of the table of models in docs/memory.md, by the name of the option."""
    return {row["option"].strip("`"): row for row in rows_of("docs/memory.md", "option")}


def facts_of(found: dict[str, Any], row: dict[str, str]) -> list[tuple[str, str]]:
    """Where a model comes from, how large it is, and what it costs."""
    memory = build(found, input_size=INPUT_SIZE)
    known = facts(memory)
    shapes = [f"`[{', '.join(['B', *map(str, leaf.shape[1:])])}]` {_kind(leaf)}" for leaf in _leaves(memory)]
    return [
        ("class", defined(type(memory))),
        ("source", prose(row.get("model and source", ""), UP)),
        ("equation", row.get("equation", "")),
        ("state", "; ".join(dict.fromkeys(shapes)) or "none"),
        ("numbers of the state, per row", row.get("state") or f"{known['state']:,}"),
        (f"parameters, reading {INPUT_SIZE} features", f"{known['parameters']:,}"),
        ("training reads a row by", row.get("over time", "")),
        ("cost of training, per slot", row.get("training, per slot", "")),
        ("cost of a step of acting", row.get("step", "")),
        ("scan engine on this site's machine", code(known["engine"] or "")),
    ]


def _leaves(memory: Any) -> list[Any]:
    return tree_leaves(memory.initial_state(1))


def _kind(leaf: Any) -> str:
    return str(leaf.dtype).removeprefix("torch.")


def measured(name: str) -> str:
    """What training and acting took, beside `torch.nn.GRU`, from the benchmark that is shipped."""
    result = json.loads((ROOT / MEASURED).read_text(encoding="utf-8"))
    model, setting, machine = result["models"].get(name, {}), result["setting"], result["machine"]
    if "cells" not in model:
        return ""
    number = lambda value, digits: "-" if value is None else f"{value:,.{digits}f}"  # noqa: E731
    cells = [
        (
            f"{cell['episodes']:,} x {cell['length']:,}",
            code(cell["scheme"]),
            number(quotient(cell["seconds"], cell["peer_seconds"]), 2),
            number(quotient(cell["peak_bytes"], MIB), 0),
        )
        for cell in model["cells"]
    ]
    steps = [
        (
            f"{step['rows']:,}",
            number(step["seconds"] * 1e6 if step["seconds"] else None, 0),
            number(quotient(step["seconds"], step["peer_seconds"]), 2),
        )
        for step in model["latency"]
    ]
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    said = (
        f"On {where} with `threads={machine['threads']}`, D = {setting['input_size']}, H = {setting['hidden_size']}: "
        f"forward and backward, then steps of acting. [All numbers and their setting]({UP}benchmarks.md)."
    )
    training = table(("episodes x slots", "batching", "time / GRU", "tensors at the peak, MiB"), cells)
    return "\n\n".join([said, training, table(("rows", "step, µs", "step / GRU"), steps)])


def published(found: dict[str, Any], row: dict[str, str]) -> str:
    """Options that reproduce published code, and those that break the contract of memories as it does."""
    listed = "\n".join(f"- {prose(why, UP)} ({', '.join(map(code, names))})" for why, names in broken(found).items())
    said = f"These break the [contract]({UP}memory.md#the-contract) as the published code does:"
    forms = prose(row.get("published forms and departures", ""), UP)
    return "\n\n".join(part for part in (forms, f"{said}\n\n{listed}" if listed else "") if part)


def broken(found: dict[str, Any]) -> dict[str, list[str]]:
    """What an option of a model does that breaks the contract -> the properties that it breaks."""
    target, breaks = locate(found["_target_"]), defaultdict[str, list[str]](list)
    for key, parameter in parameters(target).items():
        kind = annotation(parameter, target)
        for value in get_args(kind) if get_origin(kind) is Literal else (True, False) if kind is bool else ():
            if key == "engine" or value == found.get(key):
                continue
            try:
                memory = build(found | {"hidden_size": 16, key: value}, input_size=16)
            except (UserError, ValueError):  # the value needs another key too
                continue
            for name, why in memory.breaks.items():
                breaks[why].append(name)
    return breaks
