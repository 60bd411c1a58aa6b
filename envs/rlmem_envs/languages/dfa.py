"""Deterministic finite automata as data: the table of a language, checked and turned into arrays."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.languages.tables import TABLES


@dataclass(frozen=True)
class DFA:
    """An automaton of S states over K letters that sorts strings into C classes.

    states, letters: names, in the order of their numbers
    start: number of the state before the first letter
    next: [S, K] the state after a letter
    label: [S] the class of a string that ends there, 0 .. C - 1
    """

    states: tuple[str, ...]
    letters: tuple[str, ...]
    start: int
    next: NDArray[np.int64]
    label: NDArray[np.int64]

    @property
    def classes(self) -> int:
        return int(self.label.max()) + 1

    @classmethod
    def read(cls, language: str | Mapping[str, Any]) -> DFA:
        """A shipped table by name, or a table: {start: q, transitions: {q: {letter: q}}, labels: {q: class}}.

        Raises ValueError for an unknown name, or a table that is no automaton.
        """
        if isinstance(language, str):
            if language not in TABLES:
                near = difflib.get_close_matches(language, TABLES, 1)
                hint = f" (did you mean `{near[0]}`?)" if near else ""
                raise ValueError(f"no language `{language}`{hint}; languages: {', '.join(TABLES)}, or a table")
            language = TABLES[language]
        return _read(language)

    def class_shares(self, letters: int) -> NDArray[np.float64]:
        """How likely each class [C] is for a string of so many independent, uniformly distributed letters."""
        return np.eye(self.classes)[self.label].T @ self._state_shares(letters)

    def class_shares_by_letter(self, letters: int) -> NDArray[np.float64]:
        """How likely each letter is to be the last of such a string and each class to be the string's, [K, C]."""
        after = np.eye(self.classes)[self.label[self.next]]  # [S, K, C]
        return np.einsum("s,skc->kc", self._state_shares(letters - 1), after) / len(self.letters)

    def suffixes_that_matter(self, least: int, most: int, at_end: bool) -> list[int]:
        """How many letters may follow one that changes the class at their end, ascending.

        least, most: letters of a string; with `at_end` those after the letter end it, else they may end anywhere in it
        """
        S = len(self.states)
        reached, pairs = np.eye(S, dtype=bool)[self.start], []  # pairs of states that letter p may tell apart
        for _ in range(most):
            after = self.next[reached]
            pair = np.zeros((S, S), bool)
            pair[after[:, :, None], after[:, None, :]] = True
            pairs.append(pair)
            reached = np.isin(np.arange(S), after)
        apart, lengths = self.label[:, None] != self.label, []  # pairs that the same k letters may lead to two classes
        for k in range(most):
            first = max(least - 1 - k, 0) if at_end else 0
            if any((pair & apart).any() for pair in pairs[first : most - k]):
                lengths.append(k)
            apart = apart[self.next[:, None], self.next[None]].any(-1)
        return lengths

    def _state_shares(self, letters: int) -> NDArray[np.float64]:
        here = np.eye(len(self.states))[self.start]
        step = np.eye(len(here))[self.next].mean(1)  # [S, S]
        return np.linalg.matrix_power(step, letters).T @ here


def _read(table: Mapping[str, Any]) -> DFA:
    needed = ("start", "transitions", "labels")
    if set(table) != set(needed):
        raise ValueError(f"a language has the keys {', '.join(needed)}; got {', '.join(map(str, table)) or 'none'}")
    rows = {str(state): _named(row, f"transitions of {state}") for state, row in _mapping(table, "transitions").items()}
    labels = {str(state): label for state, label in _mapping(table, "labels").items()}
    states = {state: number for number, state in enumerate(rows)}
    letters = tuple(next(iter(rows.values())))
    for state, row in rows.items():
        if set(row) != set(letters):
            raise ValueError(f"transitions of {state}: expected one for each of {', '.join(letters)}; got {_got(row)}")
        for letter, successor in row.items():
            _known(successor, states, f"transitions of {state}: {letter} leads to")
    start = str(table["start"])
    _known(start, states, "start:")
    if set(labels) != set(states):
        raise ValueError(f"labels: expected one for each of {', '.join(states)}; got {_got(labels)}")
    return DFA(
        tuple(states),
        letters,
        states[start],
        np.array([[states[rows[state][letter]] for letter in letters] for state in states]),
        _classes([labels[state] for state in states]),
    )


def _mapping(table: Mapping[str, Any], key: str) -> Mapping[Any, Any]:
    mapping = table[key]
    if not isinstance(mapping, Mapping) or not mapping:
        raise ValueError(f"{key}: expected a mapping from states, got {mapping!r}")
    return mapping


def _named(row: Any, where: str) -> dict[str, str]:
    if not isinstance(row, Mapping) or not row:
        raise ValueError(f"{where}: expected a mapping from letters to states, got {row!r}")
    return {str(letter): str(state) for letter, state in row.items()}


def _known(state: str, states: Mapping[str, int], where: str) -> None:
    if state not in states:
        raise ValueError(f"{where} `{state}`, which has no transitions; states: {', '.join(states)}")


def _got(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"


def _classes(labels: list[Any]) -> NDArray[np.int64]:
    whole = all(isinstance(label, int) for label in labels)
    if not whole or set(labels) != set(range(len(set(labels)))):
        shown = ", ".join(map(str, labels))
        raise ValueError(f"labels: expected the classes 0, 1, ... without a gap, got {shown}")
    return np.array(labels, np.int64)
