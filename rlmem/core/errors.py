"""Errors that are not bugs of rlmem: mistakes of the user, and faults outside the program, which end a run."""

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class UserError(Exception):
    """One or more mistakes of the user, each in one line: where, what, what is accepted, an example.

    The command line prints them without a traceback and exits with 2. Each is `bounded`, since it may repeat anything
    that was typed or received.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(map(bounded, problems))
        super().__init__("\n".join(self.problems))


class NotHere(UserError):
    """Something is missing on this machine, but may exist on the one where the job will run."""


class Fault(Exception):
    """Something outside the program broke a run: a full disk, a dead process, no memory, a loss that is not a number.

    The command line prints it without a traceback and exits with 1.

    line: at which step, what happened, and what to do about it; it is `bounded`
    traceback: of third-party code, such as an environment; printed before the line
    """

    def __init__(self, line: str, traceback: str = "") -> None:
        super().__init__(bounded(line))
        self.traceback = traceback


class Lost(ConnectionError):
    """Another process of the run is gone, or does not answer."""


@contextmanager
def writing(path: Path, example: str) -> Iterator[None]:
    """Turn an OSError while `path` is written into a UserError; `example` is an option such as `--out /tmp/x.html`."""
    try:
        yield
    except UserError:  # of a file that is read meanwhile
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); e.g. {example}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any exception while `path` is read into a UserError: a file from somewhere may hold anything."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        raise UserError(f"{path}: is damaged ({brief(one_line(error), 100)}); restore it") from error


def extra(name: str) -> str:
    """The command that installs one of the extras of pyproject.toml; rlmem is on no package index."""
    return f"pip install '.[{name}]' in a clone of rlmem"


def printable(text: str, keep: str = "") -> str:
    """`text` with escapes as in Python, `\\n` and `\\x1b`, for letters that cannot be printed and are not in `keep`."""
    return "".join(letter if letter.isprintable() or letter in keep else ascii(letter)[1:-1] for letter in text)


LONGEST_WORD, LONGEST_LINE = 300, 3000
"""The most characters of a word and of a line in a message."""


def bounded(text: str) -> str:
    """`text` in one printable line of bounded length: long words, and then a long line, lose their middle."""
    words = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: brief(word[0], LONGEST_WORD), printable(text))
    return brief(words, LONGEST_LINE)


def brief(text: str, most: int = 200) -> str:
    """`text`, without its middle if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 4 :]}"


def one_line(error: BaseException) -> str:
    """An exception as `TypeError: message`, with at most 200 characters of the message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".removesuffix(": ")


def first_line(error: BaseException) -> str:
    """The first line of an exception's text that is not empty; the name of its type if there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


SIZES = (
    "algo.batch_size",
    "algo.rollout_slots",
    "algo.capacity",
    "env.num_envs",
    "memory.hidden_size",
    "encoder.hidden_size",
)
"""Keys that a message for a lack of memory proposes to make smaller, if the run has them."""


@contextmanager
def as_faults(step: Callable[[], int], values: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn a dead process, a loss that is not finite, a full disk or a lack of memory into a Fault with the step.

    values: the configuration of the run, whose keys the Fault of a lack of memory names
    """
    try:
        yield
    except (FloatingPointError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, FloatingPointError):
            problem = f"not a finite number: {error}; e.g. a smaller algo.lr, or on_nan=skip to pass over such batches"
        elif isinstance(error, ConnectionError):
            problem = str(error)
        elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            problem = f"{error.filename or 'a file'} cannot be written ({error.strerror})"
        elif not isinstance(error, OSError) and lacks_memory(error):
            parts = [(key, *key.split(".")) for key in SIZES]
            sizes = [key for key, group, name in parts if ((values or {}).get(group) or {}).get(name) is not None]
            problem = f"out of memory ({first_line(error)}); e.g. a smaller {' or '.join(sizes) or 'network'}"
        else:
            raise
        raise Fault(f"step {step()}: {problem}") from error


def lacks_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on the CPU or a GPU."""
    import torch  # only now: the command line needs this module at once

    texts = ("can't allocate memory", "not enough memory", "out of memory")  # of torch's RuntimeErrors on the CPU
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(text in str(error) for text in texts)


@contextmanager
def communicating(witness: Callable[[], str | None] | None = None) -> Iterator[None]:
    """Inside, failures of communication raise Lost; `witness` says how another process died, if one did."""
    import torch  # as in `lacks_memory`

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0]).partition(". ")[0]
        raise Lost((witness and witness()) or f"another process of this run is gone ({reason})") from error
