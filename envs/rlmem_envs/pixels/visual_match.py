"""Visual Match, from pixels."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Observe, Scores, Who
from rlmem_envs.core.columns import one_hot
from rlmem_envs.pixels import board as on
from rlmem_envs.pixels.apple_game import AppleGame
from rlmem_envs.pixels.foraging import look_around
from rlmem_envs.pixels.levels import level

Colours = Literal["episode", "fixed", "published"]

BOXED_IN = (
    "           ",
    "    ###    ",
    "    #+#    ",
    "    ###    ",
    "           ",
    "           ",
    "           ",
)
TWO_ROOMS = (
    "  #######  ",
    "  #     #  ",
    "  #     #  ",
    "  ##   ##  ",
    "  #+++++#  ",
    "  #+++++#  ",
    "  #######  ",
)
CHOICE = (
    "###########",
    "# b  c  e #",
    "#         #",
    "#         #",
    "####   ####",
    "   # + #   ",
    "   #####   ",
)
OBJECTS = on.cell(np.concatenate([on.places(letter, *CHOICE) for letter in "bce"]))
START = on.cell(on.places("+", *CHOICE))[0]


class VisualMatch(AppleGame):
    """See a colour, pick apples for a long time, then choose the object of that colour among three.

    | | |
    |---|---|
    | observation | Box(0, 255, (3, 5, 5), uint8): the cells around the player, in colours; [75] if `flat` |
    | action | Discrete(4): north, south, west, east; walls block |
    | reward | `apple_reward` for each apple; `final_reward` for touching the right object, 0 for another |
    | end | terminates after explore_frames + distractor_frames + reward_frames steps |
    | hidden | `target_symbol`: the right object, b, c or e as a character code; `colours` [3] of b, c and e: 0 red, \
1 green, 2 blue; `explore_target_pos`, `explore_player_pos` [2]: (row, column) of the coloured cell and the player in \
the first phase; `apple_layout` [7, 11]; `apple_reward_value` |
    | oracle | eats apples by a beam search over tours (no perfect play is known), touches the right object |
    | full state | Box [250]: phase, one-hot; shares of its steps and of all; reward of an apple; three boards of 77 \
cells: the player, where apples grow, how long until each is back (0 .. 1); the right object, and the \
colour of each, one-hot; whether objects are there |

    Phase 1: the player, boxed in by eight cells, sees one of them in the colour; in the active variant it walks in the
    lower of two rooms, and one cell of their walls has it. Phase 2: a walled orchard of 7 x 11 cells, where apples grow
    on some of 22 places; one that is eaten is back more than `respawn_every` frames later. Phase 3: the objects stand
    at (1, 2), (1, 5) and (1, 8) of a room; the first touch makes all of them vanish. Success is a reward in phase 3.
    Without memory a player can touch an object whatever its colour is: success 1/3.

    explore_frames, distractor_frames, reward_frames: lengths of the phases
    num_apples: apples in the orchard
    apple_reward: of each apple, or the least and the greatest reward
    fix_apple_reward_in_episode: one of those two for a whole episode; else each apple's is uniform between them
    respawn_every: frames until an eaten apple is back, 0: never
    final_reward: of the right object
    passive: the first phase boxes the player in
    colours: whether the objects get their colours anew in each episode, always have the same (red, green, blue), or
        keep those of the environment's first episode, which is how they were published: training and evaluation then
        have different ones
    flat: observations without axes
    observe: see `BatchedEnv`
    """

    tests = "recall of one colour over a long distraction that pays"
    source = "Memory-RL (Ni et al. 2023, arXiv:2307.03864), after Hung et al. 2019 (arXiv:1810.06721); SHM's lengths: \
Le et al. 2025 (arXiv:2410.10132)"
    levels = {
        "memory_rl_60": level(15, 60, 15, 5.0, passive=True, colours="episode"),
        "memory_rl_250": level(15, 250, 15, 5.0, passive=True, colours="episode"),
        "memory_rl_500": level(15, 500, 15, 5.0, passive=True, colours="episode"),
        "shm_100": level(15, 100, 10, 10.0, passive=True, colours="episode"),
        "shm_250": level(15, 250, 10, 10.0, passive=True, colours="episode"),
        "shm_500": level(15, 500, 10, 10.0, passive=True, colours="episode"),
        "active_60": level(15, 60, 15, 5.0, passive=False, colours="episode"),
    }
    _own_features = 3 + 9 + 1
    known = {  # 81,920, 40,960 and 20,480 episodes
        "memory_rl_60": Scores(random=5.706, memoryless=20.19, oracle=29.34),
        "memory_rl_250": Scores(random=22.12, memoryless=75.39, oracle=103.61),
        "memory_rl_500": Scores(random=43.76, memoryless=148.31, oracle=201.51),
        "shm_100": Scores(random=9.112, memoryless=33.33, oracle=49.82),
        "shm_250": Scores(random=22.08, memoryless=77.08, oracle=108.61),
        "shm_500": Scores(random=43.73, memoryless=150.02, oracle=206.51),
        "active_60": Scores(random=5.706, memoryless=20.19, oracle=29.34),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        explore_frames: Annotated[int, Gt(0)] = 15,
        distractor_frames: Annotated[int, Ge(0)] = 60,
        reward_frames: Annotated[int, Gt(0)] = 15,
        num_apples: Annotated[int, Ge(0), Le(22)] = 10,
        apple_reward: float | tuple[float, float] = 1.0,
        fix_apple_reward_in_episode: bool = True,
        respawn_every: Annotated[int, Ge(0)] = 20,
        final_reward: Annotated[float, Gt(0)] = 5.0,
        passive: bool = True,
        colours: Colours = "episode",
        flat: bool = False,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        rules = {"passive": passive, "colours": colours}
        frames = (explore_frames, distractor_frames, reward_frames)
        apples = (num_apples, apple_reward, fix_apple_reward_in_episode, respawn_every)
        super().__init__(num_envs, frames, *apples, final_reward, flat, rules, observe=observe, **kwargs)
        rows = BOXED_IN if passive else TWO_ROOMS
        self._starts, self._signs, self._room = on.places("+", *rows), on.places("#", *rows), on.board(*rows)
        self._choice = on.board(*CHOICE)
        self._colours_of = colours
        self.target = np.zeros(num_envs, np.int64)  # number of the right symbol
        self.colours = np.zeros((num_envs, 3), np.int64)
        self.won = np.zeros(num_envs, bool)

    def _own_state(self) -> tuple[NDArray[Any], ...]:
        there = self.board[:, OBJECTS[0]] >= on.OBJECT
        return one_hot(self.target, 3), one_hot(self.colours, 3), there & (self.chapter == 2)

    def _draw(self, who: Who) -> Facts:
        colours = self.draws.permutation(who, 3)
        if self._colours_of == "fixed":
            colours[:] = np.arange(3)
        elif self._colours_of == "published":
            colours = np.where(self.draws.episode[who, None] == 0, colours, self.colours[who])
        return {
            "target_symbol": on.SYMBOLS[self.draws.integers(who, 3)],
            "explore_target_pos": self._signs[self.draws.integers(who, len(self._signs))],
            "explore_player_pos": self._starts[self.draws.integers(who, len(self._starts))],
            "colours": colours,
            **super()._draw(who),
        }

    def _problem(self, facts: Facts) -> str | None:
        if not np.isin(facts["target_symbol"], on.SYMBOLS).all():
            return f"`target_symbol` is none of {', '.join(str(code) for code in on.SYMBOLS)}"
        if not ((facts["colours"] >= 0) & (facts["colours"] < 3)).all():
            return "`colours` is not within 0 .. 2"
        return super()._problem(facts)

    def _explore(self, who: Who, facts: Facts) -> NDArray[np.uint8]:
        self.target[who] = np.searchsorted(on.SYMBOLS, facts["target_symbol"])
        self.colours[who] = facts["colours"]
        self.won[who] = False
        self.player[who] = on.cell(facts["explore_player_pos"])
        boards = np.repeat(self._room[None], len(who), 0)
        sign = on.SIGN + 3 * self.target[who] + self.colours[who, self.target[who]]
        boards[np.arange(len(who)), on.cell(facts["explore_target_pos"])] = sign
        return boards

    def _reward(self, who: Who) -> NDArray[np.uint8]:
        self.player[who] = START
        boards = np.repeat(self._choice[None], len(who), 0)
        boards[:, OBJECTS] = on.OBJECT + 3 * np.arange(3) + self.colours[who]
        return boards

    def _touch(self, here: NDArray[np.uint8], rewards: NDArray[np.float64]) -> None:
        who = (here >= on.OBJECT).nonzero()[0]
        if who.size:
            self.won[who] = (here[who] - on.OBJECT) // 3 == self.target[who]
            rewards[who] += self._final_reward * self.won[who]
            self._paint(who[:, None], OBJECTS, on.BLANK)

    def _success(self) -> NDArray[np.bool_]:
        return self.won

    def oracle(self) -> NDArray[np.int64]:
        choosing = WAYS[self.target, self.player]
        return np.where(self.chapter == 1, self._forage(), np.where(self.chapter == 2, choosing, on.NORTH))

    def memoryless(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Goes to the nearest apple or object in view, and otherwise where no wall is in view."""
        window = self._in_view()
        return look_around(window, (window == on.APPLE) | (window >= on.OBJECT) & (window < on.SIGN), rng)


def _ways() -> NDArray[np.int64]:
    """[symbol, cell]: how to get to an object without touching another."""
    routes = []
    for symbol, goal in enumerate(OBJECTS):
        codes = on.board(*CHOICE)
        codes[np.delete(OBJECTS, symbol)] = on.WALL
        routes.append(on.routes(codes)[goal])
    return np.stack(routes)


WAYS = _ways()
