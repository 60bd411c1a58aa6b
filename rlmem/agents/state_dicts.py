"""Checks that the contents of a checkpoint fit the run that loads them."""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten


def require_alike(own: Any, given: Any, name: str) -> None:
    """Raise ValueError unless the tensors of two trees have the same places, sizes and types.

    A right checksum does not say that contents fit; what does not would fail much later, or not at all.

    own: as this run has it
    given: what a checkpoint holds in its place
    name: what is compared, for the message
    """
    (ours, structure), (theirs, other) = tree_flatten(own), tree_flatten(given)
    if structure != other:
        raise ValueError(f"{name} has other parts")
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
            found = f"{tuple(b.shape)} of {b.dtype}" if isinstance(b, Tensor) else type(b).__name__
            raise ValueError(f"{name} is {found}, not {tuple(a.shape)} of {a.dtype}")


def load_optimiser(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Load an optimiser's state. Raises ValueError if a moment has another size than its parameter."""
    optimiser.load_state_dict(state)
    for parameter, moments in optimiser.state.items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                raise ValueError(f"{name} of the optimiser is {tuple(value.shape)}, not {tuple(parameter.shape)}")
