"""The parts of a message: nearest names, values as typed on the command line, types in words."""

import difflib
import shlex
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rlmem.core.errors import UserError, brief

Names = Iterable[str]


def sentence(where: str, problem: str, *, near: Names = (), accepted: Names = (), example: str | None = None) -> str:
    """One line: where, what, the nearest name, what is accepted, an example."""
    parts = [f"{brief(where)}: {problem}"]
    if names := " or ".join(f"`{name}`" for name in near):
        parts.append(f"did you mean {names}?")
    if names := ", ".join(accepted):
        parts.append(f"accepted: {names}")
    if example:
        parts.append(f"e.g. {example}")
    return "; ".join(parts).replace("?; ", "? ")


def mistake(
    where: str, problem: str, *, near: Names = (), accepted: Names = (), example: str | None = None
) -> UserError:
    """The error of one `sentence`."""
    return UserError(sentence(where, problem, near=near, accepted=accepted, example=example))


def shell(*words: object) -> str:
    """Words of a command as they are typed in a shell: `'my run'`. A path that looks like a flag is `./-run`."""
    flaglike = lambda word: isinstance(word, Path) and str(word).startswith("-")  # noqa: E731
    return shlex.join(f"./{word}" if flaglike(word) else str(word) for word in words)


def nearest(word: object, names: Names) -> list[str]:
    """The name closest to `word`, as a list of one or none."""
    return difflib.get_close_matches(str(word), list(names), n=1)


SYNONYMS = {
    "learning_rate": "lr",
    "discount": "gamma",
    "n_steps": "rollout_slots",
    "num_steps": "rollout_slots",
    "buffer_size": "capacity",
    "timesteps": "total_steps",
    "total_timesteps": "total_steps",
}
"""A key's name in other libraries -> its name here."""


def nearest_key(word: object, keys: Names) -> list[str]:
    """The key that `word` may mean, as a list of one or none: another library's name for it, or the nearest name."""
    here, keys = SYNONYMS.get(str(word)), list(keys)
    return [here] if here in keys else nearest(word, keys)


def to_text(value: Any) -> str:
    """A value as it is typed on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(to_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}: {to_text(item)}' for key, item in value.items())}}}"
    return str(value)


def got(value: Any) -> str:
    """A refused value: text in quotes, so that '1' and 1 differ."""
    return brief(repr(value) if isinstance(value, str) else to_text(value))


def describe(annotation: Any) -> str:
    """A type as words: `Annotated[float, Gt(0)] | None` is "a number > 0 or null"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        pairs = [(symbol, getattr(item, name, None)) for item in arguments[1:] for name, symbol in _SYMBOLS.items()]
        bounds = " and ".join(f"{symbol} {bound}" for symbol, bound in pairs if bound is not None)
        return f"{describe(arguments[0])} {bounds}".rstrip()
    if origin in (Union, types.UnionType):
        return " or ".join(map(describe, arguments))
    if origin is Literal:
        return f"one of {', '.join(map(to_text, arguments))}"
    if origin is not None and issubclass(origin, Mapping):
        return "a mapping {key: value}"
    if origin is not None and issubclass(origin, Iterable):
        return f"a list [...] of {describe(arguments[0])}"
    return _PLAIN.get(annotation, getattr(annotation, "__name__", str(annotation)))


def choices(annotation: Any) -> list[str]:
    """The texts that a type with `Literal` accepts."""
    if get_origin(annotation) is Literal:
        return [text for text in get_args(annotation) if isinstance(text, str)]
    return [text for part in get_args(annotation) for text in choices(part)]


_PLAIN = {int: "an integer", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
_PLAIN |= {dict: "a mapping {key: value}", list: "a list [...]", tuple: "a list [...]", Any: "anything"}
_SYMBOLS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
