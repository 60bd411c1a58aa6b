"""Gymnasium spaces: which ones encoders can read, and how policy actions become environment actions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

READABLE = (
    "Box of one dimension, image Box ([C, H, W], [H, W, C] or [H, W]), Discrete, MultiDiscrete, or a Dict or Tuple of "
    "any Box, Discrete, MultiDiscrete or MultiBinary"
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
    return is_flat(space) or is_image(space)


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
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError(f"two parts of the observation have one path, of: {', '.join(path for path, _ in pairs)}")
    return found


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
    found = [name for name in names if name in wanted and not any(_fits(name, entry) for entry in exclude)]
    if not found:
        raise ValueError(f"no part of the observation is left to read, of: {', '.join(names)}")
    return found


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


def is_bounded(space: spaces.Box) -> bool:
    return bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())


def to_env(space: Space) -> Callable[[np.ndarray], np.ndarray]:
    """How a policy's actions [N, ...] become those of an environment with action space `space`.

    Discrete policies count from zero. Continuous policies act in [-1, 1] per dimension, which is clipped and mapped
    to the bounds; an unbounded Box takes the action as it is.
    """
    if isinstance(space, spaces.Box):
        if not is_bounded(space):
            return lambda action: action.astype(space.dtype)
        low, scale = space.low, (space.high - space.low) / 2
        return lambda action: (low + (np.clip(action, -1, 1) + 1) * scale).astype(space.dtype)
    first = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else 0
    return lambda action: (action + first).astype(space.dtype)


def in_env(space: Space, action: Tensor) -> Tensor:
    """What `to_env` returns, of tensors."""
    dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
    if isinstance(space, spaces.Box):
        if is_bounded(space):
            low, scale = torch.from_numpy(space.low), torch.from_numpy((space.high - space.low) / 2)
            action = low + (action.clamp(-1, 1) + 1) * scale
        return action.to(dtype)
    first = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else 0
    return (action + torch.as_tensor(first)).to(dtype)


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
        index = torch.zeros_like(components[0], dtype=torch.long)
        for size, component in zip(self.sizes, components, strict=True):
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
