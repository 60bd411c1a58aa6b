"""Cards of agents, and what a repository holds of a run: data alone, and no path or host."""

import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from torch import Tensor

from rlmem.config.foreign import REACHING, foreign_problems
from rlmem.config.messages import shell, to_text
from rlmem.config.overrides import leaf_paths
from rlmem.config.schema import WRAPPER
from rlmem.core.errors import UserError, brief, first_line, printable
from rlmem.core.received import dumps, opened
from rlmem.evidence.metrics import range_of_key
from rlmem.evidence.statistics import Contrast, Range
from rlmem.record import rundir
from rlmem.record.provenance import FORMAT
from rlmem.run.evaluate import evaluate_run
from rlmem.run.trained import TrainedAgent

LOCAL = ("run_dir", "init_from", "logger", "callbacks")
"""Keys of a configuration that mean something on the machine of the run alone."""


TEMPLATES = Path(__file__).parent
"""The folder of the templates of cards."""


def rendered(template: str, **facts: Any) -> str:
    """The text of a template of this folder."""
    loader = FileSystemLoader(TEMPLATES)
    texts = Environment(
        loader=loader, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    return texts.get_template(template).render(task=task_of(facts), **facts)


def write_card(path: Path, facts: Mapping[str, Any]) -> None:
    """Write the card of the file `path` beside it, with the endings `.json` and `.md`."""
    rundir.write_atomically(path.with_name(f"{path.name}.json"), dumps(facts, indent=2) + "\n")
    rundir.write_atomically(card_of(path), rendered("card.md.jinja", **facts))


def card_of(path: Path) -> Path:
    """The card of an exported file, as text."""
    return path.with_name(f"{path.name}.md")


def facts_of(run_dir: Path, step: int, evaluation: Mapping[str, Any], license: str | None) -> dict[str, Any]:
    """What a card says of an agent: its run, what it earns, its licence. Nothing of it is a path of this machine.

    step: environment steps that the agent had learnt from
    license: of the weights; None: not stated
    evaluation: the row of eval.jsonl
    """
    config, about = rundir.read(run_dir)
    possible = range_of_key("return_mean", str(about["choices"]["env"]), to_text(list(config.get(WRAPPER, ()))))
    kinds = ("greedy", "sampled")
    return {
        "step": step,
        "license": license,
        "evaluation": {key: value for key, value in evaluation.items() if key != "run"},
        "returns": {kind: interval(evaluation[kind], evaluation["episodes"], possible) for kind in kinds},
        "run": {key: about.get(key) for key in ("rlmem", "git", "machine", "started", "choices")},
        "command": shell("rlmem", "train", *shared_overrides(about)),
        "config": {key: value for key, value in config.items() if key not in LOCAL},
        "warm_start": config.get("init_from") is not None,
    }


def shared_overrides(about: Mapping[str, Any]) -> list[str]:
    """The overrides in run.json that mean the same on every machine."""
    key = lambda line: line.lstrip("+~").partition("=")[0]  # noqa: E731
    return [
        line for line in about["overrides"] if key(line).partition(".")[0] not in LOCAL and key(line) not in REACHING
    ]


def evaluated(
    run_dir: Path, trust: bool, agent: TrainedAgent, which: int | str | None, episodes: int
) -> dict[str, Any]:
    """Evaluate the checkpoint `which` of a run, whose agent is `agent`; returns the row of eval.jsonl.

    Raises UserError if the run has written another checkpoint since.
    """
    row = evaluate_run(run_dir, episodes, None, ["device=cpu"], which, trust=trust, say=lambda line: None)
    if row["step"] != agent.step:
        problem = f"the checkpoint was of step {agent.step} and is of step {row['step']} now"
        raise UserError(f"{run_dir}: {problem}; e.g. --step {row['step']}, or again when the run has ended")
    return row


def interval(result: Mapping[str, Any], episodes: int, possible: Range) -> dict[str, float]:
    """The mean return of an evaluation with its t interval over the episodes; of one episode, there is none (NaN).

    possible: the returns that an episode can have, within which the interval stays
    """
    mean, variance = result["return_mean"], result["return_sem"] ** 2 * episodes
    low, high = Contrast(mean, (variance if episodes > 1 else math.nan,), (episodes,)).bounds(possible=possible)
    return {"mean": mean, "low": low, "high": high, "episodes": episodes}


def task_of(facts: Mapping[str, Any]) -> str:
    """The environment, as it is called on the command line."""
    return facts["evaluation"]["env"].get("id") or facts["run"]["choices"]["env"]


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
    about_repo = {"repo": repo, "typed": shell(repo), "name": repo.rpartition("/")[2], "place": PLACE}
    facts = facts_of(run_dir, step, row, license) | about_repo | {"code": foreign_values(shared)}
    texts = {
        "config.yaml": yaml.safe_dump(shared, sort_keys=False),
        "run.json": dumps(described, indent=2) + "\n",
        "eval.jsonl": dumps({key: value for key, value in row.items() if key not in ("run", "video")}) + "\n",
        "README.md": rendered("readme.md.jinja", **facts),
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
