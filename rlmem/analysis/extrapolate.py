"""Performance in episodes of other lengths, or on other levels, than in training."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlmem.acting.evaluate import Request, Scores, evaluate
from rlmem.acting.workers import closing
from rlmem.analysis.loaded import LoadedRun
from rlmem.analysis.output import Result
from rlmem.config.messages import sentence
from rlmem.config.overrides import parse
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.record.figures import COLOURS, figure
from rlmem.run.nodes import EVAL_ENVS, evaluation_node

OFFSETS = (0, 1, 2, 3, 4, 8, 16, 32)
"""Letters beyond the trained length n (Lu et al. 2024, arXiv:2405.17358, figure 14); n - floor(n / 2) is added."""
CORRIDORS = (0.5, 1, 1.5, 2, 3, 4)
"""Lengths of the T-maze's corridor, as multiples of the trained one."""
Z = 1.959964
"""Half-width of a 95 % interval in standard errors."""


def measure(run: LoadedRun, *, episodes: int = 100, over: str | None = None) -> Result:
    """Greedy returns, and shares of episodes won where the environment says so, for each value of one key of `env`.

    95 % intervals come from the standard error for mean returns, and are Wilson's for shares. Every value is evaluated
    as by `rlmem eval RUN env.KEY=VALUE`, on the same random streams.

    over: env.KEY=V1,V2,... instead of the usual lengths of a regular language or a T-maze
    """
    key, values = usual(run) if over is None else parsed(over)
    fixed = ["env.length=fixed"] if over is None and key == "env.n" else []
    most = run.config.settings.evaluation.max_steps
    rows: list[dict[str, Any]] = []
    for value in values:
        with closing(run.environment(min(episodes, EVAL_ENVS), [f"{key}={value}", *fixed])) as env:
            request = Request(episodes, Streams(run.seed), run.parts.device, most, print)
            rows.append({key: value, **row(evaluate(run.agent, env, request, greedy=True))})
    kinds = {"success": "success_rate", "return": "return_mean"}
    metrics = {f"{kind}/{r[key]}": float(r[name]) for kind, name in kinds.items() for r in rows if name in r}
    trained = run.config.values["env"].get(key.partition(".")[2])
    about = {"key": key, "values": list(values), "trained": trained, "episodes": episodes}
    return Result(metrics, rows, {"picture": picture(rows, key, str(trained), episodes)}, about)


def usual(run: LoadedRun) -> tuple[str, list[str]]:
    """The key and the values that suit a regular language or a T-maze. Raises UserError for other environments."""
    node = evaluation_node(run.config)
    if node["_target_"].endswith(".RegularLanguage"):
        n = node["n"]
        return "env.n", [str(length) for length in [n - n // 2, *(n + more for more in OFFSETS)] if length > 1]
    if node["_target_"].endswith(".TMaze"):
        lengths = [round(node["corridor_length"] * times) for times in CORRIDORS]
        return "env.corridor_length", [str(length) for length in dict.fromkeys(lengths) if length > 0]
    where = f"env={run.config.choices['env']}"
    raise UserError(sentence(where, "its lengths are not known", example="--over env.level=easy,medium,hard"))


def parsed(over: str) -> tuple[str, list[str]]:
    """Split env.key=v1,v2,... into the key and its values."""
    key, equals, values = over.partition("=")
    if not key.startswith("env.") or not equals or not all(values.split(",")):
        raise UserError(sentence(f"--over {over}", "expected env.KEY=V1,V2,...", example="--over env.n=13,25,50"))
    _, problems = parse([f"{key}={value}" for value in values.split(",")])
    if problems:
        raise UserError(*problems)
    return key, list(dict.fromkeys(values.split(",")))


def row(scores: Scores) -> dict[str, Any]:
    """Mean return and share of episodes won, each with its 95 % interval, which is NaN for a single return."""
    from scipy.stats import binomtest

    summary = scores.summary()
    mean, half = summary["return_mean"], Z * (summary["return_sem"] if len(scores.returns) > 1 else math.nan)
    row = {"length_mean": summary["length_mean"], "return_mean": mean}
    row |= {"return_low": mean - half, "return_high": mean + half}
    if scores.success is not None:
        interval = binomtest(int(scores.success.sum()), len(scores.success)).proportion_ci(method="wilson")
        row |= {"success_rate": summary["success_rate"], "success_low": interval.low, "success_high": interval.high}
    return row


def picture(rows: Sequence[dict[str, Any]], key: str, trained: str, episodes: int) -> Any:
    """A bar for each value; the trained one is dark."""
    kind, middle = ("success", "rate") if "success_rate" in rows[0] else ("return", "mean")
    label = "success rate" if kind == "success" else "mean return"
    centre, low, high = (np.array([row[f"{kind}_{part}"] for row in rows]) for part in (middle, "low", "high"))
    drawing, axes = figure(3.7)
    panel, at = axes[0, 0], range(len(rows))
    colours = [COLOURS[0] if row[key] == trained else COLOURS[5] for row in rows]
    panel.bar(at, centre, yerr=[centre - low, high - centre], color=colours, capsize=3)
    panel.bar(0, 0, color=COLOURS[0], label="as trained")
    panel.bar(0, 0, color=COLOURS[5], label="other")
    panel.set(xticks=at, xticklabels=[row[key] for row in rows], xlabel=key, ylabel=label)
    panel.set(title=f"greedy {label} of {episodes} episodes, 95 % interval")
    if kind == "success":
        panel.set_ylim(0, 1.05)
    panel.grid(axis="x", visible=False)
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return drawing
