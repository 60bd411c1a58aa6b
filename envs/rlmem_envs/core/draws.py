"""Random numbers for many environments at once, each from streams of its own."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
UNIT = np.float64(2.0**-53)
BLOCK = 8192
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = (np.uint64(bits) for bits in (27, 30, 31, 32))


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014), in place: a bijection of 64 bits that looks random.

    x: contiguous; a large one in blocks, as fresh memory for its temporaries would cost more than the arithmetic
    """
    if x.size > BLOCK:
        flat = x.reshape(-1)
        for begin in range(0, flat.size, BLOCK):
            mix(flat[begin : begin + BLOCK])
        return x
    x ^= x >> _30
    x *= _FIRST
    x ^= x >> _27
    x *= _SECOND
    x ^= x >> _31
    return x


class Draws:
    """Counter-based generators: number k of an episode is a hash of (seed, environment, episode, k).

    So the episodes of an environment depend on nothing but its seed: not on how many others there are, and not on
    what was drawn in the episode before. The whole state is three arrays of N numbers.

    In every method `who` [n] holds the indices of the environments that draw, None stands for all of them, and the
    result has shape [n, *shape].
    """

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.stream = np.zeros(num_envs, np.uint64)
        self.episode = np.zeros(num_envs, np.int64)
        self.count = np.zeros(num_envs, np.uint64)
        self._key = np.zeros(num_envs, np.uint64)
        self._buffer = np.empty(num_envs, np.uint64)

    def seed(self, seed: int | Sequence[int | None] | None, who: NDArray[np.intp]) -> None:
        """Start the streams of environments `who`: stream i of one number, or one number for each environment.

        None seeds from the operating system. Environment i of `seed` is not environment i - 1 of `seed + 1`.
        """
        if isinstance(seed, Sequence | np.ndarray):
            root = np.array([_root(None if seed[i] is None else int(seed[i])) for i in who], np.uint64)
            index = np.zeros(len(who), np.uint64)
        else:
            root, index = np.full(len(who), _root(seed), np.uint64), who.astype(np.uint64)
        self.stream[who] = mix(root + GOLDEN * (index + np.uint64(1)))
        self.episode[who] = -1

    def next_episode(self, who: NDArray[np.intp]) -> None:
        self.episode[who] += 1
        self.count[who] = 0
        self._rekey(who)

    @contextmanager
    def as_in(self, who: NDArray[np.intp], episode: NDArray[np.int64]) -> Iterator[None]:
        """Draw for environments `who` what was drawn at the beginning of their episodes with these numbers [n]."""
        before = self.state()
        self.episode[who], self.count[who] = episode, 0
        self._rekey(who)
        try:
            yield
        finally:
            self.restore(before)

    def _rekey(self, who: NDArray[np.intp]) -> None:
        self._key[who] = mix(self.stream[who] ^ mix(self.episode[who].astype(np.uint64) + GOLDEN))

    def bits(self, who: NDArray[np.intp] | None, *shape: int) -> NDArray[np.uint64]:
        """Uniform 64-bit numbers."""
        return self._raw(who, shape).copy()

    def uniform(self, who: NDArray[np.intp] | None, *shape: int) -> NDArray[np.float64]:
        """Uniform on [0, 1)."""
        raw = self._raw(who, shape)
        raw >>= np.uint64(11)
        return raw * UNIT

    def normal(self, who: NDArray[np.intp] | None, *shape: int) -> NDArray[np.float64]:
        """Standard normal, by Box and Muller."""
        number = math.prod(shape)
        u = self.uniform(who, (number + 1) // 2, 2)
        radius, angle = np.sqrt(-2 * np.log1p(-u[..., 0])), 2 * np.pi * u[..., 1]
        pairs = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return pairs[:, :number].reshape(len(u), *shape)

    def integers(self, who: NDArray[np.intp] | None, high: int | NDArray[Any], *shape: int) -> NDArray[np.int64]:
        """Uniform on 0 .. high - 1, for high up to 2^31 (with a bias below high / 2^32).

        high: one number, or an array that broadcasts to [n, *shape]
        """
        raw = self._raw(who, shape)
        raw >>= _32
        raw *= np.asarray(high, np.uint64)
        raw >>= _32
        return raw.astype(np.int64)

    def permutation(self, who: NDArray[np.intp] | None, n: int) -> NDArray[np.int64]:
        """Shuffled 0 .. n - 1: [n_who, n], for n up to 65,536.

        The order of random keys that carry their index in the low bits. Two keys that agree in all the others, which
        24 bits at least tell apart, keep their order.
        """
        if n <= 256:
            keys: Any = self._raw(who, ((n + 1) // 2,)).view(np.uint32)[:, :n]
            low: Any = np.uint32(255)
        else:
            keys, low = self._raw(who, (n,)), np.uint64(0xFFFF)
        keys &= ~low
        keys |= np.arange(n, dtype=keys.dtype)
        keys.sort(axis=-1)
        keys &= low
        return keys.astype(np.int64)

    def _raw(self, who: NDArray[np.intp] | None, shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """`bits` in memory that the next call overwrites: fresh memory costs more than the arithmetic."""
        number = math.prod(shape)
        at = slice(None) if who is None else who
        first: Any = self._key[at] + self.count[at] * GOLDEN
        self.count[at] += np.uint64(number)
        size = len(first) * number
        if self._buffer.size < size:
            self._buffer = np.empty(size, np.uint64)
        counters = np.arange(1, number + 1, dtype=np.uint64) * GOLDEN
        raw = np.add(first[:, None], counters, out=self._buffer[:size].reshape(len(first), number))
        return mix(raw).reshape(len(first), *shape)

    def state(self) -> dict[str, Any]:
        return {"stream": self.stream.copy(), "episode": self.episode.copy(), "count": self.count.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            getattr(self, name)[:] = value
        self._rekey(np.arange(self.num_envs))


def _root(seed: int | None) -> np.uint64:
    return np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
