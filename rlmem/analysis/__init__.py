"""Analyses of trained agents: each reads a run directory and writes numbers, a table and a picture into it.

An analysis is a module with `measure(run, *, ...options) -> Result`, imported when it is asked for.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlmem.config.messages import nearest, sentence, shell
from rlmem.errors import UserError, extra

ANALYSES = {
    "sensitivity": "which past observations the last value depends on",
    "ffm": "how long FFM's traces last, and the periods of its contexts",
    "shm": "SHM's calibration matrices, and what their product leaves",
    "hidden": "whether the memory's outputs cluster by the true state",
    "extrapolate": "the return at other lengths than in training",
    "impulse": "impulse responses of LP-RNN's pools",
    "markov": "whether values depend on lambda, as they do where memory is missing",
    "gradients": "how far back the gradient reaches, and where truncation cuts it",
    "recall": "where in the past the last value comes from, and what smears it",
    "demand": "whether values recall what the task demands",
    "contamination": "for how long one noisy frame changes values and actions",
    "multistability": "whether states stay apart under a long neutral input",
    "probe": "what a probe reads from the memory: past observations, the state",
}
"""The analyses, each a module of this package, with the question that it answers."""

WITHOUT_RUN = ("impulse",)
"""The analyses that need no run, only a folder to write into."""
PACKAGES = ("matplotlib", "scipy", "sklearn")
"""The packages that pictures and scores need."""


@dataclass(frozen=True)
class Summary:
    """What summary.json holds.

    analysis: the name of the analysis
    run: the run directory; None where no run was read
    step: the step of the checkpoint; None where no run was read
    seed: the root of the random streams
    metrics: numbers by name
    about: the settings of the analysis, and names
    files: the names of the files beside summary.json
    folder: where all of them are
    """

    analysis: str
    run: str | None
    step: int | None
    seed: int
    metrics: Mapping[str, float]
    about: Mapping[str, Any]
    files: tuple[str, ...]
    folder: Path

    def row(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {name: value for name, value in vars(self).items() if name != "folder"}


def analyze(
    what: str,
    run_dir: Path | None,
    step: int | str | None = None,
    seed: int | None = None,
    out: Path | None = None,
    trust: bool = False,
    **options: Any,
) -> Summary:
    """Make one analysis and write data.csv, summary.json, picture.png and picture.svg.

    what: one of ANALYSES
    run_dir: a run directory; None is accepted for the analyses in WITHOUT_RUN, if `out` is given
    step: which checkpoint, or "best"; None: the newest intact one
    seed: root of the streams of the episodes that are played; None: that of `rlmem eval`, and 0 without a run
    out: the folder to write into; None: <run_dir>/analysis/<what>
    trust: build what the configuration names, whoever wrote it
    options: keywords of the analysis' `measure`, such as `episodes`
    """
    where, measure = f"analyze {what}", _measure(what)
    require_options(what, options)
    if run_dir is None and (out is None or what not in WITHOUT_RUN):
        expected = f"expected a run{' or --out' if what in WITHOUT_RUN else ''}"
        raise UserError(sentence(where, expected, example=f"rlmem analyze {shell(what)} runs/my_run"))
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise UserError(f"analyze: needs {' and '.join(missing)}, which is not installed; e.g. {extra('report')}")
    from rlmem.analysis.loaded import load_run
    from rlmem.loops.base import one_thread
    from rlmem.stats.figures import style

    run = None if run_dir is None else load_run(run_dir, step, seed, trust)
    with one_thread(), style():
        result = measure(run, **options, **({} if run else {"seed": seed or 0}))
    folder = out or Path(run_dir or "") / "analysis" / what
    if run is None:
        return result.write(folder, what, None, None, seed or 0)
    return result.write(folder, what, str(run_dir), run.step, run.seed)


def options_of(what: str) -> list[str]:
    """The names of an analysis' options, without `seed`, which every analysis has."""
    parameters = inspect.signature(_measure(what)).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"]


def require_options(what: str, options: Iterable[str]) -> None:
    """Raise UserError if there is no such analysis, or if it does not have one of the options."""
    accepted, where = options_of(what), f"analyze {what}"
    unknown = [name for name in options if name not in accepted]
    if unknown:
        said = [sentence(where, f"has no option `{n}`", near=nearest(n, accepted), accepted=accepted) for n in unknown]
        raise UserError(*said)


def _measure(what: str) -> Callable[..., Any]:
    if what not in ANALYSES:
        near = nearest(what, ANALYSES)
        raise UserError(sentence(f"analyze {what}", "no such analysis", near=near, accepted=ANALYSES))
    return import_module(f"rlmem.analysis.{what}").measure
