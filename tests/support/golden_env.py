"""Recordings of the papers' own environments, frame by frame, with everything that they hid."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "data" / "env"


@dataclass
class Episode:
    """One recorded episode; arrays keep the names of the file. Frame 0 is what reset returned.

    common: the arrays of the file that belong to no episode
    """

    name: str
    params: dict[str, Any]
    arrays: dict[str, np.ndarray]
    common: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def __len__(self) -> int:
        return len(self["actions"])


def recordings(config: pytest.Config) -> list[Path]:
    """Return the recorded environment files of ours and of --golden-env."""
    folders = [FOLDER, *map(Path, config.getoption("golden_env"))]
    if empty := [str(folder) for folder in folders if not any(folder.glob("*.npz"))]:
        raise pytest.UsageError(f"--golden-env {', '.join(empty)}: no recordings (*.npz) there")
    return [path for folder in folders for path in sorted(folder.glob("*.npz"))]


@cache
def episodes(path: Path) -> list[Episode]:
    """All episodes of a file with an `index`."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    common = {name: value for name, value in arrays.items() if "/" not in name and name != "index"}
    found = []
    for entry in json.loads(str(arrays["index"])):
        prefix = f"{entry['episode']}/"
        own = {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
        found.append(
            Episode(
                f"{path.stem}-{entry['episode']}-{entry['source']}", json.loads(str(own.pop("params"))), own, common
            )
        )
    return found
