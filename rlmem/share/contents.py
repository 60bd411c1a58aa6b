"""What a repository holds of a run: weights, description, evaluation and card. Data alone, and no path or host."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from rlmem.config.foreign import REACHING, foreign_problems
from rlmem.config.messages import shell
from rlmem.config.overrides import leaf_paths
from rlmem.core.errors import UserError, brief, first_line, printable
from rlmem.core.received import dumps, opened
from rlmem.record import rundir
from rlmem.record.provenance import FORMAT
from rlmem.share.card import LOCAL, facts_of, rendered, shared_overrides, task_of

WEIGHTS = "model.safetensors"
REQUIRED = ("config.yaml", "run.json", WEIGHTS)
FILES = (*REQUIRED, "eval.jsonl", "README.md")
"""The files that are pushed, and the only ones that are pulled."""

EXAMPLE = "e.g. one of `rlmem push`"
PLACE = "https://github.com/rlmem/rlmem"
ABOUT = ("choices", "overrides", "started", "rlmem", "git", "python", "versions", "machine")
"""Keys of run.json that are pushed: without the name of the host, its system and the command line."""


def contents(
    run_dir: Path, weights: Mapping[str, Tensor], step: int, row: Mapping[str, Any], repo: str, license: str | None
) -> dict[str, bytes]:
    """The files of a repository.

    weights: of the agent
    step: environment steps that it has learnt from
    row: its evaluation, a row of eval.jsonl
    repo: the name of the repository, for the card
    license: of the weights; None: not stated
    """
    config, about = rundir.read(run_dir)
    shared = shared_config(config)
    described = {key: about[key] for key in ABOUT if key in about} | {"overrides": shared_overrides(about)}
    described = {"format": FORMAT} | described
    facts = facts_of(run_dir, step, row, license)
    texts = {
        "config.yaml": yaml.safe_dump(shared, sort_keys=False),
        "run.json": dumps(described, indent=2) + "\n",
        "eval.jsonl": dumps({key: value for key, value in row.items() if key not in ("run", "video")}) + "\n",
        "README.md": _readme(facts, shared, repo),
    }
    return {WEIGHTS: pack(weights, step), **{name: text.encode() for name, text in texts.items()}}


def shared_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what means something on the machine of the run alone, and without its seal."""
    shared = deepcopy(dict(config))
    for key in LOCAL:
        shared[key] = {} if isinstance(shared.get(key), dict) else None
    for path in REACHING:
        group, _, key = path.partition(".")
        if isinstance(shared.get(group), dict) and key in shared[group]:
            shared[group][key] = None
    return shared


def foreign_values(config: Mapping[str, Any]) -> list[str]:
    """`key=value` of what needs trust in a configuration from somebody else: code, folders and servers outside it."""
    values = dict(leaf_paths(config, lists=True))
    return [printable(brief(f"{path}={values[path]}")) for path in foreign_problems(config)]


def pack(weights: Mapping[str, Tensor], step: int) -> bytes:
    """An agent as a file of safetensors, which cannot hold code. Raises UserError for what is no tensor."""
    from safetensors.torch import save

    if others := [name for name, value in weights.items() if not isinstance(value, Tensor)]:
        raise UserError(f"cannot be pushed: the agent's state {others[0]} is no tensor; e.g. make it a buffer")
    own = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}  # none share memory
    return save(own, {"format": "pt", "step": str(step)})


def unpack(path: Path) -> tuple[dict[str, Tensor], int]:
    """The agent in a file that `pack` made, and its step. Raises UserError for any other file."""
    from safetensors import SafetensorError, safe_open

    try:
        with opened(path), safe_open(path, "pt") as file:
            step = int((file.metadata() or {})["step"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, LookupError, ValueError, MemoryError) as error:
        raise UserError(f"{path}: holds no agent of rlmem ({first_line(error)[:200]}); {EXAMPLE}") from error
    if not 0 <= step < 10**12:
        raise UserError(f"{path}: holds no agent of rlmem (step {step}); {EXAMPLE}")
    return weights, step


def _readme(facts: Mapping[str, Any], shared: Mapping[str, Any], repo: str) -> str:
    """The card of a repository, with the header that the Hub reads."""
    from huggingface_hub import EvalResult, ModelCardData

    choices, name = facts["run"]["choices"], repo.rpartition("/")[2]
    greedy = facts["returns"]["greedy"]
    header = ModelCardData(
        license=facts["license"],
        library_name="rlmem",
        pipeline_tag="reinforcement-learning",
        tags=["reinforcement-learning", "pomdp", "memory", *dict.fromkeys([choices["memory"], choices["algo"]])],
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="reinforcement-learning",
                dataset_name=task_of(facts),
                dataset_type=task_of(facts),
                metric_type="mean_reward",
                metric_name=f"mean return of {greedy['episodes']} greedy episodes",
                metric_value=round(greedy["mean"], 6),
            )
        ],
    )
    about_repo = {"place": PLACE, "repo": repo, "typed": shell(repo), "name": name, "code": foreign_values(shared)}
    return rendered("readme.md.jinja", header=header.to_yaml(), **about_repo, **facts)
