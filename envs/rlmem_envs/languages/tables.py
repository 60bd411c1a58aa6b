"""The automata of named languages, as tables: where each letter leads from each state, and the class of a string that
ends there."""

from typing import Any

_FIRST_LAST = ("00", "01", "10", "11")

TABLES: dict[str, dict[str, Any]] = {
    # is the number of ones odd?
    "parity": {
        "start": "0",
        "transitions": {"0": {"0": "0", "1": "1"}, "1": {"0": "1", "1": "0"}},
        "labels": {"0": 0, "1": 1},
    },
    # are there evenly many places where the letter changes, so that the first and the last are equal?
    "even_pairs": {
        "start": "start",
        "transitions": {
            "start": {"0": "00", "1": "11"},
            **{state: {"0": state[0] + "0", "1": state[0] + "1"} for state in _FIRST_LAST},
        },
        "labels": {"start": 1, **{state: int(state[0] == state[1]) for state in _FIRST_LAST}},
    },
    # where is element 0 after permutations of five? 0 is the cycle of all of them, 1 that of the first four
    "sym5": {
        "start": "0",
        "transitions": {str(i): {"0": str((i + 1) % 5), "1": str((i + 1) % 4 if i < 4 else 4)} for i in range(5)},
        "labels": {str(i): i for i in range(5)},
    },
    # where on a ring of five is who stays (0), goes on (1) or goes back (2)?
    "cycle_navigation": {
        "start": "0",
        "transitions": {
            str(i): {str(letter): str((i + move) % 5) for letter, move in enumerate((0, 1, -1))} for i in range(5)
        },
        "labels": {str(i): i for i in range(5)},
    },
    # the fifth language of Tomita (1982): are there evenly many zeros and evenly many ones?
    "tomita_5": {
        "start": "00",
        "transitions": {f"{a}{b}": {"0": f"{1 - a}{b}", "1": f"{a}{1 - b}"} for a in (0, 1) for b in (0, 1)},
        "labels": {"00": 1, "01": 0, "10": 0, "11": 0},
    },
    # the sixth: do the numbers of zeros and ones differ by a multiple of three?
    "tomita_6": {
        "start": "0",
        "transitions": {str(i): {"0": str((i + 1) % 3), "1": str((i - 1) % 3)} for i in range(3)},
        "labels": {"0": 1, "1": 0, "2": 0},
    },
}
