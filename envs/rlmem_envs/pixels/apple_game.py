"""What Visual Match and Key-to-Door share: three phases on one board, the second of which is an orchard."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.pixels import board as on
from rlmem_envs.pixels.foraging import next_apple, towards

ORCHARD = (
    "###########",
    "#a a a a a#",
    "# a a a a #",
    "#a a a a a#",
    "# a a a a #",
    "#a a + a a#",
    "###########",
)
SLOTS = on.cell(on.places("a", *ORCHARD))
"""[22] the cells that may have an apple."""
PHASES = ("explore", "distractor", "reward")
NEVER = 1 << 20
"""More steps than any episode has."""


class AppleGame(BatchedEnv):
    """Phases of fixed length, each on a board of its own; the player sees the 5 x 5 cells around it.

    The last action of a phase still counts in it; its picture is the first one of the next phase. Subclasses lay out
    the first and the last phase (`_explore`, `_reward`), and say what touching a thing does (`_touch`).

    frames: of the three phases
    """

    keys = {"w": on.NORTH, "s": on.SOUTH, "a": on.WEST, "d": on.EAST}
    _own_features: ClassVar[int]
    """How many numbers of the full state are those of `_own_state`."""

    def __init__(
        self,
        num_envs: int,
        frames: Sequence[int],
        num_apples: int,
        apple_reward: float | Sequence[float],
        fix_apple_reward_in_episode: bool,
        respawn_every: int,
        final_reward: float,
        flat: bool,
        params: dict[str, Any],
        **kwargs: Any,
    ):
        self._worth = _range(apple_reward)
        self._steps, self._distractor_frames = sum(frames), frames[1]
        self._num_apples, self._fixed_worth, self._final_reward = num_apples, fix_apple_reward_in_episode, final_reward
        self._back = respawn_every + 2 if 0 < respawn_every < self._distractor_frames else NEVER
        shape = (75,) if flat else (3, 5, 5)
        params = {
            "explore_frames": frames[0],
            "distractor_frames": frames[1],
            "reward_frames": frames[2],
            "num_apples": num_apples,
            "apple_reward": apple_reward,
            "fix_apple_reward_in_episode": fix_apple_reward_in_episode,
            "respawn_every": respawn_every,
            "final_reward": final_reward,
            **params,
        }
        full = Box(-np.inf, np.inf, (6 + 3 * on.ROWS * on.COLUMNS + self._own_features,), np.float32)
        super().__init__(num_envs, Box(0, 255, shape, np.uint8), Discrete(4), params, full_space=full, **kwargs)
        self.player = np.full(num_envs, on.CELLS // 2)  # its cell
        self.board = np.zeros((num_envs, on.CELLS), np.uint8)  # everything but the player
        self.orchard = np.zeros((num_envs, num_apples), np.uint8)  # cells of the apples
        ring = 1 if self._back == NEVER else self._back - 1
        self.eaten = np.zeros((num_envs, ring), np.uint8)  # cells, by the step in which their apple was eaten
        worths = () if fix_apple_reward_in_episode else (max(1, self._distractor_frames),)
        self.apple_reward_value = np.zeros((num_envs, *worths))
        self._pixels = np.zeros((num_envs, 3, on.CELLS), np.uint8)  # the board in colours
        self._first_cell, self._first_pixel = self._all * on.CELLS, self._all * on.CELLS * 3
        self._first_eaten = self._all * ring
        self._window = (np.arange(3)[:, None] * on.CELLS + on.WINDOW).ravel()
        begins = np.cumsum([0, *frames])
        self._phase = np.searchsorted(begins[1:-1], np.arange(self._steps + 2), side="right")
        self._frame = np.arange(self._steps + 2) - begins[self._phase]
        self._share = self._frame / np.maximum(frames, 1)[self._phase]
        self._ring = np.arange(self._steps + 2) % ring
        self._turns = np.append(np.diff(self._phase) > 0, False)  # whether the step at t ends a phase
        self._orchard_board = on.board(*ORCHARD)

    # ---- what a game fills in

    def _explore(self, who: Who, facts: Facts) -> NDArray[np.uint8]:
        """Boards [n, 165] of the first phase; also puts the player there."""
        raise NotImplementedError

    def _reward(self, who: Who) -> NDArray[np.uint8]:
        """Boards [n, 165] of the last phase; also puts the player there."""
        raise NotImplementedError

    def _own_state(self) -> tuple[NDArray[Any], ...]:
        """What of the full state the game alone has."""
        raise NotImplementedError

    def _touch(self, here: NDArray[np.uint8], rewards: NDArray[np.float64]) -> None:
        """What happens to players on a cell with code `here` [N], apples aside; adds to `rewards`."""
        raise NotImplementedError

    # ---- where the game is

    @property
    def chapter(self) -> NDArray[np.int64]:
        """[N] the phase: 0 explore, 1 distractor, 2 reward."""
        return self._phase[self.t]

    @property
    def chapter_frame(self) -> NDArray[np.int64]:
        """[N] the picture's number in its phase, from 0."""
        return self._frame[self.t]

    @property
    def player_pos(self) -> NDArray[np.int64]:
        """[N, 2] row and column of the player."""
        return on.position(self.player)

    @property
    def characters(self) -> NDArray[np.uint8]:
        """[N, 7, 11] the board in the letters of the games' own code."""
        return on.interior(on.CHARACTERS[self._with_player(self._all)])

    # ---- playing

    def _draw(self, who: Who) -> Facts:
        slots = self.draws.permutation(who, len(SLOTS))[:, : self._num_apples]
        layout = np.zeros((len(who), on.CELLS), bool)
        layout[np.arange(len(who))[:, None], SLOTS[slots]] = True
        low, high = self._worth
        if self._fixed_worth:
            worth = np.where(self.draws.uniform(who) < 0.5, low, high)
        else:
            worth = low + (high - low) * self.draws.uniform(who, *self.apple_reward_value.shape[1:])
        return {"apple_layout": on.interior(layout), "apple_reward_value": worth}

    def _problem(self, facts: Facts) -> str | None:
        if (facts["apple_layout"].sum((1, 2)) != self._num_apples).any():
            return f"`apple_layout` has not the {self._num_apples} apples of `num_apples`"
        outside = [name for name in facts if name.endswith("_pos") and not on.inside(facts[name]).all()]
        return f"`{outside[0]}` is not on the board" if outside else super()._problem(facts)

    def _begin(self, who: Who, facts: Facts) -> None:
        layout = facts["apple_layout"]
        apples = on.cell(np.argwhere(layout)[:, 1:])
        self.orchard[who] = apples.reshape(len(who), self._num_apples)
        self.apple_reward_value[who] = facts["apple_reward_value"]
        self.eaten[who] = 0
        self._lay(who, self._explore(who, facts))

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        ahead = self.player + on.MOVES.take(actions)
        blocked = on.SOLID.take(self.board.take(self._first_cell + ahead))
        self.player = np.where(blocked, self.player, ahead)
        here = self.board.take(self._first_cell + self.player)
        rewards = np.zeros(self.num_envs)
        self._eat((here == on.APPLE).nonzero()[0], rewards)
        self._touch(here, rewards)
        if np.count_nonzero(self._turns[self._now()]):
            turns, after = self._turns[self.t], self._phase[self.t + 1]
            self._enter_orchard(np.flatnonzero(turns & (after == 1)))
            self._enter_last(np.flatnonzero(turns & (after == 2)))
        return rewards, self.t == self._steps - 1, np.zeros(self.num_envs, bool)

    def _now(self) -> Any:
        """Every environment's step: one number while all are at the same."""
        return int(self.t[0]) if self._in_step else self.t

    def _eat(self, who: Who, rewards: NDArray[np.float64]) -> None:
        """Players of `who` eat the apples under them; those that were eaten long enough ago are back."""
        if who.size:
            worth = self.apple_reward_value[who]
            rewards[who] = worth if self._fixed_worth else worth[np.arange(len(who)), self._frame[self.t[who]]]
            self._paint(who, self.player[who], on.BLANK)
        if self._back == NEVER:
            return
        at = self._first_eaten + self._ring[self._now()]
        returning = self.eaten.take(at)
        back = returning.nonzero()[0]
        if back.size:
            self._paint(back, returning[back], on.APPLE)
            self.eaten.put(at[back], 0)
        if who.size:
            self.eaten.put(at[who], self.player[who])

    def _enter_orchard(self, who: Who) -> None:
        self.player[who] = on.cell(np.array([5, 5]))
        boards = np.repeat(self._orchard_board[None], len(who), 0)
        boards[np.arange(len(who))[:, None], self.orchard[who]] = on.APPLE
        self._lay(who, boards)

    def _enter_last(self, who: Who) -> None:
        self.eaten[who] = 0
        self._lay(who, self._reward(who))

    def _observe(self) -> NDArray[np.uint8]:
        seen = self._pixels.take((self._first_pixel + self.player)[:, None] + self._window)
        seen.reshape(-1, 3, len(on.WINDOW))[:, :, on.CENTRE] = on.COLOURS[on.PLAYER]
        return seen.reshape(-1, *self._space.shape)  # type: ignore[misc]

    def _full_state(self) -> NDArray[np.float32]:
        """Phase, one-hot; shares of its steps and of all; reward of an apple; three boards; what the game adds.

        The boards: the player; where apples grow; in the orchard, how long until each apple can be eaten, from 0 to 1.
        """
        worth = self.apple_reward_value
        if not self._fixed_worth:
            worth = worth[self._all, np.minimum(self.chapter_frame, worth.shape[1] - 1)]
        boards: NDArray[Any] = np.zeros((3, self.num_envs, on.CELLS))
        boards[0, self._all, self.player] = 1
        rows = self._all[:, None], self.orchard
        boards[1][rows] = 1
        wait = np.where((self.chapter == 1)[:, None], np.minimum(self._wait(self._all), self._back), 0)
        boards[2][rows] = wait / self._back
        shares = self._share[self.t], self.t / self._steps
        inner = np.moveaxis(on.interior(boards), 0, 1)
        return features(one_hot(self.chapter, 3), *shares, worth, inner, *self._own_state())

    # ---- drawing

    def _lay(self, who: Who, boards: NDArray[np.uint8]) -> None:
        """Put whole boards [n, 165]."""
        self.board[who] = boards
        self._pixels[who] = on.COLOURS.T[:, boards].swapaxes(0, 1)

    def _paint(self, rows: Who, cells: NDArray[np.integer], codes: Any) -> None:
        """Put codes on single cells [n] of the environments `rows` [n]."""
        self.board[rows, cells] = codes
        self._pixels[rows, :, cells] = on.COLOURS[codes]

    def _with_player(self, who: Who) -> NDArray[np.uint8]:
        """Boards [n, 165] with the player on them, unless a door hides it."""
        boards = self.board[who]
        at = np.arange(len(who)), self.player[who]
        boards[at] = np.where(boards[at] == on.OPEN_DOOR, on.OPEN_DOOR, on.PLAYER)
        return boards

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._lay(self._all, self.board)

    def text(self, i: int) -> str:
        codes = on.interior(self._with_player(np.array([i])))[0]
        phase = PHASES[self.chapter[i]]
        lines = ["".join(on.TEXT[code] for code in row).rstrip() for row in codes]
        return "\n".join([f"{phase} phase, picture {self.chapter_frame[i]}", *lines])

    def picture(self, i: int) -> NDArray[np.uint8]:
        colours = on.COLOURS[on.interior(self._with_player(np.array([i])))[0]]
        return colours.repeat(24, 0).repeat(24, 1)

    # ---- players

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps

    def _forage(self) -> NDArray[np.int64]:
        """Actions [N] of a player that knows the whole orchard; north outside of it."""
        actions = np.full(self.num_envs, on.NORTH)
        who = np.flatnonzero(self.chapter == 1)
        if not (len(who) and self._num_apples):
            return actions
        player, apples = self.player_pos[who], on.position(self.orchard[who])
        steps = np.abs(apples - player[:, None]).sum(-1)
        steps[steps == 0] = 2  # away and back
        between = np.abs(apples[:, :, None] - apples[:, None]).sum(-1)
        left = self._distractor_frames - self.chapter_frame[who]
        chosen = next_apple(steps, between, self._wait(who), self._back, left)
        actions[who] = towards(apples[np.arange(len(who)), chosen] - player)
        return actions

    def _wait(self, who: Who) -> NDArray[np.int64]:
        """[n, K] steps until each apple can be eaten."""
        wait = np.where(self.board[who[:, None], self.orchard[who]] == on.APPLE, 0, NEVER)
        if self._back == NEVER:
            return wait
        width = self.eaten.shape[1]
        age = (self.t[who, None] - 1 - np.arange(width)) % width  # of each entry of the ring
        row, entry = np.nonzero(self.eaten[who])
        apple = (self.orchard[who][row] == self.eaten[who][row, entry][:, None]).argmax(1)
        wait[row, apple] = self._back - age[row, entry]
        return wait

    def _in_view(self) -> NDArray[np.uint8]:
        """[N, 25] what is on the cells that the players see."""
        return self.board.take((self._first_cell + self.player)[:, None] + on.WINDOW)


def _range(apple_reward: float | Sequence[float]) -> tuple[float, float]:
    """The least and the greatest reward of an apple. Raises ValueError if that is none."""
    worth = tuple(apple_reward) if isinstance(apple_reward, Sequence) else (apple_reward, apple_reward)
    if len(worth) != 2 or not all(map(math.isfinite, worth)) or worth[0] > worth[1]:
        raise ValueError(f"apple_reward={apple_reward}: expected a number, or the least and the greatest of them")
    return worth
