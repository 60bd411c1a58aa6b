"""What is known of a task: the scores of its players, and what must be recalled in it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Scores:
    """Mean returns of an episode; NaN where nobody knows.

    random: uniform random actions
    memoryless: the best known play that sees the current observation only
    oracle: perfect play with perfect memory, or with the hidden facts where the class says so
    """

    random: float
    memoryless: float
    oracle: float


UNKNOWN = Scores(np.nan, np.nan, np.nan)


class Horizons(NamedTuple):
    """Correlation horizons: how far back the observations lie that the best play depends on, beside the present one.

    An agent whose context holds `most` slots before the present one can do without any memory beyond it (Cherepanov et
    al. 2024, arXiv:2412.06531).

    least, most: the fewest and the most slots back; 0 and 0 where nothing need be recalled
    """

    least: int
    most: int


NOTHING = Horizons(0, 0)


class Demand(NamedTuple):
    """The memory demand: which earlier observations the best actions depend on, the same in all episodes.

    `slot` and `back` broadcast together: ages that are the same for all slots are given once, `slot` [S, 1] and `back`
    [L]. `slot - back` must not be negative.

    slot: the slots of the actions
    back: how many slots before them the observations lie; 0: the present one
    """

    slot: NDArray[np.int64]
    back: NDArray[np.int64]

    def matrix(self, steps: int) -> NDArray[np.bool_]:
        """Whether the best action at slot t depends on the observation at slot i, [steps, steps] by t and i."""
        slot, back = np.broadcast_arrays(self.slot, self.back)
        assert (slot >= back).all(), "an observation is demanded from before the episode"
        played = slot < steps
        revealed = np.zeros((steps, steps), bool)
        revealed[slot[played], (slot - back)[played]] = True
        return revealed

    def horizons(self) -> Horizons:
        """The least and the greatest age of what is demanded, beside the present observation."""
        back: NDArray[Any] = self.back[self.back > 0]
        return Horizons(int(back.min()), int(back.max())) if len(back) else NOTHING
