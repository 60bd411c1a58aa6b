"""Cued Catch of the LP-RNN paper."""

from functools import cache
from itertools import product
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Observe, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.lprnn.boards import PictureGame

UP, DOWN, STAY = 0, 1, 2
CUES, BALLS = 4, 2
TRIAL = 7
"""Frames of a trial: the balls go from column 8 to column 2."""


class Scene(NamedTuple):
    """A board without its player; None stands for what is not there.

    cue: 0..3
    symbol: of the ball 0 (top) or 1 (bottom)
    column: of both balls; None while teaching, when a marker is shown
    """

    cue: int | None
    symbol: int | None
    column: int | None


TEACHING = [Scene(cue, symbol, None) for cue, symbol in product(range(CUES), range(BALLS))]
TRIALS = [Scene(*shown) for shown in product((None, *range(CUES)), (None, *range(BALLS)), range(8, 8 - TRIAL, -1))]
SCENES = TEACHING + TRIALS


class CuedCatch(PictureGame):
    """Learn which ball each of four cues stands for, then catch the ball of the cue that is shown, trial by trial.

    | | |
    |---|---|
    | observation | Box(0, 1, [420], uint8): 7 x 12 cells in 5 planes: blank, player, cue, top ball, bottom ball |
    | action | Discrete(3): up, down, stay (the paper's networks had five, of which three stayed) |
    | reward | 1 for catching the ball that the cue stands for, once reward_free_trials are over |
    | end | terminates after the last trial, after 4 initial_cue_duration - 1 + 7 num_trials steps |
    | hidden | `cue_to_ball` [4]: 0 top ball, 1 bottom ball, two of each |
    | | `trial_cue` [num_trials + 1]: cue of each trial; the last one is only seen in the last frame |
    | | `reward_noise` [num_trials - reward_free_trials], if reward_sigma > 0: added to these rewards |
    | oracle | num_trials - reward_free_trials, remembering what it was taught |
    | full state | Box [11]: the ball of each cue; the cue of the trial, one-hot; its ball, one-hot (both 0 before the \
first); the share of steps taken |

    Teaching shows cues 3, 2, 1, 0 for initial_cue_duration frames each, with the symbol of their ball and a marker.
    Then both balls come from the right, a cell per frame; a trial takes 7 frames, the first one 6, and the catch is
    made when the balls reach the player's column. The player moves between two rows. That is a memory of one bit:
    reactive play that keeps the ball of one cue there, and steps aside only to catch, gets three balls of four.

    initial_cue_duration: frames that each cue is taught
    cue_duration: frames that the cue of a trial is shown, at most until the next one
    num_trials: trials of an episode
    always_show_ball_symbol: show the symbol with the cue in trials, too, so that there is nothing to remember
    reward_sigma: standard deviation of Gaussian noise on the reward of each catch or miss
    reward_free_trials: trials at the beginning that earn nothing
    flat: the observation as a vector, else as planes [5, 7, 12]
    observe: see `BatchedEnv`
    """

    tests = "recall of four associations, used again and again hundreds of steps after they were shown"
    size, characters = (7, 12), " PQab"
    keys = {"w": UP, "s": DOWN, " ": STAY}
    _ranges = {"cue_to_ball": (0, BALLS - 1), "trial_cue": (0, CUES - 1)}
    levels = {
        "paper": {
            "initial_cue_duration": 10,
            "cue_duration": 10,
            "num_trials": 100,
            "always_show_ball_symbol": False,
            "reward_sigma": 0.0,
            "reward_free_trials": 40,
        },
        "small": {
            "initial_cue_duration": 3,
            "cue_duration": 10,
            "num_trials": 10,
            "always_show_ball_symbol": False,
            "reward_sigma": 0.0,
            "reward_free_trials": 3,
        },
    }
    known = {  # memoryless: right for the kept cue; of the other three two have the other ball
        level: Scores(random=paid / 2, memoryless=(1 / 4 + 3 / 4 * 2 / 3) * paid, oracle=paid)
        for level, paid in {"paper": 60.0, "small": 7.0}.items()
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        initial_cue_duration: Annotated[int, Gt(0)] = 10,
        cue_duration: Annotated[int, Ge(0)] = 10,
        num_trials: Annotated[int, Gt(0), Le(100_000)] = 100,
        always_show_ball_symbol: bool = False,
        reward_sigma: Annotated[float, Ge(0)] = 0.0,
        reward_free_trials: Annotated[int, Ge(0)] = 40,
        flat: bool = True,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        params = {
            "initial_cue_duration": initial_cue_duration,
            "cue_duration": cue_duration,
            "num_trials": num_trials,
            "always_show_ball_symbol": always_show_ball_symbol,
            "reward_sigma": reward_sigma,
            "reward_free_trials": reward_free_trials,
        }
        more: dict[str, Any] = {"observe": observe, "full_space": Box(0, 1, (CUES + CUES + BALLS + 1,), np.float32)}
        super().__init__(num_envs, 3, params, flat, pictures=_pictures(), **more, **kwargs)
        self._trials, self._paid_trials = num_trials, max(0, num_trials - reward_free_trials)
        self._sigma = reward_sigma if self._paid_trials else 0.0
        first = CUES * initial_cue_duration - 1  # the frame that draws the first cue of a trial
        self._steps = first + TRIAL * num_trials
        self._taught = np.arange(first, -1, -1) // initial_cue_duration  # cue of each frame of teaching

        self._lesson = np.array([(self._taught == cue).argmax() for cue in range(CUES)])  # a frame that teaches each

        self._trial, since = np.divmod(np.arange(1, TRIAL * num_trials + 1), TRIAL)  # of the frames after teaching
        self._since = since  # frames since the draw
        self._cue_visible = since - (self._trial == 0) < cue_duration  # the first draw shows a frame later
        self._symbol_visible = self._cue_visible & always_show_ball_symbol

        frame = np.arange(1, self._steps + 2)  # that step t brings
        self._paid_trial = (frame - first) // TRIAL - reward_free_trials
        self._pays = (frame - first) % TRIAL == TRIAL - 1
        self._pays &= (self._paid_trial >= 0) & (frame > first)

        self.row = np.zeros(num_envs, np.int64)  # the player's, 0 or 1
        self.trial_cue = np.zeros((num_envs, num_trials + 1), np.int64)
        self.noise = np.zeros((num_envs, self._paid_trials))
        self.scene = np.zeros((self._steps + 1, num_envs), np.uint8)  # of each frame
        self.ball = np.full((self._steps + 1, num_envs), -1, np.int8)  # the right one after each frame, -1: none yet

    def _draw(self, who: Who) -> Facts:
        facts: Facts = {
            "cue_to_ball": self.draws.permutation(who, CUES) % BALLS,
            "trial_cue": self.draws.integers(who, CUES, self._trials + 1),
        }
        if self._sigma:
            facts["reward_noise"] = self._sigma * self.draws.normal(who, self._paid_trials)
        return facts

    def _begin(self, who: Who, facts: Facts) -> None:
        balls, taught = facts["cue_to_ball"], len(self._taught)
        self.scene[:taught, who] = (BALLS * self._taught + balls[:, self._taught]).T
        cue = facts["trial_cue"][:, self._trial]
        ball = np.take_along_axis(balls, cue, 1)
        shown = (1 + BALLS) * self._cue_visible * (cue + 1) + self._symbol_visible * (ball + 1)
        self.scene[taught:, who] = (len(TEACHING) + TRIAL * shown + self._since).T
        self.ball[taught:, who] = ball.T
        self.ball[taught - 1, who] = ball[:, 0]
        self.trial_cue[who] = facts["trial_cue"]
        self.noise[who] = facts.get("reward_noise", 0)
        self.row[who] = 0

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        self.row = np.where(actions == STAY, self.row, actions)
        pays = self._pays.take(self.t)
        rewards = (pays & (self.row == self.ball[self._present()])).astype(np.float64)
        if self._sigma:
            who = np.flatnonzero(pays)
            rewards[who] += self.noise[who, self._paid_trial[self.t[who]]]
        return rewards, self.t == self._steps - 1, np.zeros(self.num_envs, bool)

    def _picture(self) -> NDArray[np.integer]:
        return BALLS * self.scene[self._present()].astype(np.int64) + self.row

    def _full_state(self) -> NDArray[np.float32]:
        balls = self.scene[self._lesson].T - BALLS * np.arange(CUES)
        trial = np.append(np.zeros(1, np.int64), self._trial)[np.maximum(self.t - len(self._taught) + 1, 0)]
        ball = self.ball[self._present()]
        cue = np.where(ball < 0, -1, self.trial_cue[self._all, trial])
        return features(balls, one_hot(cue, CUES), one_hot(ball, BALLS), self.t / self._steps)

    def oracle(self) -> NDArray[Any]:
        ball = self.ball[self._present()]
        return np.where(ball < 0, STAY, ball).astype(np.int64)

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return _reactions().take(self._picture())

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps


@cache
def _pictures() -> NDArray[np.uint8]:
    """The boards [2 * scenes, 7, 12], each scene with the player in the upper and in the lower row."""
    return np.stack([_board(scene, row) for scene in SCENES for row in range(2)])


def _board(scene: Scene, row: int) -> NDArray[np.uint8]:
    board = np.full(CuedCatch.size, ord(" "), np.uint8)
    board[1 + row, 3] = ord("P")
    if scene.column is None:
        board[1:3, [0, 1, -2, -1]] = ord("Q")
    else:
        board[1, scene.column], board[2, scene.column] = b"ab"
    if scene.symbol is not None:
        board[3:5, 6 * scene.symbol : 6 * scene.symbol + 6] = ord("Q")
    if scene.cue is not None:
        board[5:, 3 * scene.cue : 3 * scene.cue + 3] = ord("Q")
    return board


@cache
def _reactions() -> NDArray[np.int64]:
    """The memoryless player's action for each picture: it keeps the ball of cue 0 as the row it stands in."""
    return np.array([_reaction(scene, row) for scene in SCENES for row in range(2)])


def _reaction(scene: Scene, row: int) -> int:
    if scene.symbol is not None and (scene.column is not None or scene.cue == 0):
        return scene.symbol  # UP to the top ball, DOWN to the bottom ball
    if scene.cue in (1, 2, 3) and scene.column in (4, 2):
        return 1 - row  # aside, to catch the other ball, and back
    return STAY
