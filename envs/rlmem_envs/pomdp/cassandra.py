"""Files of decision processes in Cassandra's format (`.POMDP`)."""

import errno
import os
import re
import stat
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rlmem_envs.pomdp.model import Model, Table

MOST = 50_000_000
"""The most numbers of a table."""

NAMES = 100_000
"""The most states, actions or observations where only their number is given."""

BYTES = 1 << 24
"""The most bytes of a file."""

SECTIONS = ("discount", "values", "states", "actions", "observations", "start", "T", "O", "R")


def read(path: str | Path, ends: Sequence[str] = ()) -> Model:
    """The process in a file.

    ends: names or numbers of the states in which an episode is over, which the format does not know

    Raises ValueError, which names the file and the line, for what is not in the format; OSError if it cannot be read.
    """
    info = os.stat(path)
    if not stat.S_ISREG(info.st_mode):  # reading a pipe or a device may take without end
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if info.st_size > BYTES:
        raise OSError(errno.EFBIG, f"has {info.st_size:,} bytes; expected at most {BYTES:,}", str(path))
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")  # old files have comments in other encodings
    return parse(text, str(path), ends)


def parse(text: str, name: str, ends: Sequence[str] = ()) -> Model:
    """The process in a text that is called `name`; as `read`."""
    return _Reader(text, name).model(ends)


class _Reader:
    """Reads one text, token by token; a colon is a token of its own."""

    def __init__(self, text: str, name: str):
        self.name = name
        self.tokens = [
            (token, number)
            for number, line in enumerate(text.splitlines(), 1)
            for token in re.findall(r":|[^\s:]+", line.partition("#")[0])
        ]
        self.at = 0
        self.names: dict[str, tuple[str, ...]] = {}
        self.begin: Table | None = None  # how likely an episode begins in each state, as far as that was said

    def fail(self, problem: str) -> NoReturn:
        line = self.tokens[max(self.at - 1, 0)][1] if self.tokens else 1  # of the token that was taken last
        raise ValueError(f"{self.name}:{line}: {problem}")

    @property
    def next(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.next
        if token is None:
            self.fail("the file ends too early")
        self.at += 1
        return token

    def begins_section(self) -> bool:
        here = self.next
        after = self.tokens[self.at + 1][0] if self.at + 1 < len(self.tokens) else None
        return here in SECTIONS and (after == ":" or (here == "start" and after in ("include", "exclude")))

    def words(self) -> list[str]:
        """The tokens up to the next section."""
        words = []
        while self.next is not None and not self.begins_section():
            words.append(self.take())
        return words

    def model(self, ends: Sequence[str]) -> Model:
        discount, sign = 1.0, 1.0
        tables: dict[str, Table] = {}
        while self.next is not None:
            if not self.begins_section():
                self.fail(f"expected one of {', '.join(SECTIONS)} and a colon, got {self.take()!r}")
            section = self.take()
            if section == "start":
                self.begin = self.start([word for word in self.words() if word != ":"])
                continue
            self.take()  # the colon
            if section == "discount":
                discount = self.number(self.take())
                if not 0 <= discount <= 1:
                    self.fail(f"discount: expected a number from 0 to 1, got {discount:g}")
            elif section == "values":
                sign = {"reward": 1.0, "cost": -1.0}.get(self.take()) or self.fail("values: expected reward or cost")
            elif section in ("states", "actions", "observations"):
                self.names[section] = self.listed(self.words())
            else:
                if not tables:
                    tables = self.empty()
                self.entry(section, tables)
        if not tables:
            self.fail("there are no entries of T, O and R")
        states = self.names["states"]
        over = np.zeros(len(states), bool)
        for state in ends:
            over[self.index("states", str(state))] = True
        return Model(
            states, self.names["actions"], self.names["observations"], discount, self.beginning(),
            tables["T"], tables["O"], sign * tables["R"], over,
        )  # fmt: skip

    def listed(self, words: list[str]) -> tuple[str, ...]:
        if len(words) == 1 and words[0].isdecimal():
            if len(words[0]) > 9 or int(words[0]) > NAMES:  # a longer number takes long to read
                self.fail(f"expected at most {NAMES:,} of them, got {words[0]}")
            return tuple(map(str, range(int(words[0]))))
        return tuple(words) or self.fail("expected a number or names")

    def empty(self) -> dict[str, Table]:
        if missing := [name for name in ("states", "actions", "observations") if name not in self.names]:
            self.fail(f"{missing[0]} must be said before T, O and R")
        A, S, O = (len(self.names[name]) for name in ("actions", "states", "observations"))
        if A * S * S * O > MOST:
            self.fail(
                f"{A} actions, {S} states and {O} observations are too many for tables of at most {MOST:,} numbers"
            )
        return {"T": np.zeros((A, S, S)), "O": np.zeros((A, S, O)), "R": np.zeros((A, S, S, O))}

    def entry(self, section: str, tables: dict[str, Table]) -> None:
        """One entry: indices, then as many numbers as their table has left, or a word for them."""
        kinds = {"T": ("actions", "states", "states"), "O": ("actions", "states", "observations")}
        axes = kinds.get(section, ("actions", "states", "states", "observations"))
        where = [self.place(axes[0])]
        while self.next == ":" and len(where) < len(axes):
            self.take()
            where.append(self.place(axes[len(where)]))
        if self.next == ":":  # before the number, as some files have it
            self.take()
        shape = tuple(len(self.names[axis]) for axis in axes[len(where) :])
        flat: Any = tables[section].reshape(*tables[section].shape[: len(where)], -1)
        flat[np.ix_(*where)] = self.values(shape).reshape(-1)

    def values(self, shape: tuple[int, ...]) -> Table:
        """Numbers in this shape, or the words uniform, identity and reset."""
        if shape and self.next == "uniform":
            self.take()
            return np.full(shape, 1 / shape[-1])
        if len(shape) == 2 and self.next == "identity":
            self.take()
            return np.eye(*shape)
        if shape and self.next == "reset":
            self.take()
            return np.broadcast_to(self.beginning(), shape)
        return np.array([self.number(self.take()) for _ in range(int(np.prod(shape)))]).reshape(shape)

    def number(self, token: str) -> float:
        try:
            number = float(token)
        except ValueError:
            self.fail(f"expected a number, got {token!r}")
        return number if isfinite(number) else self.fail(f"expected a finite number, got {token!r}")

    def place(self, axis: str) -> list[int]:
        token = self.take()
        return list(range(len(self.names[axis]))) if token == "*" else [self.index(axis, token)]

    def index(self, axis: str, token: str) -> int:
        names = self.names[axis]
        if token in names:
            return names.index(token)
        if token.isdigit() and int(token) < len(names):
            return int(token)
        self.fail(f"{token!r} is none of the {axis} ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})")

    def beginning(self) -> Table:
        return self.start(["uniform"]) if self.begin is None else self.begin

    def start(self, words: list[str]) -> Table:
        names = self.names.get("states") or self.fail("states must be said before start")
        chosen = np.zeros(len(names))
        if words[:1] == ["include"] or words[:1] == ["exclude"]:
            chosen[[self.index("states", word) for word in words[1:]]] = 1
            chosen = chosen if words[0] == "include" else 1 - chosen
        elif words == ["uniform"]:
            chosen[:] = 1
        elif len(words) == len(names) and (len(words) > 1 or words[0] not in names):
            return np.array([self.number(word) for word in words])
        elif len(words) == 1:
            chosen[self.index("states", words[0])] = 1
        else:
            self.fail(f"start: expected uniform, one state or {len(names)} chances, got {' '.join(words) or 'nothing'}")
        return chosen / chosen.sum() if chosen.any() else self.fail("start: no state is left to begin in")
