"""The card of an exported agent: where it was trained, what it earns and how its file is called, as JSON and text."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from rlmem.api.runs import Run
from rlmem.record import rundir
from rlmem.record.rundir import write_atomically


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
    (config, about), row = rundir.read(run.path), card.evaluation
    facts = {
        "file": path.name,
        **asdict(card),
        "returns": {kind: interval(row[kind], row["episodes"]) for kind in ("greedy", "sampled")},
        "run": {key: about.get(key) for key in ("rlmem", "git", "machine", "started", "choices", "overrides")},
        "config": config,
    }
    write_atomically(path.with_suffix(".json"), json.dumps(facts, indent=2, default=str) + "\n")
    write_atomically(path.with_suffix(".md"), _as_text(path, facts))


def interval(result: Mapping[str, Any], episodes: int) -> dict[str, float]:
    """The mean return of an evaluation with its 95 % interval, Student's t over the episodes."""
    mean = result["return_mean"]
    half = float(stdtrit(episodes - 1, 0.975)) * result["return_sem"] if episodes > 1 else float("nan")
    return {"mean": mean, "low": mean - half, "high": mean + half, "episodes": episodes}


def _as_text(path: Path, facts: Mapping[str, Any]) -> str:
    run, choices = facts["run"], facts["run"]["choices"]
    task = facts["evaluation"]["env"].get("id") or choices["env"]
    earned = [
        f"| {kind} | {found['mean']:.4g} [{found['low']:.4g}, {found['high']:.4g}] | {found['episodes']} |"
        for kind, found in facts["returns"].items()
    ]
    tensors = [
        f"| {side} | `{name}` | {tensor['type']} | {tensor['shape']} |"
        for side in ("inputs", "outputs")
        for name, tensor in facts[side].items()
    ]
    compared = facts["compared"]
    kind = facts["format"] if facts["opset"] is None else f"ONNX, opset {facts['opset']}"
    actions = f"; {compared['actions']} of {compared['of']} actions differed" if compared["of"] else ""
    command = " ".join(["rlmem train", *run["overrides"]])
    return "\n".join(
        [
            f"# {choices['memory']}, {choices['algo']} on {task}",
            "",
            f"The greedy policy of an agent after {facts['step']:,} environment steps, trained by rlmem {run['rlmem']} "
            f"(commit {run['git'] or 'unknown'}):",
            "",
            f"    {command}",
            "",
            "| actions | mean return, 95 % interval | episodes |",
            "|---|---|---|",
            *earned,
            "",
            f"Licence of the weights: {facts['license'] or 'not stated'}.",
            "",
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
