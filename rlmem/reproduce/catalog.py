"""The experiments that are shipped: `experiments/<paper>/<item>.yaml`, named `<paper>/<item>`.

Of one that is not shipped a copy is kept as <root>/<paper>/<item>.yaml beside what was run of it, so that a report of
<root> knows what was claimed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rlmem.config.messages import nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.errors import UserError
from rlmem.reproduce.spec import Experiment, owner_file, read

NOT_PAPERS = ("first_run", "published")
"""Folders of other files."""


def names() -> list[str]:
    """The shipped experiments in the order of papers and items."""
    root = experiments_dir()
    if root is None:
        return []
    files = (file.relative_to(root) for file in root.glob("*/*.yaml"))
    return sorted(file.with_suffix("").as_posix() for file in files if file.parts[0] not in NOT_PAPERS)


def find(item: str) -> tuple[str, Experiment]:
    """The name and the experiment of `<paper>/<item>`, or of a file of one's own. Raises UserError."""
    if is_own(item):
        return _name(Path(item)), read(Path(item))
    root, known = experiments_dir(), names()
    if root is None or item not in known:
        near = nearest(item, known) or nearest(item, [name.partition("/")[2] for name in known])
        shown = sorted({name.partition("/")[0] + "/..." for name in known})
        raise UserError(
            sentence(item, "no such experiment", near=near, accepted=shown, example="rlmem list experiment")
        )
    return item, read(root / f"{item}.yaml")


def is_own(item: str) -> bool:
    """Whether an item is a file rather than the name of what is shipped."""
    return item.endswith((".yaml", ".yml"))


def keep(file: Path, root: Path) -> None:
    """Put a copy of an experiment of one's own, and of the one whose runs it shares, where `kept` finds it.

    Raises UserError if that fails.
    """
    owner = owner_file(file)
    try:
        for path in [file, *([owner] if owner and _name(owner) not in names() else [])]:
            copy = root / f"{_name(path)}.yaml"
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.resolve() != copy.resolve():
                shutil.copyfile(path, copy)
    except OSError as error:
        raise UserError(f"{root}: cannot be written ({error.strerror}); e.g. --dir /tmp/reproduce") from error


def kept(name: str, beside: Path) -> str | None:
    """What `find` finds an experiment by whose results lie at <root>/<paper>/...: its copy's path, or its name.

    None if it is neither kept nor shipped.
    """
    folder = beside.parent if beside.parent.name else beside.resolve().parent
    copy = folder / f"{Path(name).name}.yaml"
    return str(copy) if copy.is_file() else name if name in names() else None


def _name(file: Path) -> str:
    return f"{file.resolve().parent.name}/{file.stem}"
