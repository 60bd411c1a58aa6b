"""Trees of arrays, as vectors of environments return them: some of their rows, and their parts that hold no numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from torch.utils._pytree import tree_leaves, tree_map


def put_rows(obs: Any, rows: np.ndarray, other: Any) -> Any:
    """`obs`, a tree of arrays [N, ...], with the `rows` of `other`."""

    def chosen(mine: Any, theirs: Any) -> np.ndarray:
        mine = np.array(mine)
        mine[rows] = np.asarray(theirs)[rows]
        return mine

    return tree_map(chosen, obs, other)


def put_infos(infos: Mapping[str, Any], rows: np.ndarray, other: Mapping[str, Any]) -> dict[str, Any]:
    """Infos in Gymnasium's form, `name` and where it is known, `_name`, whose `rows` are those of `other` alone."""
    found = dict(infos)
    for name in found:
        if name.startswith("_") and isinstance(found[name], np.ndarray):
            found[name] = found[name] & ~rows
    for name, theirs in other.items():
        known = other.get(f"_{name}")
        if name.startswith("_") or known is None:
            continue
        where = rows & known
        if isinstance(theirs, Mapping):
            found[name] = put_infos(found.get(name, {}), rows, theirs)
        elif name in found:
            found[name] = np.where(where.reshape(-1, *[1] * (np.ndim(theirs) - 1)), theirs, found[name])
        else:
            found[name] = theirs
        found[f"_{name}"] = found.get(f"_{name}", np.zeros_like(rows)) | where
    return found


def arrays(obs: Any, space: Any) -> Any:
    """Observations of N environments as a tree of arrays [N, ...]; what is no array, such as texts, as objects [N]."""
    if isinstance(space, spaces.Dict) and isinstance(obs, Mapping):
        return {name: arrays(part, space.spaces.get(name)) for name, part in obs.items()}
    if not isinstance(obs, tuple):
        return obs
    if isinstance(space, spaces.Tuple):
        return tuple(arrays(*pair) for pair in zip(obs, space, strict=True))
    return np.fromiter(obs, object, len(obs))


def numeric_leaves(obs: Any) -> list[np.ndarray]:
    """The leaves of a tree of arrays that hold numbers, not objects."""
    return [leaf for leaf in map(np.asarray, tree_leaves(obs)) if leaf.dtype != object]


def alike(obs: Any, before: Any, rows: np.ndarray) -> bool:
    """Whether `rows` of the numbers in two trees of arrays [N, ...] are equal; an unread NaN equals itself."""
    pairs = zip(numeric_leaves(obs), numeric_leaves(before), strict=True)
    return all(np.array_equal(a[rows], b[rows], equal_nan=a.dtype.kind == "f") for a, b in pairs)
