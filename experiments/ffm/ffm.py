"""Decay times of the traces of Fast and Forgetful Memory (FFM), and periods of its contexts."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.analysis.loaded import LoadedRun
from rlmem.analysis.output import Result
from rlmem.core.errors import UserError
from rlmem.memory.ffm import FFM
from rlmem.record.figures import COLOURS, figure
from rlmem.run.assemble import assemble

Times = dict[str, NDArray[np.float64]]
"""t_alpha [m] of the traces and t_omega [c] of the contexts, in slots."""


def measure(run: LoadedRun, *, beta: float = 0.1) -> Result:
    """Decay times and periods (Morad et al. 2023, arXiv:2310.04128, eq. 25 and figure 6).

        t_alpha = log(beta) / a: slots until a trace keeps beta of what it held;   t_omega = 2 pi / |b|

    They are measured at every checkpoint that is kept, and at initialisation, shown at step 0: a memory as the
    configuration builds it, before `init_from` replaced its weights. The metrics are those of the chosen checkpoint.

    beta: remaining fraction of a trace
    """
    if not 0 < beta < 1:
        problem = "is no fraction; expected one above 0 and below 1"
        raise UserError(f"beta={beta} {problem}; e.g. 0.1")
    as_made = assemble(run.config, num_envs=1)
    as_made.env.close()
    at, last = {0: times(replace(run, parts=as_made), beta)}, run.step
    for step in run.steps():
        run.load(step)
        at[step] = times(run, beta)
    run.load(last)
    metrics = {}
    for when, by_memory in (("", at[last]), ("_initially", at[0])):
        for memory, its in by_memory.items():
            prefix = "" if len(by_memory) == 1 else f"{memory}/"
            for name, values in its.items():
                for kind, reduce in (("min", np.min), ("median", np.median), ("max", np.max)):
                    metrics[f"{prefix}{name}_{kind}{when}"] = float(reduce(values))
    rows = [
        {"step": step, "memory": memory, "time": name, "index": i, "slots": float(value)}
        for step, by_memory in at.items()
        for memory, its in by_memory.items()
        for name, values in its.items()
        for i, value in enumerate(values)
    ]
    about = {"beta": beta, "steps": list(at), "memories": list(at[0])}
    return Result(metrics, rows, {"picture": picture(at, beta)}, about)


def times(run: LoadedRun, beta: float) -> dict[str, Times]:
    """The times of each memory, from the clipped parameters that its recurrence uses, as positive numbers."""
    by_memory: dict[str, Times] = {}
    for name, memory in run.memories(FFM, "ffm").items():
        decay, turn = (part.detach().double().flatten().numpy() for part in memory.log_gamma())
        with np.errstate(divide="ignore"):
            by_memory[name] = {"t_alpha": log(beta) / decay, "t_omega": 2 * np.pi / np.abs(turn)}
    return by_memory


def picture(at: dict[int, dict[str, Times]], beta: float) -> Any:
    """Every trace and every context as a line over the steps."""
    drawing, axes = figure(5.8, 2, sharex=True)
    titles = {
        "t_alpha": f"traces: slots until {beta:g} is left, t_α = log β / a",
        "t_omega": "contexts: period t_ω = 2π / |b|",
    }
    for panel, (name, title) in zip(axes[:, 0], titles.items(), strict=True):
        for colour, memory in zip(COLOURS, at[0], strict=False):
            lines = np.array([by_memory[memory][name] for by_memory in at.values()])
            panel.plot(list(at), lines, "o-", color=colour, ms=4, lw=1, alpha=0.7)[0].set_label(memory)
        panel.set(yscale="log", ylabel="slots", title=title)
    if len(at[0]) > 1:
        axes[0, 0].legend()
    axes[1, 0].set(xlabel="environment steps (0: as initialised)")
    return drawing
