"""The card of an exported agent: where it was trained, what it earns and how its file is called, as JSON and text."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rlmem.config.foreign import REACHING
from rlmem.config.messages import shell, to_text
from rlmem.config.schema import WRAPPER
from rlmem.core.errors import UserError
from rlmem.core.received import dumps
from rlmem.evidence.metrics import range_of_key
from rlmem.evidence.statistics import Contrast, Range
from rlmem.record import rundir
from rlmem.record.rundir import write_atomically
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
    write_atomically(path.with_name(f"{path.name}.json"), dumps(facts, indent=2) + "\n")
    write_atomically(card_of(path), rendered("card.md.jinja", **facts))


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
        what = f"the checkpoint was of step {agent.step} and is of step {row['step']} now"
        raise UserError(f"{run_dir}: {what}; e.g. --step {row['step']}, or again when the run has ended")
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
