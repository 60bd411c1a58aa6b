"""EndlessTMaze: corridor after corridor, each with a cue of its own for the turn at its end."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, BatchedEnv, Facts, Horizons, Scores, Who
from rlmem_envs.core.columns import features

FORWARD, LEFT, RIGHT = range(3)
PATIENCE = 6
"""Steps of an episode for each cell of its longest corridors."""


class EndlessTMaze(BatchedEnv):
    """Walk through corridors; at the beginning of each a cue says where to turn at its end, and no earlier cue matters.

    A corridor has the places x = 0 .. L, of which x = 0 shows the cue and x = L is the junction.

    | | |
    |---|---|
    | observation | Box [3]: x / corridor_length; 1 where the cue is left, else 0; the same for right |
    | action | Discrete(3): forward, turn left, turn right |
    | reward | 1 for the right turn at a junction, `wrong` for anything else there, `penalty` for a turn elsewhere |
    | end | terminates after the last corridor and with a wrong turn, truncates after \
6 (corridor_length + 1) num_corridors steps |
    | recall | corridor_length slots back; with lengths=uniform 1 to 2 corridor_length - 1, trying in each place |
    | hidden | `cues` [num_corridors]: 0 left, 1 right; `corridors` [num_corridors]: their lengths L |
    | success | all corridors were walked through |
    | oracle | num_corridors, walking on and turning as the cue said; with lengths=uniform it knows the lengths |
    | full state | Box [6]: whether the cue of the corridor is left, or right; whether this is its junction; as shares \
its length, the corridors passed and the steps taken |

    With lengths=uniform a junction looks like any other place. A player with memory then tries its turn everywhere,
    which costs `penalty` where it is no junction. Without memory a guess is right at every other junction.

    The paper pays -1 for a wrong turn; the authors' code pays what a turn elsewhere costs (wrong=-0.01).

    corridor_length: the greatest L
    num_corridors: corridors of an episode, so the cue is replaced one time less
    lengths: fixed: L is corridor_length; uniform: any of 1 .. corridor_length, drawn for each corridor
    wrong: for a wrong turn
    penalty: for a turn where none is
    """

    tests = "one bit that is replaced again and again: how long it is held, and how often it is rewritten"
    source = "Shchendrigin et al. 2026 (arXiv:2601.15086)"
    levels = {
        "one": {"corridor_length": 10, "num_corridors": 1},
        "five": {"corridor_length": 10, "num_corridors": 5},
        "twenty": {"corridor_length": 10, "num_corridors": 20},
        "long": {"corridor_length": 100, "num_corridors": 5},
    }
    keys = {"w": FORWARD, "a": LEFT, "d": RIGHT}

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        corridor_length: Annotated[int, Gt(0), Le(100_000)] = 10,
        num_corridors: Annotated[int, Gt(0), Le(10_000)] = 5,
        lengths: Literal["fixed", "uniform"] = "fixed",
        wrong: Annotated[float, Le(0)] = -1.0,
        penalty: Annotated[float, Le(0)] = -0.01,
        **kwargs: Any,
    ):
        self._longest, self._number, self._fixed = corridor_length, num_corridors, lengths == "fixed"
        self._wrong, self._penalty = wrong, penalty
        self._limit = PATIENCE * (corridor_length + 1) * num_corridors
        self._ranges = {"cues": (0, 1), "corridors": (1, corridor_length)}
        params: dict[str, Any] = {"corridor_length": corridor_length, "num_corridors": num_corridors}
        more = {"lengths": (lengths, "fixed"), "wrong": (wrong, -1.0), "penalty": (penalty, -0.01)}
        params |= {name: value for name, (value, default) in more.items() if value != default}
        full = Box(0, 1, (6,), np.float32)
        super().__init__(num_envs, Box(0, 1, (3,), np.float32), Discrete(3), params, full_space=full, **kwargs)
        self.cues = np.zeros((num_envs, num_corridors + 1), np.int64)  # one more for episodes that are over
        self.corridors = np.ones((num_envs, num_corridors + 1), np.int64)
        self.passed = np.zeros(num_envs, np.int64)  # corridors that lie behind
        self.x = np.zeros(num_envs, np.int64)

    def _draw(self, who: Who) -> Facts:
        lengths = np.full((len(who), self._number), self._longest)
        cues = self.draws.integers(who, 2, self._number)
        return {
            "cues": cues,
            "corridors": lengths if self._fixed else 1 + self.draws.integers(who, self._longest, self._number),
        }

    def _begin(self, who: Who, facts: Facts) -> None:
        self.cues[who, :-1], self.corridors[who, :-1] = facts["cues"], facts["corridors"]
        self.passed[who] = self.x[who] = 0

    def _here(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The cue of the present corridor and whether its junction is reached, [N] each."""
        return self.cues[self._all, self.passed], self.x == self.corridors[self._all, self.passed]

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        cue, junction = self._here()
        right = junction & (actions == LEFT + cue)
        rewards = np.where(junction, np.where(right, 1.0, self._wrong), np.where(actions == FORWARD, 0, self._penalty))
        self.passed = self.passed + right
        done = right & (self.passed == self._number)
        self.x = np.where(right & ~done, 0, self.x + (~junction & (actions == FORWARD)))
        terminated = done | (junction & ~right)
        return rewards, terminated, ~terminated & (self.t + 1 >= self._limit)

    def _observe(self) -> NDArray[np.float32]:
        cue, shown = self.cues[self._all, self.passed], self.x == 0
        return features(self.x / self._longest, shown & (cue == 0), shown & (cue == 1))

    def _full_state(self) -> NDArray[np.float32]:
        cue, junction = self._here()
        length, passed = self.corridors[self._all, self.passed] / self._longest, self.passed / self._number
        return features(cue == 0, cue == 1, junction, length, passed, self.t / self._limit)

    def _success(self) -> NDArray[np.bool_]:
        return self.passed == self._number

    def oracle(self) -> NDArray[Any]:
        cue, junction = self._here()
        return np.where(junction, LEFT + cue, FORWARD)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any] | None:
        """It walks to the junction and guesses; where that looks like any other place, nobody knows the best play."""
        if not self._fixed:
            return None
        return np.where(self.x == self._longest, rng.integers(LEFT, RIGHT + 1, self.num_envs), FORWARD)

    def episode_steps(self) -> tuple[int, int]:
        return 1 + (self._longest if self._fixed else 1), self._limit

    def _horizons(self) -> Horizons:
        """Who does not know the lengths tries the turn in every place but the first, which takes a step each time."""
        return Horizons(self._longest, self._longest) if self._fixed else Horizons(1, 2 * self._longest - 1)

    def scores(self) -> Scores:
        """Return after return from the last corridor back; random play spends two turns in each place of a corridor.

        That the time may run out is left out: it takes twice as long as a random walk does on average.
        """
        if self.max_episode_steps is not None:
            return UNKNOWN
        if not self._fixed:
            return Scores(np.nan, np.nan, float(self._number))
        random = memoryless = 0.0
        for _ in range(self._number):
            random = 2 * self._penalty * self._longest + (1 + random) / 3 + 2 * self._wrong / 3
            memoryless = (1 + memoryless + self._wrong) / 2
        return Scores(random, memoryless, float(self._number))

    def text(self, i: int) -> str:
        _, left, right = self._observe()[i]
        cue = " <" if left else " >" if right else ""
        return f"corridor {min(self.passed[i] + 1, self._number)} of {self._number}\n{'.' * self.x[i]}@{cue}"
