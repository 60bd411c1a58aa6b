"""Decks of cards as POPGym deals them.

Card c has rank c // 4 (a, 2, .., k), suit c % 4 (s, d, c, h) and colour c % 2 (black, red), each modulo the deck. A
deck is a hidden fact: `deck` [n, 52 * num_decks], its cards in the order in which they are dealt.
"""

import numpy as np
from numpy.typing import NDArray

DECK = 52
RANKS, SUITS, COLOURS = 13, 4, 2


def suit(cards: NDArray[np.int64]) -> NDArray[np.int64]:
    return cards % SUITS


def rank(cards: NDArray[np.int64]) -> NDArray[np.int64]:
    return cards % DECK // SUITS


def colour(cards: NDArray[np.int64]) -> NDArray[np.int64]:
    return cards % COLOURS
