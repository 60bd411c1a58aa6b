"""The stream of temporal order: its sequences parsed by brute force, its windows, rows and exact state."""

from itertools import pairwise

import numpy as np
import pytest
from rlmem_envs.temporal_order import RUNS, VARIANTS, Minibatch, TemporalOrderStream

PLACES = {
    "two_symbols": [(10, 20), (50, 60)],
    "three_symbols": [(10, 20), (33, 43), (66, 76)],
    "low_frequency": [(10, 20), (50, 60)],
}
LENGTHS = {"two_symbols": (100, 110), "three_symbols": (100, 110), "low_frequency": (98, 133)}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def written(variant: str, slots: int = 3000, batch_size: int = 32, window: int = 250, seed: int = 0) -> Minibatch:
    """So many slots of every row, in one piece."""
    stream = TemporalOrderStream(batch_size, window, variant, seed)
    windows = [stream.next() for _ in range(-(-slots // window))]
    return Minibatch(*(np.concatenate(parts, 1)[:, :slots] for parts in zip(*windows, strict=True)))


def sequences(batch: Minibatch) -> list[tuple[list[int], set[int]]]:
    """The symbols of every whole sequence, and the labels that stand beside them."""
    found = []
    for symbols, start, label in zip(batch.symbols, batch.start, batch.label, strict=True):
        for a, b in pairwise(np.flatnonzero(start)):
            found.append((symbols[a:b].tolist(), set(label[a:b].tolist())))
    return found


def run_length(symbols: list[int], symbol: int) -> int:
    return next((i for i, other in enumerate(symbols) if other != symbol), len(symbols))


@pytest.mark.parametrize("variant", ["two_symbols", "three_symbols"])
def test_sequences_have_markers_where_they_should_and_the_class_of_their_order(variant):
    counts, places = np.zeros(2 ** len(PLACES[variant])), [set() for _ in PLACES[variant]]
    letters = np.zeros(4)
    for symbols, labels in sequences(written(variant)):
        assert symbols[0] == 6 and symbols[-1] == 7
        assert not {6, 7} & set(symbols[1:-1])
        markers = [(i, symbol - 4) for i, symbol in enumerate(symbols) if symbol in (4, 5)]
        assert len(markers) == len(places)
        for (i, _), seen in zip(markers, places, strict=True):
            seen.add(i)
        assert labels == {int("".join(str(marker) for _, marker in markers), 2)}
        counts[labels.pop()] += 1
        letters += np.bincount(symbols, minlength=8)[:4]
    assert places == [set(range(first, last + 1)) for first, last in PLACES[variant]]
    assert_uniform(counts)
    assert_uniform(letters)


def assert_uniform(counts: np.ndarray) -> None:
    """Within four standard errors: then a class named blindly is right with chance 1/4 or 1/8."""
    share = 1 / len(counts)
    error = (share * (1 - share) / counts.sum()) ** 0.5
    assert abs(counts / counts.sum() - share).max() < 4 * error


FORMS = [["".join(str(letter) * steps for letter, steps in runs) for runs in marker] for marker in RUNS]


def test_slow_markers_are_ten_forms_that_no_letter_count_confuses():
    forms = [form for marker in FORMS for form in marker]
    assert len(set(forms)) == 10
    assert len({frozenset(form) for form in forms}) == 10
    assert [sorted(map(len, marker)) for marker in FORMS] == [[8, 8, 10, 10, 12]] * 2
    assert not any(one in other for one in forms for other in forms if one != other)


def test_slow_sequences_hold_forms_of_the_markers_of_their_class():
    """A form may also come about by chance, in less than one sequence in a hundred."""
    counts, chance, total, seen = np.zeros(4), 0, 0, set()
    for symbols, labels in sequences(written("low_frequency", slots=6000)):
        assert 4 <= run_length(symbols, 4) <= 8
        assert 4 <= run_length(symbols[::-1], 5) <= 8
        text = "".join(map(str, symbols))
        found = [
            {m for m in (0, 1) for form in FORMS[m] for i in range(first, last + 1) if text.startswith(form, i)}
            for first, last in PLACES["low_frequency"]
        ]
        (label,) = labels
        assert label // 2 in found[0]
        assert label % 2 in found[1]
        counts[label] += 1
        total += 1
        chance += any(len(markers) > 1 for markers in found)
        seen |= {form for marker in FORMS for form in marker if form in text}
    assert chance / total < 0.01
    assert len(seen) == 10
    assert_uniform(counts)


@every_variant
def test_lengths_and_flags(variant):
    batch = written(variant, slots=8000)
    lengths = np.concatenate([np.diff(np.flatnonzero(row)) for row in batch.start])
    low, high = LENGTHS[variant]
    assert (lengths.min(), lengths.max()) == (low, high)
    assert_uniform(np.bincount(lengths - low))
    assert batch.start[:, 0].all()
    np.testing.assert_array_equal(batch.mask[:, :-1], batch.start[:, 1:])
    changes = batch.label[:, 1:] != batch.label[:, :-1]
    assert not (changes & ~batch.start[:, 1:]).any()


@every_variant
def test_windows_of_any_size_cut_the_same_stream(variant):
    whole = written(variant, slots=900, batch_size=5, window=900)
    for window in (1, 2, 7, 100, 256):
        for x, y in zip(whole, written(variant, slots=900, batch_size=5, window=window), strict=True):
            np.testing.assert_array_equal(x, y)


def test_rows_are_samplers_of_their_own_and_not_aligned():
    few, many = written("two_symbols", batch_size=3), written("two_symbols", batch_size=40)
    np.testing.assert_array_equal(few.symbols, many.symbols[:3])
    assert (written("two_symbols", batch_size=3, seed=1).symbols != few.symbols).any()
    ends = [tuple(np.flatnonzero(row)) for row in many.mask]
    assert len(set(ends)) == 40
    assert many.mask[:, 2000:].any(0).mean() > 0.2, "at any moment some sequence may end"
    agree = (many.symbols[0, 1:] == many.symbols[1, 1:]).mean()
    assert agree < 0.3, "rows do not share their letters"


def test_the_state_is_exact():
    stream, other = (TemporalOrderStream(6, 77, "low_frequency", seed) for seed in (0, 1))
    for _ in range(5):
        stream.next()
    saved = stream.state()
    expected = [stream.next() for _ in range(6)]
    for _ in range(2):  # what was saved does not change with the stream that took it up
        other.restore(saved)
        for window in expected:
            for x, y in zip(window, other.next(), strict=True):
                np.testing.assert_array_equal(x, y)
