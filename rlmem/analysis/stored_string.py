"""A string in a chain of pools, letter by letter: appendix A of LP-RNN."""

from collections.abc import Sequence
from math import ceil
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlmem.errors import UserError
from rlmem.scan import linear_scan
from rlmem.seeding import Streams
from rlmem.stats.figures import as_image, figure

POOLS = 6


class StringMemory:
    """Six pools with a random orthonormal projection and a tanh between them (Stepleton et al. 2018, appendix A).

        p_1 filters the one-hot letter, p_{n+1} filters tanh(Q_n p_n),   at the rates base^-n

    Q_n are drawn anew for every seed, and are the same for every string.
    """

    def __init__(self, base: float, seed: int):
        self.rates = [base**-n for n in range(1, POOLS + 1)]
        generator, K = Streams(seed).torch("string memory"), len(ascii_lowercase)
        drawn = torch.randn(POOLS - 1, K, K, dtype=torch.float64, generator=generator)
        self.Q = torch.linalg.qr(drawn)[0]
        self.rest = ceil(1.5 * sum(1 / rate - 1 for rate in self.rates))

    def keep(self, text: str, letters: int) -> NDArray[np.float64]:
        """The contents of the pools [T, 6, 26] while they read `text`, padded to `letters` letters, and for long after.

        Raises UserError for anything but lower-case letters.
        """
        if not text or not set(text) <= set(ascii_lowercase):
            raise UserError(f"analyze impulse: string={text}: expected the letters a to z; e.g. machinelearning")
        source = torch.zeros(1, letters + self.rest, len(ascii_lowercase), dtype=torch.float64)
        source[0, range(len(text)), [ascii_lowercase.index(letter) for letter in text]] = 1
        start = torch.zeros(source.shape[:2], dtype=torch.bool)
        pools: list[torch.Tensor] = []
        for n, rate in enumerate(self.rates):
            if n:
                source = torch.tanh(pools[-1] @ self.Q[n - 1].T)
            pools.append(linear_scan(source.new_tensor(1 - rate), rate * source, torch.zeros_like(source[:, 0]), start))
        return torch.stack(pools, 2)[0].numpy()


def picture(kept: Sequence[NDArray[np.float64]], texts: Sequence[str]) -> Any:
    """Draw slots as rows and the units of all pools as columns, each pool scaled to its own maximum.

    Two strings get a third picture, of their absolute difference.
    """
    panels = list(zip(texts, kept, strict=True))
    largest = np.abs(kept[0]).max((0, 2))[:, None]
    if len(kept) == 2:
        panels.append((f"|{texts[0]} - {texts[1]}|", np.abs(kept[0] - kept[1])))
    made, axes = figure(3.0 * len(panels) + 0.7, len(panels), sharex=True)
    _, pools, width = kept[0].shape
    for panel, (name, values) in zip(axes[:, 0], panels, strict=True):
        flat = (values / largest).reshape(len(values), -1)
        shown = panel.imshow(flat, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        for n in range(1, pools):
            panel.axvline(n * width - 0.5, color="black", lw=0.8)
        panel.set(title=name, ylabel="slot", xticks=[(n + 0.5) * width for n in range(pools)])
        panel.set_xticklabels([str(n + 1) for n in range(pools)])
        as_image(panel)
    axes[-1, 0].set(xlabel="pool")
    made.colorbar(shown, ax=axes[:, 0], label="contents / the pool's maximum", location="bottom", shrink=0.8)
    return made
