"""Named random streams from one root seed: adding a consumer never shifts another's numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import numpy as np
import torch


class Streams:
    """Independent generators by name, e.g. `Streams(seed).torch("act")`.

    The same (seed, name) gives the same numbers on every machine; different names give independent numbers.
    """

    def __init__(self, seed: int):
        self.seed = seed

    def int(self, name: str) -> int:
        """A 32-bit seed, e.g. for an environment."""
        return int(np.random.SeedSequence([self.seed, crc32(name.encode())]).generate_state(1)[0])

    def torch(self, name: str, device: torch.device | str = "cpu") -> torch.Generator:
        return torch.Generator(device).manual_seed(self.int(name))

    @contextmanager
    def module_init(self, name: str) -> Iterator[None]:
        """Seed torch's global generator, which initialises modules, from a stream, and restore it afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.int(name))
            yield
