"""Key-to-Door, from pixels."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Observe, Scores, Who
from rlmem_envs.pixels import board as on
from rlmem_envs.pixels.apple_game import AppleGame
from rlmem_envs.pixels.foraging import look_around
from rlmem_envs.pixels.levels import level

KEY_ROOM = (
    "  #######  ",
    "  #kkkkk#  ",
    "  #kkkkk#  ",
    "  ##   ##  ",
    "  #+++++#  ",
    "  #+++++#  ",
    "  #######  ",
)
DOOR_ROOMS = {
    "SR": (
        "           ",
        "   ##d##   ",
        "   #   #   ",
        "   # + #   ",
        "   #   #   ",
        "   #####   ",
        "           ",
    ),
    "CCA": (
        "  #######  ",
        "  #+++++#  ",
        "  #+++++#  ",
        "  ##   ##  ",
        "  #ddddd#  ",
        "  #ddddd#  ",
        "  #######  ",
    ),
}
MIDDLE = on.cell(np.array([3, 5]))
"""From here a player sees every place where a key or a door can be."""
LAMP = on.cell(np.array([0, 5]))
"""Where the picture tells that the key was taken."""


class KeyToDoor(AppleGame):
    """Take a key that pays nothing, pick apples for a long time, then open a door with the key.

    | | |
    |---|---|
    | observation | Box(0, 255, (3, 5, 5), uint8): the cells around the player, in colours; [75] if `flat` |
    | action | Discrete(4): north, south, west, east; walls block, and the door without the key |
    | reward | `apple_reward` for each apple; `final_reward` once, for entering the door with the key |
    | end | terminates after explore_frames + distractor_frames + reward_frames steps |
    | hidden | `explore_key_pos`, `explore_player_pos`, `door_pos`, `reward_player_pos` [2]: (row, column) of key and \
player in the first phase, of door and player in the last; `apple_layout` [7, 11]; `apple_reward_value` |
    | oracle | eats apples by a beam search over tours (no perfect play is known), takes the key and opens the door |
    | full state | Box [246]: phase, one-hot; shares of its steps and of all; reward of an apple; three boards of 77 \
cells: the player, where apples grow, how long until each is back (0 .. 1); (row, column) of key, door and \
last start as shares of the board; whether the key is held, the lamp is on, the door was opened |

    Phase 1: two rooms, a key in the upper, the player in the lower. In the picture after the key is taken a wall cell
    is white. Phase 2: a walled orchard of 7 x 11 cells, where apples grow on some of 22 places; one that is eaten is
    back more than `respawn_every` frames later. Phase 3: a room with a door (SR), or two rooms with a door somewhere in
    the lower (CCA). Success is a reward in phase 3. Nothing has to be remembered: whoever takes the key and goes to the
    door is paid. What is hard is to learn that taking the key, so much earlier, is what pays.

    explore_frames, distractor_frames, reward_frames: lengths of the phases
    num_apples: apples in the orchard
    apple_reward: of each apple, or the least and the greatest reward
    fix_apple_reward_in_episode: one of those two for a whole episode; else each apple's is uniform between them
    respawn_every: frames until an eaten apple is back, 0: never
    final_reward: of the door
    reward_grid: SR, a small room, or CCA, two rooms
    flat: observations without axes
    observe: see `BatchedEnv`
    """

    tests = "credit for an early act that pays only after a long distraction"
    source = "Memory-RL (Ni et al. 2023, arXiv:2307.03864), after Hung et al. 2019 (arXiv:1810.06721); SHM's lengths: \
Le et al. 2025 (arXiv:2410.10132)"
    levels = {
        "memory_rl_60": level(15, 60, 10, 5.0, reward_grid="SR"),
        "memory_rl_250": level(15, 250, 10, 5.0, reward_grid="SR"),
        "memory_rl_500": level(15, 500, 10, 5.0, reward_grid="SR"),
        "shm_100": level(10, 100, 3, 10.0, reward_grid="SR"),
        "shm_250": level(10, 250, 3, 10.0, reward_grid="SR"),
        "shm_500": level(10, 500, 3, 10.0, reward_grid="SR"),
        "cca_30": level(15, 30, 15, 5.0, reward_grid="CCA"),
    }
    _own_features = 6 + 3
    known = {  # 81,920, 40,960 and 20,480 episodes
        "memory_rl_60": Scores(random=5.546, memoryless=23.57, oracle=29.34),
        "memory_rl_250": Scores(random=22.01, memoryless=78.79, oracle=103.61),
        "memory_rl_500": Scores(random=43.65, memoryless=151.83, oracle=201.51),
        "shm_100": Scores(random=8.948, memoryless=40.02, oracle=49.82),
        "shm_250": Scores(random=21.92, memoryless=83.77, oracle=108.61),
        "shm_500": Scores(random=43.59, memoryless=156.82, oracle=206.51),
        "cca_30": Scores(random=2.890, memoryless=14.67, oracle=17.30),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        explore_frames: Annotated[int, Gt(0)] = 15,
        distractor_frames: Annotated[int, Ge(0)] = 60,
        reward_frames: Annotated[int, Gt(0)] = 10,
        num_apples: Annotated[int, Ge(0), Le(22)] = 10,
        apple_reward: float | tuple[float, float] = 1.0,
        fix_apple_reward_in_episode: bool = True,
        respawn_every: Annotated[int, Ge(0)] = 20,
        final_reward: Annotated[float, Gt(0)] = 5.0,
        reward_grid: Literal["SR", "CCA"] = "SR",
        flat: bool = False,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        frames = (explore_frames, distractor_frames, reward_frames)
        apples = (num_apples, apple_reward, fix_apple_reward_in_episode, respawn_every)
        rules = {"reward_grid": reward_grid}
        super().__init__(num_envs, frames, *apples, final_reward, flat, rules, observe=observe, **kwargs)
        rows = DOOR_ROOMS[reward_grid]
        self._keys, self._starts = on.places("k", *KEY_ROOM), on.places("+", *KEY_ROOM)
        self._doors, self._last_starts = on.places("d", *rows), on.places("+", *rows)
        self._first_room, self._last_room = on.board(*KEY_ROOM), on.board(*rows)
        self._ways = on.routes(self._first_room), on.routes(self._last_room)
        self.key = np.zeros(num_envs, np.int64)  # cells of key and door
        self.door = np.zeros(num_envs, np.int64)
        self.last_start = np.zeros(num_envs, np.int64)
        self.has_key = np.zeros(num_envs, bool)
        self.lamp = np.zeros(num_envs, bool)
        self.won = np.zeros(num_envs, bool)

    def _own_state(self) -> tuple[NDArray[Any], ...]:
        cells = np.stack([self.key, self.door, self.last_start], 1)
        return on.position(cells) / (on.ROWS, on.COLUMNS), self.has_key, self.lamp, self.won

    def _draw(self, who: Who) -> Facts:
        return {
            "explore_key_pos": self._keys[self.draws.integers(who, len(self._keys))],
            "explore_player_pos": self._starts[self.draws.integers(who, len(self._starts))],
            "door_pos": self._doors[self.draws.integers(who, len(self._doors))],
            "reward_player_pos": self._last_starts[self.draws.integers(who, len(self._last_starts))],
            **super()._draw(who),
        }

    def _explore(self, who: Who, facts: Facts) -> NDArray[np.uint8]:
        self.key[who], self.door[who] = on.cell(facts["explore_key_pos"]), on.cell(facts["door_pos"])
        self.player[who], self.last_start[who] = (
            on.cell(facts[f"{phase}_player_pos"]) for phase in ("explore", "reward")
        )
        self.has_key[who] = self.lamp[who] = self.won[who] = False
        boards = np.repeat(self._first_room[None], len(who), 0)
        boards[np.arange(len(who)), self.key[who]] = on.KEY
        return boards

    def _reward(self, who: Who) -> NDArray[np.uint8]:
        self.player[who] = self.last_start[who]
        self.lamp[who] = False
        boards = np.repeat(self._last_room[None], len(who), 0)
        boards[np.arange(len(who)), self.door[who]] = np.where(self.has_key[who], on.OPEN_DOOR, on.DOOR)
        return boards

    def _touch(self, here: NDArray[np.uint8], rewards: NDArray[np.float64]) -> None:
        if np.count_nonzero(self.lamp):
            self._paint(np.flatnonzero(self.lamp), LAMP, on.WALL)
            self.lamp[:] = False
        finders = (here == on.KEY).nonzero()[0]
        if finders.size:
            self._paint(finders, self.key[finders], on.BLANK)
            self._paint(finders, LAMP, on.INDICATOR)
            self.has_key[finders] = self.lamp[finders] = True
        opened = ((here == on.OPEN_DOOR) & self.has_key).nonzero()[0]
        if opened.size:
            rewards[opened] += self._final_reward
            self.has_key[opened], self.won[opened] = False, True

    def _success(self) -> NDArray[np.bool_]:
        return self.won

    def _observe(self) -> NDArray[np.uint8]:
        seen = super()._observe()
        if np.count_nonzero(self.won):
            who = np.flatnonzero(self.board.take(self._first_cell + self.player) == on.OPEN_DOOR)
            seen.reshape(self.num_envs, 3, -1)[who, :, on.CENTRE] = on.COLOURS[on.OPEN_DOOR]
        return seen

    def text(self, i: int) -> str:
        return super().text(i) + ("\nyou have the key" if self.has_key[i] else "")

    def oracle(self) -> NDArray[np.int64]:
        to_key = np.where(self.has_key, on.NORTH, self._ways[0][self.key, self.player])
        to_door = self._ways[1][self.door, self.player]
        return np.choose(self.chapter, [to_key, self._forage(), to_door])

    def memoryless(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Goes to what is in view: apple, key or door; else towards the middle of the rooms, where all is in view.

        In the rooms of the first and the last phase the walls in view tell where the player is.
        """
        window = self._in_view()
        picking = look_around(window, window == on.APPLE, rng)
        to_key = self._ways[0][np.where((window == on.KEY).any(1), self.key, MIDDLE), self.player]
        seen = ((window == on.DOOR) | (window == on.OPEN_DOOR)).any(1)
        to_door = self._ways[1][np.where(seen, self.door, MIDDLE), self.player]
        return np.choose(self.chapter, [to_key, picking, to_door])
