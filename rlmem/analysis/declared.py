"""What analyses there are: their options and documentation, read from their files without importing these."""

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlmem.config.messages import nearest, sentence
from rlmem.config.paths import experiment_modules
from rlmem.core.declared import Option, read
from rlmem.core.errors import UserError


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
    found = {name: _declared(file, f"rlmem.analysis.{name}.measure") for name, file in sorted(files.items())}
    return {name: analysis for name, analysis in found.items() if analysis}


def find(what: str) -> Analysis:
    """An analysis by its name, or by the dotted name of its function. Raises UserError if there is none."""
    from rlmem.config.targets import locate

    known = analyses()
    if what in known:
        return known[what]
    if "." in what and (file := inspect.getsourcefile(locate(what))) and (analysis := _declared(Path(file), what)):
        return analysis
    near, example = nearest(what, known), "rlmem analyze my_module.my_analysis runs/my_run"
    raise UserError(sentence(f"analyze {what}", "no such analysis", near=near, accepted=known, example=example))


def require_options(what: str, options: Iterable[str]) -> None:
    """Raise UserError if there is no such analysis, or if it does not have one of the options."""
    accepted, where = list(find(what).options), f"analyze {what}"
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
