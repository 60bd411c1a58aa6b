"""Analyses of trained agents: each reads a run directory and writes numbers, a table and a picture into it.

An analysis is a function `measure(run, *, ...options) -> Result` in a module of this package, or in the folder of the
experiment that it belongs to: `experiments/shm/shm.py` is `rlmem.analysis.shm`. `declared` finds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlmem.analysis.declared import analyses, find, require_options
from rlmem.config.messages import sentence, shell
from rlmem.config.paths import experiment_modules
from rlmem.core.errors import UserError, extra

__all__ = ["Summary", "analyses", "analyze", "require_options"]
__path__ += experiment_modules()

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

    what: one of `analyses()`, or the dotted name of a function of your own
    run_dir: a run directory; None is accepted for the analyses that need none, if `out` is given
    step: which checkpoint, or "best"; None: the newest intact one
    seed: root of the streams of the episodes that are played; None: that of `rlmem eval`, and 0 without a run
    out: the folder to write into; None: <run_dir>/analysis/<what>
    trust: build what the configuration names, whoever wrote it
    options: keywords of the analysis' function, such as `episodes`
    """
    where, analysis = f"analyze {what}", find(what)
    require_options(what, options)
    if run_dir is None and (out is None or analysis.needs_run):
        expected = f"expected a run{'' if analysis.needs_run else ' or --out'}"
        raise UserError(sentence(where, expected, example=f"rlmem analyze {shell(what)} runs/my_run"))
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise UserError(f"analyze: needs {' and '.join(missing)}, which is not installed; e.g. {extra('report')}")
    from rlmem.acting.collector import one_thread
    from rlmem.analysis.loaded import load_run
    from rlmem.record.figures import style

    run = None if run_dir is None else load_run(run_dir, step, seed, trust)
    try:
        with one_thread(), style():
            result = analysis.measure(run, **options, **({} if run else {"seed": seed or 0}))
    except UserError as error:
        raise UserError(*(f"{where}: {problem}" for problem in error.problems)) from error
    folder = out or Path(run_dir or "") / "analysis" / what
    if run is None:
        return result.write(folder, what, None, None, seed or 0)
    return result.write(folder, what, str(run_dir), run.step, run.seed)
