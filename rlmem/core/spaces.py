"""Gymnasium spaces: which ones encoders can read, and how policy actions become environment actions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.core.errors import Fault

READABLE = (
    "Box of one dimension, image Box ([C, H, W], [H, W, C] or [H, W]), Discrete, MultiDiscrete, MultiBinary, or a Dict "
    "or Tuple of any Box, Discrete, MultiDiscrete or MultiBinary"
)

ACTION_MASK = "action_mask"
"""The leaf of an observation that says which actions are allowed."""
OBSERVATION = "observation"
"""The leaf that an observation of one part becomes beside an action mask."""
PRIVILEGED = "privileged"
"""The leaf in which native games show their full state."""
UNSEEN = (ACTION_MASK, PRIVILEGED)
"""The parts of a tree, wherever they are in it, that an encoder reads only if it names them."""


def is_readable(space: Space) -> bool:
    """Whether an encoder can read observations of `space`."""
    if is_tree(space):
        return bool(parts := leaves(space)) and all(map(_is_readable_leaf, parts.values()))
    return is_flat(space) or is_image(space) or isinstance(space, spaces.MultiBinary)


def _is_readable_leaf(space: Space) -> bool:
    box = isinstance(space, spaces.Box | spaces.MultiBinary) and np.dtype(space.dtype).kind in "biuf"
    return box or (not isinstance(space, spaces.Box) and is_flat(space))


def is_tree(space: Space) -> bool:
    """Whether elements of `space` have parts, which are called leaves."""
    return isinstance(space, spaces.Dict | spaces.Tuple)


def leaves(space: Space) -> dict[str, Space]:
    """The leaves of a Dict or Tuple, however nested, by their paths, such as `camera` or `arm/0`."""
    return by_path(space)


def by_path(tree: Any, space: Space | None = None) -> dict[str, Any]:
    """The leaves of nested mappings and tuples by their paths. Raises ValueError if two paths are the same.

    space: what `tree` is an element of, or many of them; None: every tuple has leaves, also one that is a text for each
        environment
    """
    pairs = list(_walk(tree, "", space))
    if len(leaf_by_path := dict(pairs)) < len(pairs):
        raise ValueError(f"two parts of the observation have one path, of: {', '.join(path for path, _ in pairs)}")
    return leaf_by_path


def _walk(tree: Any, path: str, space: Space | None) -> Iterator[tuple[str, Any]]:
    parts: Iterable[tuple[Any, Any]] | None = None
    if space is None or is_tree(space):
        if isinstance(tree, Mapping | spaces.Dict):
            parts = tree.items()
        elif isinstance(tree, tuple | spaces.Tuple):
            parts = enumerate(tree)
    if parts is None:
        yield path, tree
        return
    for key, part in parts:
        within = None if space is None else space[key]  # type: ignore[index]
        yield from _walk(part, f"{path}/{key}" if path else str(key), within)


def chosen(
    names: Sequence[str], include: Sequence[str] | None, exclude: Sequence[str] = (), strict: bool = True
) -> list[str]:
    """The leaves that are read.

    names: of all leaves
    include: paths, parts of the tree, or patterns such as `arm/*`; None: all leaves. What is in one of the parts
        `UNSEEN` is left out by both, unless an entry names that part
    exclude: likewise, what to leave out of these
    strict: whether every entry must fit a leaf

    Raises ValueError for an entry that must and does not, and if none is left.
    """
    for entry in (*(include or ()), *exclude):
        if strict and not any(_fits(name, entry) for name in names):
            raise ValueError(f"`{entry}` is no part of the observation, which has: {', '.join(names)}")
    entries = ("*",) if include is None else include
    wanted = {name for name in names for entry in entries if _fits(name, entry) and _unseen(name) <= _unseen(entry)}
    matching = [name for name in names if name in wanted and not any(_fits(name, entry) for entry in exclude)]
    if not matching:
        raise ValueError(f"no part of the observation is left to read, of: {', '.join(names)}")
    return matching


def _fits(name: str, entry: str) -> bool:
    return name == entry or name.startswith(f"{entry}/") or fnmatchcase(name, entry)


def _unseen(path: str) -> set[str]:
    return {*path.split("/")}.intersection(UNSEEN)


def is_flat(space: Space) -> bool:
    """Whether elements of `space` are single numbers or rows of them."""
    if isinstance(space, spaces.Box):
        return len(space.shape) == 1
    return isinstance(space, spaces.Discrete) or (isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1)


def is_image(space: Space) -> bool:
    """Whether elements of `space` are grey images [H, W] or images with channels first or last."""
    return isinstance(space, spaces.Box) and len(space.shape) in (2, 3)


def channels_first(space: spaces.Box) -> bool:
    """Whether an image's channels come first: they are on the shorter outer axis, or on the first if both are equal."""
    return space.shape[0] <= space.shape[-1]


def readable_type(space: Space) -> np.dtype[Any]:
    """The type in which observations of `space` are stored and read: its own, or the next that torch computes with."""
    dtype = np.dtype(space.dtype).newbyteorder("=")
    if dtype.kind == "u" and dtype.itemsize > 1:
        return np.dtype(np.int32 if dtype.itemsize == 2 else np.int64)
    return np.dtype(np.float64) if dtype == np.longdouble else dtype


def no_action(space: Space, num_envs: int) -> Tensor:
    """The previous action [N, ...] on an episode's first slot, of the type that policies act in."""
    dtype = torch.float32 if isinstance(space, spaces.Box) else torch.int64
    return torch.zeros((num_envs, *(space.shape or ())), dtype=dtype)


def to_env(space: Space) -> Callable[[np.ndarray], np.ndarray]:
    """The map from a policy's actions [N, ...] to those of an environment with action space `space`.

    Discrete policies count from zero. Continuous policies act in [-1, 1]. A component of a Box with two finite bounds
    is clipped to [-1, 1] and mapped to the bounds; a whole number between bounds has an equal part of [-1, 1]. Any
    other component is taken as it is, rounded if it is a whole number, and clipped to the bound that it has. So every
    action is in the space and rises with the policy's. Of more than 2^53 whole numbers, some are left out.

    The map raises Fault for an action that is not a number, or outside a discrete space.
    """
    convert, dtype = in_env(space), np.dtype(space.dtype)
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    else:
        low, high = space.start, space.start + getattr(space, "n", getattr(space, "nvec", 0)) - 1  # type: ignore[attr-defined]

    def checked(action: np.ndarray) -> np.ndarray:
        converted = convert(torch.from_numpy(action)).numpy().astype(dtype, copy=False)
        inside = (converted >= low) & (converted <= high) & (action == action)
        if np.count_nonzero(inside) < inside.size:
            environment = int(np.argwhere(~inside)[0, 0])
            fault = f"environment {environment}: the agent's action {action[environment].tolist()} does not fit {space}"
            raise Fault(
                f"{fault}; its weights or the state of its memory may not be finite; e.g. an earlier checkpoint"
            )
        return converted

    return checked


def in_env(space: Space) -> Callable[[Tensor], Tensor]:
    """The map of `to_env` for tensors, without its check."""
    if isinstance(space, spaces.Box):
        return _in_integers(space) if np.dtype(space.dtype).kind in "iub" else _in_floats(space)
    dtype, start = _torch_type(space.dtype), torch.as_tensor(np.asarray(space.start, np.int64))  # type: ignore[attr-defined]
    return lambda action: (action + start).to(dtype)


def _in_floats(space: spaces.Box) -> Callable[[Tensor], Tensor]:
    """The map to a Box of floats: low + (a + 1) * (high - low) / 2, a quarter of it so that nothing overflows."""
    dtype = np.float64 if np.dtype(space.dtype).itemsize > 4 else np.float32
    largest = np.finfo(readable_type(space)).max
    low, high = (torch.from_numpy(np.clip(bound, -largest, largest).astype(dtype)) for bound in (space.low, space.high))
    quarter, bounded, of_space = high / 8 - low / 8, _bounded(space), _torch_type(space.dtype)

    def convert(action: Tensor) -> Tensor:
        mapped = (low / 4 + (action.clamp(-1, 1) + 1) * quarter) * 4
        return torch.where(bounded, mapped, action).clamp(low, high).to(of_space)

    return convert


def _in_integers(space: spaces.Box) -> Callable[[Tensor], Tensor]:
    """The map to a Box of whole numbers: low + floor((a + 1) / 2 * n) of n numbers, or a rounded.

    Sums of integers are modulo 2^64, and those of floats exact, so that no bound is too large.
    """
    pairs = zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True)
    spans = [int(high) - int(low) for low, high in pairs]
    count, last = (
        torch.tensor(numbers, dtype=torch.float64).reshape(space.shape)
        for numbers in ([float(span + 1) for span in spans], [_at_most(span) for span in spans])
    )
    low, high = (torch.from_numpy(bound.astype(np.int64)) for bound in (space.low, space.high))
    bounded, of_space = _bounded(space), _torch_type(space.dtype)

    def convert(action: Tensor) -> Tensor:
        action = action.double()
        index = ((action.clamp(-1, 1) + 1) / 2 * count).floor().minimum(last)
        half = (index / 2).floor()
        mapped = low + half.long() + (index - half).long()
        rounded = action.round().clamp(-(2.0**63), 2.0**63 - 2.0**39).long().clamp(low, high)  # ends of float32
        return torch.where(bounded, mapped, rounded).to(of_space)

    return convert


def _at_most(number: int) -> float:
    """The largest float that is not above a whole number."""
    nearest = float(number)
    return nearest if int(nearest) <= number else float(np.nextafter(nearest, -np.inf))


def _bounded(space: spaces.Box) -> Tensor:
    """Flags of the components that have two finite bounds."""
    return torch.from_numpy(space.bounded_below & space.bounded_above)


def _torch_type(dtype: Any) -> torch.dtype:
    dtype = np.dtype(dtype)
    return torch.from_numpy(np.zeros(0, np.float64 if dtype == np.longdouble else dtype.newbyteorder("="))).dtype


def component_sizes(space: Space) -> list[int]:
    """The numbers of values of a Discrete or one-dimensional MultiDiscrete action's components."""
    return [int(space.n)] if isinstance(space, spaces.Discrete) else [int(n) for n in space.nvec]  # type: ignore[attr-defined]


class JointActions:
    """The joint actions of a Discrete or one-dimensional MultiDiscrete space, numbered from 0 to n - 1.

    The last component varies fastest.
    """

    def __init__(self, space: Space):
        self.scalar = isinstance(space, spaces.Discrete)
        self.sizes = component_sizes(space)
        self.n = prod(self.sizes)

    def index(self, action: Tensor) -> Tensor:
        """Number [...] of each action [...] (Discrete) or [..., K]."""
        components = [action] if self.scalar else action.unbind(-1)
        index = components[0].long()
        for size, component in zip(self.sizes[1:], components[1:], strict=True):
            index = index * size + component.long()
        return index

    def mask(self, mask: Tensor) -> Tensor:
        """Which joint actions are allowed [..., n], from which values of each component are [..., sum(sizes)]."""
        joint, *others = mask.split(self.sizes, -1)
        for component in others:
            joint = (joint[..., :, None] & component[..., None, :]).flatten(-2)
        return joint

    def action(self, index: Tensor) -> Tensor:
        """Action [...] (Discrete) or [..., K] of each number [...]."""
        if self.scalar:
            return index
        steps = [prod(self.sizes[k + 1 :]) for k in range(len(self.sizes))]  # from one value of a component to the next
        return torch.stack([index // step % size for step, size in zip(steps, self.sizes, strict=True)], -1)
