"""The experiments that are shipped: `experiments/<paper>/<item>.yaml`, named `<paper>/<item>`."""

from pathlib import Path

from rlmem.config.messages import nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.errors import UserError
from rlmem.reproduce.spec import Experiment, read

NOT_PAPERS = ("first_run", "published")
"""Folders of `experiments` that belong to no paper."""


def names() -> list[str]:
    """The names of the shipped experiments, sorted by paper and item."""
    root = experiments_dir()
    if root is None:
        return []
    files = (file.relative_to(root) for file in root.glob("*/*.yaml"))
    return sorted(file.with_suffix("").as_posix() for file in files if file.parts[0] not in NOT_PAPERS)


def find(item: str) -> tuple[str, Experiment]:
    """The name and the experiment of `<paper>/<item>`, or of a file of the user's own. Raises UserError."""
    root, known = experiments_dir(), names()
    if item.endswith((".yaml", ".yml")):
        path = Path(item).resolve()
        name = f"{path.parent.name}/{path.stem}"
        if name not in known or root is None:
            return name, read(Path(item), own=True)
        if path != (root / f"{name}.yaml").resolve():
            what = f"{name} is the name of a shipped experiment; rename the file or its folder"
            raise UserError(sentence(item, what, example=f"my_{path.name}"))
        item = name
    if root is None or item not in known:
        near = nearest(item, known) or nearest(item, [name.partition("/")[2] for name in known])
        shown = sorted({name.partition("/")[0] + "/..." for name in known})
        raise UserError(
            sentence(item, "no such experiment", near=near, accepted=shown, example="rlmem list experiment")
        )
    return item, read(root / f"{item}.yaml")
