"""The T-maze of the LP-RNN paper, which is entered through a teleporter."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Observe, Scores, Who
from rlmem_envs.core.columns import features, one_hot
from rlmem_envs.lprnn.boards import BoardGame
from rlmem_envs.lprnn.teleporter_world import (
    BLANK,
    COLUMNS,
    CORRIDOR,
    CUE,
    ENTRANCE,
    GOAL,
    IS_TELEPORTER,
    IS_WALL,
    LEG,
    LIMBO,
    MARGIN,
    MAZE,
    MOVES,
    OVERLAYS,
    PAD,
    PLAYER,
    PORTAL,
    ROWS,
    SHOWS,
    START,
    STRIDE,
    VIEW,
    WALL,
    WALLS,
    WORLD,
    cell,
    draw_world,
    rows_of,
)

UP, DOWN, LEFT, RIGHT, STAY = range(5)
CLOSED, OPEN, IN_LIMBO, IN_MAZE = range(4)
"""Stages: the teleporter is closed, it is open, it was used and led to limbo, to the maze."""
NO_CUE = 2
NEVER = np.iinfo(np.int64).max
PLANES = np.array([BLANK, WALL, PLAYER, CUE, PAD], np.uint8)[:, None]

ROOM_TOP, ROOM_ROWS = 1, 9
"""Rows of the world that can be seen from the room and from limbo."""
BAND_ROWS = 14
"""Rows that can be seen from a maze, three above its corridor and five below its goals."""
KEPT = round(0.6 * 2**16)
LAST_EDGE = COLUMNS - 11
"""The last column of the world at which the board can begin."""


class TeleporterTMaze(BoardGame):
    """Remember a cue while a teleporter holds you in limbo, then go to that end of a T-maze.

    | | |
    |---|---|
    | observation | Box(0, 1, [385], uint8): 7 x 11 cells in 5 planes: blank, wall, player, cue, teleporter or goal |
    | action | Discrete(5): up, down, left, right, stay |
    | reward | the frame after arriving on a goal +1 if it is on the cued side, else -1; |
    | | -0.001 in each frame from 2 to the last but one |
    | end | terminates 2 frames after arriving on a goal, or in frame timeout_frames |
    | hidden | `goal_side`: 0 left, 1 right; `speckle` [77, 191]: cells of the ground that look like wall |
    | oracle | waits for the teleporter and takes the shortest way to the goal, remembering the cue |
    | full state | Box [14]: side of the goal, -1 or 1; stage, one-hot: teleporter closed, open, in limbo, in the \
maze; row and column in the world; time to the next event, 0: none is due, and until actions count; how the board \
scrolled last, down and right; its left edge; shares of steps left and taken |

    The board shows what is around the player and, in its lower left or right corner, the cue. The player starts in a
    room. Its uppermost three cells become a teleporter to limbo, where the player cannot move, and limbo_time frames
    later on to the middle of the maze's corridor. Actions do nothing in the frame of a teleport and the next. Of the
    ground around the mazes, which cannot be reached, three cells of five look like wall.

    Two quirks of the reference are kept. A player who stepped onto a goal can go on into the wall behind it. In the
    largest maze the board does not scroll over the edge of the world: the player moves off its centre instead.

    difficulty: which maze, 0 (corridor of 19 columns) to 5 (183 columns)
    cue_after_teleport: whether the cue stays, so that there is nothing to remember
    timeout_frames: frame that ends the episode at the latest
    teleport_delay: frames before the teleporter can be used; it is open from frame teleport_delay - 1
    limbo_time: frames from the teleporter to the maze, or 0 to go there without limbo; not 1 or 2
    flat: the observation as a vector, else as planes [5, 7, 11]
    observe: see `BatchedEnv`
    """

    tests = "recall of one bit over hundreds of steps in which nothing happens, then exploration"
    size, characters, looks_like = (7, 11), " #PQ~", {"t": "~", "l": "~", "r": "~", "*": "#"}
    keys = {"w": UP, "s": DOWN, "a": LEFT, "d": RIGHT, " ": STAY}
    _ranges = {"goal_side": (0, 1)}
    levels = {
        name: {
            "difficulty": difficulty,
            "cue_after_teleport": False,
            "timeout_frames": 1000,
            "teleport_delay": 50,
            "limbo_time": 280,
        }
        for name, difficulty in {"paper": 4, "d0": 0, "d1": 1, "d2": 2, "d3": 3, "d4": 4, "d5": 5}.items()
    }
    # The goal is reached in frame 330 plus the steps to the left or right one. memoryless goes left, right every
    # other time. random: measured in 20,480 episodes.
    known = {
        f"d{difficulty}": Scores(random, -0.001 * (330 + left), 1 - 0.001 * (330 + (left + right) / 2))
        for difficulty, left, right, random in (
            (0, 12, 12, -0.6292),
            (1, 17, 17, -0.7930),
            (2, 24, 24, -0.9329),
            (3, 37, 37, -0.9918),
            (4, 57, 59, -0.9982),
            (5, 93, 95, -0.9980),
        )
    }
    known["paper"] = known["d4"]

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        difficulty: Annotated[int, Ge(0), Le(5)] = 4,
        cue_after_teleport: bool = False,
        timeout_frames: Annotated[int, Gt(0)] = 1000,
        teleport_delay: Annotated[int, Ge(0)] = 50,
        limbo_time: Annotated[int, Ge(0)] = 280,
        flat: bool = True,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        if difficulty >= len(WALLS):
            raise ValueError(f"difficulty={difficulty}: expected at most {len(WALLS) - 1}")
        if limbo_time in (1, 2):
            raise ValueError(f"limbo_time={limbo_time}: expected 0 or at least 3, or the two teleports overlap")
        params = {
            "difficulty": difficulty,
            "cue_after_teleport": cue_after_teleport,
            "timeout_frames": timeout_frames,
            "teleport_delay": teleport_delay,
            "limbo_time": limbo_time,
        }
        more: dict[str, Any] = {"observe": observe, "full_space": Box(-1, 1, (14,), np.float32)}
        super().__init__(num_envs, len(MOVES), params, flat, **more, **kwargs)
        self._keeps_cue, self._timeout = cue_after_teleport, timeout_frames
        self._delay, self._limbo = teleport_delay, limbo_time
        self._entrance = cell(CORRIDOR + MAZE * difficulty, ENTRANCE)
        self._at_world_edge = difficulty == len(WALLS) - 1

        left, right = WALLS[difficulty]
        self._way = np.repeat([[LEFT], [RIGHT]], COLUMNS, 1)  # from each column, to the goal of either side
        self._way[0, left + 1 : left + 4] = self._way[1, right - 3 : right] = DOWN
        self._way_steps = ENTRANCE - (left + 3) + LEG, right - 3 - ENTRANCE + LEG

        # The scene is what can be seen: the room with limbo, twice, and a band of the world for each environment.
        chars = draw_world()
        self._band_top = CORRIDOR + MAZE * difficulty - 3
        room, band = rows_of(chars, ROOM_TOP, ROOM_ROWS), rows_of(chars, self._band_top, BAND_ROWS)
        self._band, self._ground = SHOWS[band], band == ord("*")
        self.scene = np.zeros((2 * ROOM_ROWS + BAND_ROWS * num_envs, STRIDE), np.uint8)
        self.scene[:ROOM_ROWS] = SHOWS[room] * (room != ord("t"))
        self.scene[ROOM_ROWS : 2 * ROOM_ROWS] = SHOWS[room]
        # From cells of the world to those of the scene, in the stages before the maze and in the maze:
        self._room_shift = np.array([0, ROOM_ROWS, ROOM_ROWS, 0]) * STRIDE - ROOM_TOP * STRIDE
        self._band_shift = (2 * ROOM_ROWS + BAND_ROWS * self._all - self._band_top) * STRIDE

        self.goal_side = np.zeros(num_envs, np.int64)
        self.cue = np.zeros(num_envs, np.int64)  # 0 left, 1 right, 2 none
        self.at = np.full(num_envs, START)  # cell of the player in the world
        self.scroll = np.zeros(num_envs, np.int64)  # of the board in the last frame, in cells
        self.edge = np.zeros(num_envs, np.int64)  # column at which the board begins, had nothing been teleported
        self.aside = np.zeros(num_envs, np.int64)  # columns from the board's centre to the player
        self.stage = np.zeros(num_envs, np.int64)
        self.shift = np.zeros(num_envs, np.int64)
        self.next_event = np.zeros(num_envs, np.int64)  # frame of the opening or of the next teleport
        self.free_from = np.zeros(num_envs, np.int64)  # frame in which actions count again
        self.last_frame = np.zeros(num_envs, np.int64)

    def _draw(self, who: Who) -> Facts:
        """Speckle is drawn where it can be seen, in the band of this maze."""
        side = self.draws.integers(who, 2)
        cells = BAND_ROWS * COLUMNS
        dots = self.draws.bits(who, -(-cells // 4)).view(np.uint16)[:, :cells] < KEPT
        speckle = np.zeros((len(who), ROWS, COLUMNS), bool)
        speckle[:, np.arange(self._band_top, self._band_top + BAND_ROWS) % ROWS] = dots.reshape(-1, BAND_ROWS, COLUMNS)
        return {"goal_side": side, "speckle": speckle}

    def _begin(self, who: Who, facts: Facts) -> None:
        self.goal_side[who] = self.cue[who] = facts["goal_side"]
        walls = self._ground & rows_of(facts["speckle"], self._band_top, BAND_ROWS)
        bands = self.scene[2 * ROOM_ROWS :].reshape(self.num_envs, BAND_ROWS, STRIDE)
        bands[who] = np.where(walls, WALL, self._band)
        self.at[who], self.scroll[who], self.edge[who], self.aside[who] = START, 0, ENTRANCE - 5, 0
        stage = CLOSED if self._delay > 1 else OPEN
        self.stage[who], self.shift[who] = stage, self._room_shift[stage]
        self.next_event[who] = self._delay - 1 if stage == CLOSED else NEVER
        self.free_from[who], self.last_frame[who] = 0, self._timeout

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        frame = self.t + 1
        due = frame == self.next_event
        if np.count_nonzero(due):
            self._happen(np.flatnonzero(due), frame)
        goal, running = GOAL.take(self.at), frame < self.last_frame
        self._move(MOVES.take(actions) * (frame >= self.free_from))
        rewards = np.where(running & (frame > 1), -0.001, 0.0)
        if np.count_nonzero(goal):  # where the player was before it moved
            ended = running & (goal != 0)
            rewards = rewards + ended * goal * (1 - 2 * self.goal_side)
            self.last_frame = np.where(ended, frame + 1, self.last_frame)
        on_teleporter = IS_TELEPORTER.take(self.at)
        if np.count_nonzero(on_teleporter):
            who = np.flatnonzero(on_teleporter & (self.stage == OPEN))
            self.next_event[who], self.free_from[who] = frame[who] + 1, frame[who] + 3
        return rewards, ~running, np.zeros(self.num_envs, bool)

    def _happen(self, who: Who, frame: NDArray[np.int64]) -> None:
        """The teleporter opens, or takes players to limbo, or to the maze."""
        stage = self.stage[who]
        open_now, leave = who[stage == CLOSED], who[stage == OPEN]
        self.stage[open_now], self.next_event[open_now] = OPEN, NEVER
        if not self._keeps_cue:
            self.cue[leave] = NO_CUE
        if self._limbo:
            self.at[leave], self.stage[leave] = LIMBO, IN_LIMBO
            self.next_event[leave] = frame[leave] - 1 + self._limbo
            enter = who[stage == IN_LIMBO]
            self.at[enter] = self._entrance
        else:
            enter = leave
            self.at[enter] += self._entrance - PORTAL
        self.stage[enter], self.next_event[enter], self.free_from[enter] = IN_MAZE, NEVER, frame[enter] + 2
        self.shift[who] = self._room_shift[self.stage[who]]
        self.shift[enter] = self._band_shift[enter]

    def _move(self, step: NDArray[np.int64]) -> None:
        """Steps [N] in cells, where no wall is in the way.

        The reference looks for walls on a board where the goals are not yet scrolled and may hide a wall.
        """
        target = self.at + step
        wall = IS_WALL.take(target)
        stopped = wall & (GOAL.take(target - self.scroll) == 0)
        if self._at_world_edge:
            across = np.where(np.abs(step) == 1, step, 0)
            held = (self.edge + across < 0) | (self.edge + across > LAST_EDGE)
            stopped |= held & wall
            self.edge += np.where(held | stopped, 0, across)
            self.aside += np.where(held & ~stopped, across, 0)
        step = np.where(stopped, 0, step)
        self.at = self.at + step
        self.scroll = np.where(held, 0, step) if self._at_world_edge else step

    def _kinds(self) -> NDArray[np.uint8]:
        """What the boards show [N, 77]."""
        seen = self.scene.take((self.at - self.aside + self.shift)[:, None] + VIEW)
        return np.maximum(seen, OVERLAYS.take(3 * self.aside + self.cue, axis=0, mode="wrap"))

    def _observe(self) -> NDArray[np.uint8]:
        shape = (self.num_envs, *(self._space.shape or ()))
        return (self._kinds()[:, None] == PLANES).view(np.uint8).reshape(shape)

    def boards(self) -> NDArray[np.uint8]:
        kinds, world = self._kinds(), WORLD.take((self.at - self.aside)[:, None] + VIEW)
        shown = np.choose(kinds, [ord(" "), world, world, ord("Q"), ord("P")])
        return shown.astype(np.uint8).reshape(-1, *self.size)

    def _full_state(self) -> NDArray[np.float32]:
        row, column = np.divmod(self.at, STRIDE)
        due = np.where(self.next_event == NEVER, 0, self.next_event - self.t) / max(self._delay, self._limbo, 1)
        held = np.maximum(self.free_from - self.t, 0) / 3
        down, right = (np.sign(self.scroll) * (np.abs(self.scroll) == step) for step in (STRIDE, 1))
        place = row / (ROWS + 4), (column - MARGIN) / COLUMNS
        shares = (self.last_frame - self.t) / self._timeout, self.t / self._timeout
        seen = due, held, down, right, self.edge / COLUMNS
        return features(2 * self.goal_side - 1, one_hot(self.stage, 4), *place, *seen, *shares)

    def oracle(self) -> NDArray[Any]:
        column = self.at % STRIDE - MARGIN
        way = self._way[self.goal_side, column]
        if self._limbo:
            return np.where(self.stage < IN_LIMBO, UP, way)
        # The teleporter keeps the column, so the waiting time is good for a first step to the side.
        aside = (self.stage == CLOSED) & (column == ENTRANCE)
        return np.where(aside, LEFT + self.goal_side, np.where(self.stage < IN_LIMBO, UP, way))

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Up in the room. In the maze down where there is no wall, else towards the cue, to the left without one."""
        side = np.where(self.cue == 1, RIGHT, LEFT)
        way = np.where(IS_WALL.take(self.at + STRIDE), side, DOWN)
        return np.where(self.stage < IN_LIMBO, UP, way)

    def episode_steps(self) -> tuple[int, int]:
        used = max(self._delay - 1, 2 if self._limbo else 3)  # the teleporter, without limbo after a step to the side
        arrives = used + max(self._limbo, 1) + 1 + min(self._way_steps) - (not self._limbo)
        return min(arrives + 2, self._timeout), self._timeout
