"""`rlmem list env`: what every environment tests, its spaces, and the mean returns of known players."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from gymnasium import Space, spaces

from rlmem.config.catalog import description, node_of, options
from rlmem.config.targets import annotation, build, locate, makes, parameters
from rlmem.core.errors import UserError
from rlmem.core.spaces import is_tree, leaves
from rlmem.run.nodes import KINDS

PLAYERS = ("random", "memoryless", "oracle")


@dataclass
class TaskRow:
    """One option of conf/env at one level, or on one backend. Scores are mean returns; None: they are unknown.

    `recall` is how many slots back what must be recalled lies, at least and at most: "0" where nothing
    need be recalled, "-" where nobody knows.
    """

    name: str
    level: str | None
    description: str
    tests: str = ""
    source: str = ""
    observation: str = ""
    action: str = ""
    steps: str = ""
    recall: str = ""
    random: float | None = None
    memoryless: float | None = None
    oracle: float | None = None
    backend: str | None = None


def rows(lines: Sequence[str] = (), names: Sequence[str] = ()) -> list[TaskRow]:
    """A row for every option and level, with the folders in `lines`; what cannot be built has only a description.

    An option without levels has a row for each of its backends, the default first.

    names: these options alone
    """
    table = []
    for file in (file for name, file in sorted(options(lines)["env"].items()) if not names or name in names):
        node = {key: value for key, value in node_of(file).items() if key != "evaluation"}
        first, env = _row(file, node)
        levels = getattr(env, "levels", ()) if "level" in node else ()
        others = _other_backends(node) if env is not None else []
        table += [_row(file, node | {"level": level})[0] for level in levels] or [first]
        table += [row for row in (_row(file, node | {"backend": backend})[0] for backend in others) if row.observation]
    return table


def _other_backends(node: dict[str, Any]) -> list[str]:
    """The other values of the key `backend` of an option that has no levels."""
    target = locate(str(node.get("_target_"))) if "backend" in node and "level" not in node else None
    if target is None or "backend" not in parameters(target):
        return []
    accepted = annotation(parameters(target)["backend"], target)
    return [other for other in get_args(accepted) if get_origin(accepted) is Literal and other != node["backend"]]


def _row(file: Path, node: dict[str, Any]) -> tuple[TaskRow, Any]:
    level, backend = (None if node.get(key) is None else str(node[key]) for key in ("level", "backend"))
    row = TaskRow(file.stem, level, description(file), backend=backend)
    if "???" in node.values():  # the user names the environment
        return row, None
    try:
        if not makes(locate(str(node.get("_target_"))), KINDS):  # a list calls nothing else
            return row, None
        env = build(node | ({"num_envs": 1} if "num_envs" in node else {}))
    except (ImportError, UserError, ValueError):  # its package is not installed, or the backend does not have it
        return row, None
    row.observation, row.action = short(env.single_observation_space), short(env.single_action_space)
    if hasattr(env, "scores"):
        row.tests, row.source = env.tests, env.source
        least, most = env.episode_steps()
        row.steps = str(most) if least == most else f"{least}-{most}"
        horizons = env.horizons()
        row.recall = "-" if horizons is None else "-".join(map(str, dict.fromkeys(horizons)))
        for player in PLAYERS:
            score = getattr(env.scores(), player)
            setattr(row, player, None if math.isnan(score) else score)
    env.close()
    return row, env


def short(space: Space) -> str:
    """`4` (one of four), `4,4` (two of four each), `R3` (three numbers), `3x5x5` (an image)."""
    if isinstance(space, spaces.Discrete):
        return str(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.tolist()
        return f"{sizes[0]}^{len(sizes)}" if len(sizes) > 2 and len(set(sizes)) == 1 else ",".join(map(str, sizes))
    if is_tree(space):
        return "; ".join(f"{name} {short(leaf)}" for name, leaf in leaves(space).items())
    shape = space.shape or ()
    return f"R{shape[0]}" if len(shape) == 1 else "x".join(map(str, shape))
