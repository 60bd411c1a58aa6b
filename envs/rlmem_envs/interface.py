"""What a single environment gives, held to Gymnasium's interface, and whom an exception is about."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

NUMBERS = "biuf"
"""The kinds of numpy's types that are real numbers."""


class Blame(NamedTuple):
    """What a vector of environments says of an exception, which carries it as its attribute `blame`.

    environment: index of the one that it comes from; None: not known
    line: what went wrong, where the exception need not be shown; None: that this exception was raised
    traceback: of the author's code, if it ran in another process; None: the exception's own
    """

    environment: int | None
    line: str | None = None
    traceback: str | None = None


class InterfaceError(TypeError):
    """What an environment gives is not what Gymnasium's interface asks for."""


def blame(error: BaseException, environment: int) -> None:
    """Make an exception say of which environment it is."""
    if not hasattr(error, "blame"):
        told = isinstance(error, InterfaceError)
        error.blame = Blame(environment, *((str(error), "") if told else ()))  # type: ignore[attr-defined]


def raised(error: BaseException) -> str:
    """That an exception was raised, in one line."""
    said = str(error).strip().partition("\n")[0]
    return f"raised {type(error).__name__}{said and ': '}{said}"


def begun(result: Any, space: gym.Space) -> tuple[Any, dict[str, Any]]:
    """What `reset` returned. Raises InterfaceError if it is not an observation of `space` and a dictionary."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise InterfaceError(f"reset() returned {_shape_of(result)}; expected (observation, info)")
    _require_observation(result[0], space)
    _require_info(result[1])
    return result


def stepped(result: Any, space: gym.Space) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """What `step` returned. Raises InterfaceError if a part of it is not of the kind that it should be."""
    if not isinstance(result, tuple) or len(result) != 5:
        expected = "(observation, reward, terminated, truncated, info)"
        raise InterfaceError(f"step() returned {_shape_of(result)}; expected {expected}")
    obs, reward, terminated, truncated, info = result
    _require_observation(obs, space)
    if not isinstance(reward, float):  # most are
        array = _array(reward)
        if array is None or array.shape or array.dtype.kind not in NUMBERS:
            raise InterfaceError(f"reward {told(reward)}; expected one number")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            array = _array(flag)
            if array is None or array.shape or array.dtype.kind not in "biu" or array not in (0, 1):
                raise InterfaceError(f"{name} {told(flag)}; expected True or False")
    _require_info(info)
    return obs, reward, terminated, truncated, info


def _require_observation(obs: Any, space: gym.Space, part: str = "") -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        _require_parts(obs, space, part)
        return
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return  # such as texts, which nobody reads
    if part:
        try:
            _require_observation(obs, space)
        except InterfaceError as error:
            raise InterfaceError(f"part `{part}` of its observation: {error}") from error
        return
    array = _array(obs)
    if array is None or array.dtype.kind not in NUMBERS:
        raise InterfaceError(f"observation {told(obs)}; expected numbers of {space}")
    if array.shape != space.shape:
        raise InterfaceError(f"observation of shape {array.shape}; expected {space.shape}")
    if array.dtype != space.dtype:
        _require_cast(array, np.dtype(space.dtype))


def _require_cast(array: np.ndarray, dtype: np.dtype[Any]) -> None:
    """Raise InterfaceError if numbers cannot be cast to a type, where a whole number would wrap around."""
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InterfaceError(f"observation of type {array.dtype}; expected {dtype}")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    floats = dtype.kind == "f"
    lost = np.isinf(cast) & np.isfinite(array) if floats else cast != array
    if lost.any():
        raise InterfaceError(f"observation {array[lost][0]}; expected {'a finite number of ' * floats}{dtype}")


def _require_parts(obs: Any, space: spaces.Dict | spaces.Tuple, part: str) -> None:
    """Hold the parts of an observation, which is itself a `part` of one, to their spaces."""
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else list(range(len(space.spaces)))
    kind = dict if isinstance(space, spaces.Dict) else tuple | list
    if not isinstance(obs, kind) or (kind is not dict and len(obs) != len(keys)):
        raise InterfaceError(f"observation {told(obs)}; expected {space}")
    for key in keys:
        name = f"{part}/{key}" if part else str(key)
        if isinstance(obs, dict) and key not in obs:
            raise InterfaceError(f"observation has no part `{name}`; expected {', '.join(map(str, keys))}")
        _require_observation(obs[key], space.spaces[key], name)  # type: ignore[index]


def _require_info(info: Any) -> None:
    if not isinstance(info, dict):
        raise InterfaceError(f"info {told(info)}; expected a dictionary")


def _array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError):  # rows of different lengths, or nothing that numpy knows
        return None


def _shape_of(result: Any) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else told(result)


def told(value: Any, most: int = 60) -> str:
    """A value and its type in one short line."""
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= most else text[: most - 3] + '...'} ({type(value).__name__})"
