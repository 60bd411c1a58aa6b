"""Decks of cards as POPGym deals them.

Card c has rank c // 4 (a, 2, .., k), suit c % 4 (s, d, c, h) and colour c % 2 (black, red), each modulo the deck. A
deck is a hidden fact: `deck` [n, 52 * num_decks], its cards in the order in which they are dealt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

DECK = 52
RANKS, SUITS, COLOURS = 13, 4, 2

SUIT_NAMES = ("spades", "diamonds", "clubs", "hearts")
SUIT_KEYS = {name[0]: suit for suit, name in enumerate(SUIT_NAMES)}
RANK_NAMES = ("a", "2", "3", "4", "5", "6", "7", "8", "9", "10", "j", "q", "k")
COLOUR_NAMES = ("black", "red")

DeckType = Literal["colors", "suits", "ranks"]


def suit(cards: NDArray[np.int64]) -> NDArray[np.int8]:
    return (cards & (SUITS - 1)).astype(np.int8)


def rank(cards: NDArray[np.int64]) -> NDArray[np.int8]:
    fours = (cards >> 2).astype(np.int16)
    return (fours - fours // RANKS * RANKS).astype(np.int8)  # four times as fast as %


def colour(cards: NDArray[np.int64]) -> NDArray[np.int8]:
    return (cards & (COLOURS - 1)).astype(np.int8)


@dataclass(frozen=True)
class Kind:
    """What tells cards apart: `of(cards)` is 0 .. count - 1, called `names`."""

    of: Callable[[NDArray[np.int64]], NDArray[np.int8]]
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.names)


KINDS = {"colors": Kind(colour, COLOUR_NAMES), "suits": Kind(suit, SUIT_NAMES), "ranks": Kind(rank, RANK_NAMES)}
"""By the names of POPGym's `deck_type`."""
