"""Errors that are not bugs of rlmem: mistakes of the user, and faults outside the program."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """One or more mistakes of the user, each in one line: where, what, what is accepted, an example.

    The command line prints them without a traceback and exits with 2. Line ends and escape characters are shown as in
    Python, `\\n` and `\\x1b`, so that none reaches a terminal.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(printable(problem) for problem in problems)
        super().__init__("\n".join(self.problems))


class NotHere(UserError):
    """Something is missing on this machine, but may exist on the one where the job will run."""


class Fault(Exception):
    """Something outside the program broke a run: a full disk, a dead process, no memory, a loss that is not a number.

    The command line prints it without a traceback and exits with 1.

    line: at which step, what happened, and what to do about it
    traceback: of third-party code, such as an environment; printed before the line
    """

    def __init__(self, line: str, traceback: str = "") -> None:
        super().__init__(line)
        self.traceback = traceback


@contextmanager
def writing(path: Path, example: str) -> Iterator[None]:
    """Turn an OSError while `path` is written into a UserError; `example` is an option such as `--out /tmp/x.html`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); e.g. {example}") from error


def extra(name: str) -> str:
    """The command that installs one of the extras of pyproject.toml; rlmem is on no package index."""
    return f"pip install '.[{name}]' in a clone of rlmem"


def printable(text: str) -> str:
    """`text` in one line, with escapes for what cannot be printed."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def brief(text: str, most: int = 200) -> str:
    """`text`, without its middle if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 4 :]}"


def one_line(error: BaseException) -> str:
    """An exception as `TypeError: message`, with at most 200 characters of the message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".removesuffix(": ")


def first_line(error: BaseException) -> str:
    """The first line of an exception's text that is not empty; the name of its type if there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
