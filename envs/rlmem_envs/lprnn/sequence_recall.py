"""Sequence Recall of the LP-RNN paper."""

from functools import cache
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Observe, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.lprnn.boards import PictureGame
from rlmem_envs.lprnn.lights import (
    CELLS,
    CENTRE,
    CHARACTERS,
    COLUMNS,
    DOWN,
    HORIZON,
    LEFT,
    LIGHT_AT,
    LIGHTS,
    MOVES,
    NEXT,
    RIGHT,
    ROWS,
    STAY,
    UP,
    routes,
)

PEN = [CENTRE + row * COLUMNS + column for row in (-1, 0, 1) for column in (-1, 0, 1) if row or column]


class SequenceRecall(PictureGame):
    """Watch lights go on one after the other, then visit them in the same order, as fast as possible.

    | | |
    |---|---|
    | observation | Box(0, 1, [2856], uint8): 17 x 21 cells in 8 planes: blank, wall, lights 1-4, dark light, player |
    | action | Discrete(5): up, down, left, right, stay |
    | reward | 1 for entering the light whose turn it is, 0 for another; -0.005 in frames 2 to last but one |
    | end | terminates 3 frames after the entry number sequence_length, or in frame timeout_frames |
    | hidden | `sequence` [sequence_length]: lights 1 left, 2 top, 3 right, 4 bottom; the same one may come again |
    | oracle | the shortest way through the sequence (exactly so up to four lights), remembering it |
    | full state | Box [4 sequence_length + 2]: the lights that are still to be entered, one-hot, the next one first; \
steps taken, and steps left if no turn comes, as shares of timeout_frames + 1 |

    The player stands in the centre, in a pen that looks like wall, and cannot move until the sequence is over. A light
    that is entered goes on; it has to be left before the next entry. Every entry takes the next turn, right or wrong.

    sequence_length: lights in the sequence
    demo_light_on_frames: frames for which each light is on; at least 2, whatever is asked for
    demo_light_off_frames: dark frames before each light; at least 2
    pause_frames: dark frames after the last one; at least 2
    timeout_frames: frame that ends the episode at the latest
    flat: the observation as a vector, else as planes [8, 17, 21]
    observe: see `BatchedEnv`
    """

    tests = "recall of an ordered sequence, long after it was shown and while acting on it"
    size, characters, looks_like = (ROWS, COLUMNS), " #1234MP", {"%": "#"}
    keys = {"w": UP, "s": DOWN, "a": LEFT, "d": RIGHT, " ": STAY}
    _ranges = {"sequence": (1, LIGHTS)}
    levels = {
        "paper": {
            "sequence_length": 4,
            "demo_light_on_frames": 60,
            "demo_light_off_frames": 30,
            "pause_frames": 1,
            "timeout_frames": 1000,
        },
        "small": {
            "sequence_length": 2,
            "demo_light_on_frames": 3,
            "demo_light_off_frames": 2,
            "pause_frames": 1,
            "timeout_frames": 1000,
        },
    }
    # The pen opens in frame 362 or 12. memoryless goes in and out of one light, 9 or 5 steps, and is right every fourth
    # time; the mean shortest way through all sequences is 15.890625 or 7.25. random: measured in 20,480 episodes.
    known = {
        "paper": Scores(random=-1.1061, memoryless=4 / 4 - 0.005 * (362 + 9), oracle=4 - 0.005 * (362 + 15.890625)),
        "small": Scores(random=0.2942, memoryless=2 / 4 - 0.005 * (12 + 5), oracle=2 - 0.005 * (12 + 7.25)),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        sequence_length: Annotated[int, Gt(0), Le(100_000)] = 4,
        demo_light_on_frames: Annotated[int, Ge(0)] = 60,
        demo_light_off_frames: Annotated[int, Ge(0)] = 30,
        pause_frames: Annotated[int, Ge(0)] = 1,
        timeout_frames: Annotated[int, Gt(0)] = 1000,
        flat: bool = True,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        params = {
            "sequence_length": sequence_length,
            "demo_light_on_frames": demo_light_on_frames,
            "demo_light_off_frames": demo_light_off_frames,
            "pause_frames": pause_frames,
            "timeout_frames": timeout_frames,
        }
        full = Box(0, 1, (LIGHTS * sequence_length + 2,), np.float32)
        more: dict[str, Any] = {"observe": observe, "full_space": full}
        super().__init__(num_envs, len(MOVES), params, flat, pictures=_pictures(), **more, **kwargs)
        self._length, self._timeout = sequence_length, timeout_frames
        off, on, pause = (max(2, frames) for frames in (demo_light_off_frames, demo_light_on_frames, pause_frames))
        turns = np.arange(1, sequence_length + 1)
        shown = np.repeat(np.stack([0 * turns, turns], 1), [off, on], 1).ravel()
        self._shown = np.append(shown, np.zeros(pause + 1, np.int64))  # whose turn each frame shows, 0: nobody's
        self._opens = len(shown) + pause  # the first frame in which the player moves
        self._row = self._all * (sequence_length + 1)
        self.lights = np.zeros((num_envs, sequence_length + 1), np.int64)  # of each turn; turn 0 is none
        self.entries = np.zeros(num_envs, np.int64)
        self.at = np.full(num_envs, CENTRE)  # cell of the player
        self.last_frame = np.full(num_envs, timeout_frames)

    def _draw(self, who: Who) -> Facts:
        return {"sequence": 1 + self.draws.integers(who, LIGHTS, self._length)}

    def _begin(self, who: Who, facts: Facts) -> None:
        self.lights[who, 1:] = facts["sequence"]
        self.entries[who], self.at[who], self.last_frame[who] = 0, CENTRE, self._timeout

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        frame = self.t + 1
        free = (frame >= self._opens) & (self.entries < self._length)
        at = np.where(free, NEXT.take(self.at * len(MOVES) + actions), self.at)
        light = LIGHT_AT.take(at)
        enters = light > LIGHT_AT.take(self.at)
        right = enters & (light == self.lights.take(self._row + self.entries + 1, mode="clip"))
        running = frame < self.last_frame
        self.at, self.entries = at, self.entries + enters
        if np.count_nonzero(enters):
            # Two frames after the next one, even if the time-out is in between: the reference resets its countdown.
            last = enters & (self.entries == self._length) & (frame + 1 < self.last_frame)
            self.last_frame = np.where(last, frame + 3, self.last_frame)
        return right - 0.005 * (running & (frame > 1)), ~running, np.zeros(self.num_envs, bool)

    def _picture(self) -> NDArray[np.integer]:
        shown = self.lights.take(self._row + self._shown.take(self.t, mode="clip"))
        return np.where(self.t < self._opens, len(CELLS) + shown, self.at)

    def _full_state(self) -> NDArray[np.float32]:
        turn = self.entries[:, None] + np.arange(1, self._length + 1)
        to_come = np.where(turn <= self._length, self.lights.take(self._row[:, None] + turn, mode="clip"), 0)
        shares = self.t / (self._timeout + 1), (self.last_frame - self.t) / (self._timeout + 1)
        return features(one_hot(to_come - 1, LIGHTS), *shares)

    def oracle(self) -> NDArray[Any]:
        left = np.minimum(self._length - self.entries, HORIZON)
        code = np.zeros(self.num_envs, np.int64)
        for turn in range(1, HORIZON + 1):
            light = self.lights.take(self._row + self.entries + turn, mode="clip")
            code = np.where(turn <= left, LIGHTS * code + light - 1, code)
        shorter = (LIGHTS**left - 1) // (LIGHTS - 1)
        return routes()[0][shorter + code, self.at]

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        return np.where(LIGHT_AT.take(self.at) > 0, RIGHT, LEFT)

    def episode_steps(self) -> tuple[int, int]:
        fewest = self._opens - 1 + 3 + 2 * (self._length - 1) + 3
        return min(fewest, self._timeout), self._timeout + 1


@cache
def _pictures() -> NDArray[np.uint8]:
    """The boards [357 + 5, 17, 21]: the player in each cell; held in its pen with each light on, 0 for none."""
    lit = np.append(LIGHT_AT, np.arange(LIGHTS + 1))[:, None]
    dark = (LIGHT_AT > 0) & np.not_equal(LIGHT_AT, lit)
    boards = np.where(dark, ord("M"), CHARACTERS).astype(np.uint8)
    boards[np.arange(len(boards)), np.append(CELLS, [CENTRE] * (LIGHTS + 1))] = ord("P")
    boards[len(CELLS) :, PEN] = ord("%")
    return boards.reshape(-1, ROWS, COLUMNS)
