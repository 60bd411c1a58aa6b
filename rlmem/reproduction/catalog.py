"""The experiments that are shipped: `experiments/<paper>/<item>.yaml`, named `<paper>/<item>`."""

from collections.abc import Sequence
from pathlib import Path

from rlmem.config.messages import nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.errors import UserError
from rlmem.reproduction.spec import Experiment
from rlmem.reproduction.spec_file import read

OTHERS = ("first_run", "papers", "published")
"""The folders beside those of experiments."""


def names(chosen: Sequence[str] = ()) -> list[str]:
    """The names of the shipped experiments, sorted by paper and item.

    chosen: these papers and items alone
    """
    root = experiments_dir()
    files = [file.relative_to(root) for file in root.glob("*/*.yaml")] if root else []
    every = sorted(f.with_suffix("").as_posix() for f in files if f.parts[0] not in OTHERS)
    return [name for name in every if not chosen or {name, name.partition("/")[0]} & {*chosen}]


def find(item: str) -> tuple[str, Experiment]:
    """The name and the experiment of `<paper>/<item>`, or of a file of the user's own. Raises UserError."""
    root, known, name = experiments_dir(), names(), item
    if item.endswith((".yaml", ".yml")):
        path = Path(item).resolve()
        name = f"{path.parent.name}/{path.stem}"
        if name not in known or root is None:
            return name, read(Path(item), own=True)
        if path != (root / f"{name}.yaml").resolve():
            what = f"{name} is the name of a shipped experiment; rename the file or its folder"
            raise UserError(sentence(item, what, example=f"my_{path.name}"))
    if root is None or name not in known:
        near = nearest(name, known) or nearest(name, [name.partition("/")[2] for name in known])
        shown = sorted({name.partition("/")[0] + "/..." for name in known})
        what, example = "no such experiment", "rlmem list experiment"
        raise UserError(sentence(item, what, near=near, accepted=shown, example=example))
    return name, read(root / f"{name}.yaml")
