"""MultiarmedBandit of POPGym."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Scores, Who
from rlmem_envs.core.columns import features


class MultiarmedBandit(BatchedEnv):
    """Slot machines pay with unknown probabilities; find the one that pays most often.

    | | |
    |---|---|
    | observation | Discrete(2): whether the last arm paid; 0 at first |
    | action | Discrete(num_bandits): an arm |
    | reward | +1/episode_length if the arm pays, else -1/episode_length |
    | end | truncates after episode_length steps |
    | hidden | `bandits` [num_bandits]: how likely each arm pays; `luck` [episode_length]: the arm of step t pays if \
luck[t] is below that; all uniform on [0, 1) |
    | oracle | pulls the arm that is most likely to pay: 2 num_bandits/(num_bandits + 1) - 1 |
    | full state | Box [num_bandits + 1]: how likely each arm pays; the share of steps taken |

    Rules of popgym 1.0.7, also of 1.0.2.

    num_bandits: arms
    episode_length: steps of an episode
    """

    tests = "remembering which actions paid, and when to stop exploring"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-1.0, 1.0)
    task_facts = ("bandits",)
    levels = {
        "easy": {"num_bandits": 10, "episode_length": 200},
        "medium": {"num_bandits": 20, "episode_length": 400},
        "hard": {"num_bandits": 30, "episode_length": 600},
    }
    # memoryless: the mean over all arms of the Markov chain of payouts, integrated numerically
    known = {
        "easy": Scores(random=0.0, memoryless=0.0887, oracle=9 / 11),
        "medium": Scores(random=0.0, memoryless=0.0939, oracle=19 / 21),
        "hard": Scores(random=0.0, memoryless=0.0955, oracle=29 / 31),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        num_bandits: Annotated[int, Gt(0), Le(100_000)] = 10,
        episode_length: Annotated[int, Gt(0)] = 200,
        **kwargs: Any,
    ):
        for name, value in {"num_bandits": num_bandits, "episode_length": episode_length}.items():
            if value < 1:
                raise ValueError(f"{name}={value}: expected at least 1")
        self._arms, self._steps = num_bandits, episode_length
        params = {"num_bandits": num_bandits, "episode_length": episode_length}
        full = Box(0, 1, (num_bandits + 1,), np.float32)
        super().__init__(num_envs, Discrete(2), Discrete(num_bandits), params, full_space=full, **kwargs)
        self._pay = np.array([-1 / episode_length, 1 / episode_length])
        self._row = self._all * num_bandits
        self.bandits = np.zeros((num_envs, num_bandits))
        self.luck = np.zeros((episode_length + 1, num_envs))  # time first; one more for the step after the last
        self.paid = np.zeros(num_envs, np.int64)

    def _draw(self, who: Who) -> Facts:
        return {"bandits": self.draws.uniform(who, self._arms), "luck": self.draws.uniform(who, self._steps)}

    def _begin(self, who: Who, facts: Facts) -> None:
        self.bandits[who] = facts["bandits"]
        self.luck[:-1, slice(None) if len(who) == self.num_envs else who] = facts["luck"].T
        self.paid = self.paid.copy()  # the one that was shown stays as it was
        self.paid[who] = 0

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        paid = self.luck[self._present()] < self.bandits.take(self._row + actions)
        self.paid = paid.astype(np.int64)
        return self._pay[self.paid], np.zeros(self.num_envs, bool), self.t == self._steps - 1

    def _observe(self) -> NDArray[Any]:
        return self.paid

    def _full_state(self) -> NDArray[np.float32]:
        return features(self.bandits, self.t / self._steps)

    def oracle(self) -> NDArray[Any]:
        return self.bandits.argmax(1)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Arm 0 again after a payout, any other arm after none."""
        others = 1 + rng.integers(0, max(self._arms - 1, 1), self.num_envs)
        return np.where(self.paid, 0, others % self._arms)

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps

    def text(self, i: int) -> str:
        return "it paid" if self.paid[i] else "nothing"
