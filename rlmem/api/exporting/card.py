"""The card of an exported agent: where it was trained, what it earns and how its file is called, as JSON and text."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlmem.api.runs import Run
from rlmem.api.trained import TrainedAgent
from rlmem.config.foreign import REACHING
from rlmem.config.messages import shell, to_text
from rlmem.config.schema import WRAPPER
from rlmem.errors import UserError
from rlmem.evidence.metrics import range_of_key
from rlmem.evidence.statistics import Contrast, Range
from rlmem.record import rundir
from rlmem.record.rundir import write_atomically
from rlmem.system.strictjson import dumps

LOCAL = ("run_dir", "init_from", "logger", "callbacks")
"""Keys of a configuration that mean something on the machine of the run alone."""


@dataclass(frozen=True)
class Card:
    """What an export adds to what its run says of itself.

    format: onnx or torch
    opset: the version of ONNX's operators; None for torch
    step: environment steps that the agent had learnt from
    license: of the weights; None: not stated
    evaluation: the row of eval.jsonl
    inputs, outputs: type and shape of each tensor by its name
    compared: over how much the file was compared with the agent, and how far it was from it
    milliseconds: of a call for one environment, on one thread of this machine's CPU
    """

    format: str
    opset: int | None
    step: int
    license: str | None
    evaluation: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    outputs: dict[str, dict[str, Any]]
    compared: dict[str, Any]
    milliseconds: float


def write_card(run: Run, path: Path, card: Card) -> None:
    """Write the card of the file `path` beside it, with the endings `.json` and `.md`."""
    facts = {"file": path.name, **asdict(card), **facts_of(run, card.step, card.evaluation, card.license)}
    write_atomically(path.with_name(f"{path.name}.json"), dumps(facts, indent=2) + "\n")
    write_atomically(card_of(path), _as_text(path, facts))


def card_of(path: Path) -> Path:
    """The card of an exported file, as text."""
    return path.with_name(f"{path.name}.md")


def facts_of(run: Run, step: int, evaluation: Mapping[str, Any], license: str | None) -> dict[str, Any]:
    """What a card says of an agent: its run, what it earns, its licence. Nothing of it is a path of this machine.

    step, license: as in `Card`
    evaluation: the row of eval.jsonl
    """
    config, about = rundir.read(run.path)
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


def evaluated(run: Run, agent: TrainedAgent, which: int | str | None, episodes: int) -> dict[str, Any]:
    """Evaluate the checkpoint `which` of a run, whose agent is `agent`; returns the row of eval.jsonl.

    Raises UserError if the run has written another checkpoint since.
    """
    row = run.evaluate(episodes, which=which, device="cpu")
    if row["step"] != agent.step:
        what = f"the checkpoint was of step {agent.step} and is of step {row['step']} now"
        raise UserError(f"{run.path}: {what}; e.g. --step {row['step']}, or again when the run has ended")
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


def introduction(facts: Mapping[str, Any]) -> list[str]:
    """The lines of a card about the agent: what it is, how it was trained, what it earns."""
    run, choices = facts["run"], facts["run"]["choices"]
    earned = [
        f"| {kind} | {found['mean']:.4g} [{found['low']:.4g}, {found['high']:.4g}] | {found['episodes']} |"
        if found["episodes"] > 1
        else f"| {kind} | {found['mean']:.4g} | 1 |"
        for kind, found in facts["returns"].items()
    ]
    return [
        f"# {choices['memory']}, {choices['algo']} on {task_of(facts)}",
        "",
        f"The greedy policy of an agent after {facts['step']:,} environment steps, trained by rlmem {run['rlmem']} "
        f"(commit {run['git'] or 'unknown'}):",
        "",
        f"    {facts['command']}",
        "",
        *(["It began with the weights of another run (`init_from`).", ""] if facts["warm_start"] else []),
        "| actions | mean return, 95 % interval | episodes |",
        "|---|---|---|",
        *earned,
        "",
        f"Licence of the weights: {facts['license'] or 'not stated'}.",
        "",
    ]


def _as_text(path: Path, facts: Mapping[str, Any]) -> str:
    tensors = [
        f"| {side} | `{name}` | {tensor['type']} | {', '.join(map(str, tensor['shape']))} |"
        for side in ("inputs", "outputs")
        for name, tensor in facts[side].items()
    ]
    compared = facts["compared"]
    kind = facts["format"] if facts["opset"] is None else f"ONNX, opset {facts['opset']}"
    actions = f"; {compared['actions']} of {compared['of']} actions differed" if compared["of"] else ""
    return "\n".join(
        [
            *introduction(facts),
            f"## {path.name}",
            "",
            f"{kind}. One call reads one slot of N environments. Where `start` is true, what the state holds is "
            "forgotten, so a first state may be zeros. The outputs `next_*` are the state of the next call.",
            "",
            "| | name | type | shape |",
            "|---|---|---|---|",
            *tensors,
            "",
            f"Compared with the agent over {compared['steps']} steps of {compared['environments']} environments: the "
            f"largest deviation was {compared['largest']:.1e}{actions}. A call for one environment took "
            f"{facts['milliseconds']:.3f} ms on one thread.",
            "",
        ]
    )
