"""T-Maze: the side of the goal is seen once, far from the junction where it matters."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlmem_envs.core.batched import NOTHING, UNKNOWN, BatchedEnv, Facts, Horizons, Observe, Scores, Who

RIGHT, UP, LEFT, DOWN = range(4)
UNSEEN, IN_SIGHT, SEEN = range(3)


class TMaze(BatchedEnv):
    """Learn at one end of a corridor whether the goal lies up or down, and turn there at the other end.

    The corridor's cells are x = 0 .. o + L: x = 0 shows the goal, the walk begins at x = o, and x = o + L is the
    junction, with one more cell above (y = 1) and one below (y = -1). With o = 0 the goal is seen at the beginning
    (passive); otherwise one has to go back and see it (active). There are just enough steps for that.

    | | |
    |---|---|
    | observation | Box [2]: (0, goal_y) at the first visit of x = 0, (1, y) where x = o + L, else (0, 0) |
    | action | Discrete(4): right, up, left, down; into a wall one stays |
    | reward | steps t = 1 .. T - 1: `penalty` if behind time, x < t - o; step T: `goal_reward` if y = goal_y |
    | end | terminates after T = L + 2 o + 1 steps |
    | recall | L + o slots back |
    | hidden | `goal_y`: 1 or -1 |
    | oracle | `goal_reward`: it goes to see the goal at x = 0 and walks on without delay |
    | full state | Box [5]: x / (o + L), y, goal_y, whether the goal was seen, t / T |

    The goal shows for one step only, and to nobody who returns. To walk on without it and guess gets half the reward.

    corridor_length: L, steps from the start to the junction
    oracle_length: o, steps from the start to where the goal shows; 0: passive
    goal_reward: at the end, on the side of the goal
    penalty: for every step behind time; None: -1 / L
    distract_reward: for every step but the last that ends at x = 0; the oracle does not stay there for it
    ambiguous_position: False: the observation is (x, y, goal_y at the first visit of x = 0 or else 0)
    expose_goal: once seen, the goal stays in view; needs ambiguous_position=False, and no memory
    add_timestep: append the steps since the beginning to the observation
    privileged, observe: see `BatchedEnv`
    """

    tests = "one bit kept over the whole episode; active: also looking for it"
    source = "Ni et al. 2023 (arXiv:2307.03864), after Bakker 2001"
    returns = (-np.inf, 1.0)  # with the goal's reward that is set by default
    levels = {
        **{f"passive_{n}": {"corridor_length": n} for n in (50, 100, 250, 500, 750, 1000, 1250, 1500)},
        **{f"active_{n}": {"corridor_length": n, "oracle_length": 1} for n in (20, 50, 100, 250, 500)},
    }
    keys = {"d": RIGHT, "w": UP, "a": LEFT, "s": DOWN}

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        corridor_length: Annotated[int, Gt(0), Le(1_000_000)] = 50,
        oracle_length: Annotated[int, Ge(0), Le(1_000_000)] = 0,
        goal_reward: float = 1.0,
        penalty: Annotated[float, Le(0)] | None = None,
        distract_reward: float = 0.0,
        ambiguous_position: bool = True,
        expose_goal: bool = False,
        add_timestep: bool = False,
        privileged: bool = False,
        observe: Observe = "partial",
        **kwargs: Any,
    ):
        if penalty is not None and penalty > 0:
            raise ValueError(f"penalty={penalty}: expected at most 0, or None")
        if expose_goal and ambiguous_position:
            raise ValueError("expose_goal=True: expected together with ambiguous_position=False")
        self._start_x, self._end_x = oracle_length, oracle_length + corridor_length
        self._steps = corridor_length + 2 * oracle_length + 1
        self._goal_reward, self._distract_reward = goal_reward, distract_reward
        self._penalty = -1 / corridor_length if penalty is None else penalty
        self._tabulate(ambiguous_position, expose_goal)
        self._expose, self._timed = expose_goal, add_timestep
        params = {
            "corridor_length": corridor_length,
            "oracle_length": oracle_length,
            "goal_reward": goal_reward,
            "penalty": penalty,
            "distract_reward": distract_reward,
            "ambiguous_position": ambiguous_position,
            "expose_goal": expose_goal,
            "add_timestep": add_timestep,
        }
        low, high = self._looks.min(0), self._looks.max(0)
        if add_timestep:
            low, high = np.append(low, np.float32(0)), np.append(high, np.float32(self._steps))
        full = Box(-1, 1, (5,), np.float32)
        more: dict[str, Any] = {"privileged": privileged, "observe": observe, "full_space": full}
        super().__init__(num_envs, Box(low, high), Discrete(4), params, **more, **kwargs)
        self.place = np.zeros(num_envs, np.int64)

    def _tabulate(self, ambiguous_position: bool, expose_goal: bool) -> None:
        """The maze as an automaton: its state, a place, is (goal, UNSEEN | IN_SIGHT | SEEN, cell) as one number."""
        cells = self._end_x + 3  # the corridor to the junction, then the cells above and below
        junction, up, down = self._end_x + np.arange(3)
        to = np.arange(cells)[:, None].repeat(4, 1)  # [cells, actions]: by default one stays
        to[:junction, RIGHT] += 1
        to[1:up, LEFT] -= 1
        to[junction, [UP, DOWN]] = up, down
        to[up, DOWN] = to[down, UP] = junction
        goal, seen, cell = np.indices((2, 3, cells)).reshape(3, -1)  # of every place
        after = np.where(seen[:, None] == UNSEEN, np.where(to[cell] == 0, IN_SIGHT, UNSEEN), SEEN)
        self._moves = ((3 * goal[:, None] + after) * cells + to[cell]).ravel()  # [places, actions], flat
        self._goal_y, self._seen = 2 * goal - 1, seen
        self._x = np.minimum(cell, junction)
        self._y = 1 * (cell == up) - (cell == down)
        self._shown = self._goal_y * ((seen > UNSEEN) if expose_goal else (seen == IN_SIGHT) & (cell == 0))
        looks = (self._x == junction, self._y + self._shown) if ambiguous_position else (self._x, self._y, self._shown)
        self._looks = np.stack(looks, 1).astype(np.float32)  # [places, 2 or 3]

    @property
    def position(self) -> NDArray[np.int64]:
        """x and y of everybody [N, 2]."""
        return np.stack([self._x[self.place], self._y[self.place]], 1)

    def _draw(self, who: Who) -> Facts:
        return {"goal_y": 2 * self.draws.integers(who, 2) - 1}

    def _problem(self, facts: Facts) -> str | None:
        return None if np.isin(facts["goal_y"], (-1, 1)).all() else "`goal_y` is neither 1 nor -1"

    def _begin(self, who: Who, facts: Facts) -> None:
        self.place[who] = self._first_place(facts["goal_y"] > 0)

    def _first_place(self, goal: Any) -> Any:
        return (3 * goal + (IN_SIGHT if self._start_x == 0 else UNSEEN)) * (self._end_x + 3) + self._start_x

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        self.place = place = self._moves.take(4 * self.place + actions)
        x = self._x.take(place)
        rewards = np.where(x <= self.t - self._start_x, self._penalty, 0.0)  # x < t - o, if t counts this step as well
        if self._distract_reward:
            rewards += self._distract_reward * (x == 0)
        ends = self.t == self._steps - 1
        if ends.any():
            rewards = np.where(ends, self._goal_reward * self._success(), rewards)
        return rewards, ends, np.zeros(self.num_envs, bool)

    def _observe(self) -> NDArray[np.float32]:
        looks = self._looks.take(self.place, 0)
        return np.column_stack([looks, self.t.astype(np.float32)]) if self._timed else looks

    def _full_state(self) -> NDArray[np.float32]:
        x, y = self.position.T
        parts = x / self._end_x, y, self._goal_y[self.place], self._seen[self.place] > UNSEEN, self.t / self._steps
        return np.stack(parts, 1).astype(np.float32)

    def _success(self) -> NDArray[np.bool_]:
        return self._y.take(self.place) == self._goal_y.take(self.place)

    def oracle(self) -> NDArray[Any]:
        side = np.where(self._goal_y[self.place] == 1, UP, DOWN)
        return np.where(self._seen[self.place] == UNSEEN, LEFT, self._onwards(side))

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """Nothing at the junction says where the goal is: it walks on without delay and guesses there."""
        if self._expose:
            return self.oracle()
        y, guess = self._y[self.place], rng.choice([UP, DOWN], self.num_envs)
        return self._onwards(np.where(y == 0, guess, np.where(y == 1, UP, DOWN)))

    def _onwards(self, side: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(self._x[self.place] < self._end_x, RIGHT, side)

    def episode_steps(self) -> tuple[int, int]:
        return self._steps, self._steps

    def scores(self) -> Scores:
        if self.max_episode_steps is not None:
            return UNKNOWN
        oracle = self._goal_reward + self._distract_reward * (self._start_x > 0)
        memoryless = oracle if self._expose else self._goal_reward / 2
        return Scores(self._random_score(), memoryless, oracle)

    def _random_score(self) -> float:
        """What uniform actions earn, from the distribution over places at every step."""
        chances: Any = np.zeros(len(self._x))
        chances[[self._first_place(0), self._first_place(1)]] = 0.5
        score = 0.0
        for t in range(1, self._steps + 1):
            chances = np.bincount(self._moves, np.repeat(chances / 4, 4), len(chances))
            if t < self._steps:
                late = chances[self._x < t - self._start_x].sum()
                score += self._penalty * late + self._distract_reward * chances[self._x == 0].sum()
        return float(score + self._goal_reward * chances[self._y == self._goal_y].sum())

    def _first_use(self) -> int:
        return self._steps - 1

    def _horizons(self) -> Horizons:
        """From the first cell to the junction."""
        return NOTHING if self._expose else Horizons(self._end_x, self._end_x)

    def text(self, i: int) -> str:
        x, y = self.position[i]
        width = min(self._end_x, 40)  # a long corridor is drawn shorter
        lines = [[" "] * width + ["."], ["."] * (width + 1), [" "] * width + ["."]]
        lines[1][0] = "o"
        lines[1 - y][x * width // self._end_x] = "@"
        shown = self._shown[self.place[i]]
        goal = {1: "up", -1: "down", 0: "not in view"}[int(shown)]
        where = f"goal {goal}   x {x} of {self._end_x}   step {self.t[i]} of {self._steps}"
        return "\n".join(["".join(line).rstrip() for line in lines] + [where])
