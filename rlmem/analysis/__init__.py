"""Analyses of trained agents: each reads a run directory and writes numbers, a table and a picture into it.

An analysis is a function `measure(run, *, ...options) -> Result` in a module of this package, or in the folder of the
experiment that it belongs to: `experiments/shm/shm.py` is `rlmem.analysis.shm`. Their options and documentation are
read from their files, which are imported only to make them.
"""

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlmem.config.messages import nearest, sentence, shell
from rlmem.config.paths import experiment_modules
from rlmem.core.declared import Option, read
from rlmem.core.errors import UserError, extra

__path__ += experiment_modules()

PACKAGES = ("matplotlib", "scipy", "sklearn")
"""The packages that pictures and scores need."""


@dataclass(frozen=True)
class Analysis:
    """An analysis, as its file declares it.

    target: the dotted name of its function
    purpose: the first line of the file
    needs_run: False if it can be made without a run, into a folder: its first argument may be None
    options: name -> option: its keyword-only arguments but for `seed`
    """

    target: str
    purpose: str
    needs_run: bool
    options: Mapping[str, Option]

    @property
    def measure(self) -> Callable[..., Any]:
        """The function, imported."""
        from rlmem.config.targets import locate

        return locate(self.target)


@cache
def analyses() -> dict[str, Analysis]:
    """The analyses that are shipped, by name."""
    folders = [str(Path(__file__).parent), *experiment_modules()]
    files = {name: Path(finder.path, f"{name}.py") for finder, name, _ in pkgutil.iter_modules(folders)}  # type: ignore[union-attr]
    declared = {name: _declared(file, f"rlmem.analysis.{name}.measure") for name, file in sorted(files.items())}
    return {name: analysis for name, analysis in declared.items() if analysis}


def find(name: str) -> Analysis:
    """An analysis by its name, or by the dotted name of its function. Raises UserError if there is none."""
    from rlmem.config.targets import locate

    known = analyses()
    if name in known:
        return known[name]
    if "." in name and (file := inspect.getsourcefile(locate(name))) and (analysis := _declared(Path(file), name)):
        return analysis
    near, example = nearest(name, known), "rlmem analyze my_module.my_analysis runs/my_run"
    raise UserError(sentence(f"analyze {name}", "no such analysis", near=near, accepted=known, example=example))


def require_options(analysis: str, options: Iterable[str]) -> None:
    """Raise UserError if there is no such analysis, or if it does not have one of the options."""
    accepted, where = list(find(analysis).options), f"analyze {analysis}"
    unknown = [name for name in options if name not in accepted]
    if unknown:
        said = [sentence(where, f"has no option `{n}`", near=nearest(n, accepted), accepted=accepted) for n in unknown]
        raise UserError(*said)


def _declared(file: Path, target: str) -> Analysis | None:
    """The analysis `package.module.function` in a file; None if the file has no such function."""
    declared = read(file, target.rpartition(".")[2])
    if declared is None or not declared.options or declared.options[0].is_flag:
        return None
    run, *options = declared.options
    flags = {option.name: option for option in options if option.is_flag and option.name != "seed"}
    return Analysis(target, declared.purpose, not run.nullable, flags)


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
    made_of = (None, None, seed or 0) if run is None else (str(run_dir), run.step, run.seed)
    return result.write(folder, what, *made_of)
