"""Decision processes that everyone knows."""

import itertools

import numpy as np

from rlmem_envs.pomdp.cassandra import parse
from rlmem_envs.pomdp.model import Model

TIGER = """
discount: 0.95
values: reward
states: tiger-left tiger-right
actions: listen open-left open-right
observations: hear-left hear-right
start: uniform
T: listen identity
T: open-left uniform
T: open-right uniform
O: listen
0.85 0.15
0.15 0.85
O: open-left uniform
O: open-right uniform
R: listen : * : * : * -1
R: open-left : tiger-left : * : * -100
R: open-left : tiger-right : * : * 10
R: open-right : tiger-left : * : * 10
R: open-right : tiger-right : * : * -100
"""

SUCCEEDS, SEES, MISTAKES = 0.8, 0.9, 0.05
NORTH, EAST, SOUTH, WEST = range(4)
STEP = {NORTH: (-1, 0), EAST: (0, 1), SOUTH: (1, 0), WEST: (0, -1)}


def tiger() -> Model:
    """The tiger problem (Kaelbling et al. 1998): a tiger is behind one of two doors; listen, or open one.

    After a door was opened, the tiger is put behind a door anew, and the play goes on.
    """
    return parse(TIGER, "tiger")


def hallway() -> Model:
    """Hallway (Littman et al. 1995): find the fourth room off a corridor, by walls that are seen unreliably.

    A corridor of 11 cells from west to east, with rooms south of the cells 2, 4, 6 and 8; the last is the goal, where
    the episode ends with a reward of 1. A state is a cell and a heading. An action (forward, right, left, around) does
    what it says with probability 0.8, and what each of the others does with 0.05; stay always stays. Walls in front,
    to the right, behind and to the left are seen with 0.9 where there is one, and with 0.05 where there is none; facing
    south in one of the other rooms shows its own landmark instead. All states but the goal are as likely at first.

    The layout and the probabilities are those of the paper and of later implementations; Cassandra's file, which
    numbers four states of the goal, was not compared.
    """
    cells = [(0, x) for x in range(11)] + [(1, x) for x in (2, 4, 6)]
    goal = (1, 8)
    places = [(cell, heading) for cell in cells for heading in range(4)]
    number = {place: i for i, place in enumerate(places)}
    G = len(places)
    open_cells = {*cells, goal}
    neighbour = lambda cell, heading: (cell[0] + STEP[heading][0], cell[1] + STEP[heading][1])  # noqa: E731

    def moved(cell: tuple[int, int], heading: int, action: str) -> int:
        if action == "forward":
            there = neighbour(cell, heading)
            return G if there == goal else number[there if there in open_cells else cell, heading]
        turn = {"stay": 0, "right": 1, "around": 2, "left": 3}[action]
        return number[cell, (heading + turn) % 4]

    actions = ("stay", "forward", "right", "left", "around")
    T = np.zeros((len(actions), G + 1, G + 1))
    T[:, G, G] = 1
    for (cell, heading), s in number.items():
        for a, action in enumerate(actions):
            for b, other in enumerate(actions):
                chance = float(a == b) if action == "stay" else SUCCEEDS if a == b else (1 - SUCCEEDS) / 4
                T[a, s, moved(cell, heading, other)] += chance
    walls = list(itertools.product((0, 1), repeat=4))
    observations = (*("walls-" + "".join(map(str, seen)) for seen in walls), "first", "second", "third", "goal")
    Z = np.zeros((G + 1, len(observations)))
    Z[G, -1] = 1
    for (cell, heading), s in number.items():
        if cell[0] == 1 and heading == SOUTH:
            Z[s, len(walls) + (2, 4, 6).index(cell[1])] = 1
            continue
        there = [neighbour(cell, (heading + turn) % 4) not in open_cells for turn in range(4)]
        for o, seen in enumerate(walls):
            chances = [SEES if wall else MISTAKES for wall in there]
            Z[s, o] = np.prod([p if shown else 1 - p for p, shown in zip(chances, seen, strict=True)])
    states = (*(f"{row}-{x}-{'nesw'[heading]}" for (row, x), heading in places), "goal")
    start = np.append(np.full(G, 1 / G), 0)
    R = np.zeros((len(actions), G + 1, G + 1, 1))
    R[:, :G, G] = 1
    ends = np.arange(G + 1) == G
    return Model(states, actions, observations, 0.95, start, T, np.tile(Z, (len(actions), 1, 1)), R, ends)


SIZE, ROCKS, BEGIN = 4, ((3, 1), (2, 1), (1, 3), (1, 0)), (0, 2)
HALF_EFFICIENCY = 20.0


def rock_sample() -> Model:
    """RockSample[4,4] (Smith and Simmons 2004): a rover that must find out which of four rocks are worth taking.

    A grid of 4 x 4 cells (x, y), y downwards, with rocks at (3, 1), (2, 1), (1, 3) and (1, 0). The rover begins at
    (0, 2); each rock is good or bad, equally likely. North, south and west move it, if there is a cell; east beyond the
    grid ends the episode with a reward of 10. `sample` takes the rock that is here: 10 for a good one, which is bad
    from then on, and -10 for a bad one; without a rock it does nothing. `check-i` tells whether rock i is good, rightly
    with probability (1 + 2^(-d / 20)) / 2 at a distance of d. Where the rover is, is seen at all times.

    The rules are those of the paper, which has no map; the map is that of its authors' solver, whose optimal value,
    18.04 at a discount of 0.95, ours reaches (tests/test_pomdp.py).
    """
    cells = list(itertools.product(range(SIZE), repeat=2))
    qualities = list(itertools.product((0, 1), repeat=len(ROCKS)))
    number = {state: s for s, state in enumerate(itertools.product(cells, qualities))}
    G = len(number)
    moves = {"north": (0, -1), "east": (1, 0), "south": (0, 1), "west": (-1, 0)}
    actions = (*moves, "sample", *(f"check-{i}" for i in range(len(ROCKS))))
    readings = ("", "-good", "-bad")
    observations = (*(f"{x}-{y}{reading}" for x, y in cells for reading in readings), "gone")
    T, R = np.zeros((len(actions), G + 1, G + 1)), np.zeros((len(actions), G + 1, G + 1, 1))
    Z = np.zeros((len(actions), G + 1, len(observations)))
    T[:, G, G], Z[:, G, -1] = 1, 1
    for (cell, rocks), s in number.items():
        shown = len(readings) * cells.index(cell)
        for a, action in enumerate(actions):
            there, left = cell, list(rocks)
            if action in moves:
                there = (cell[0] + moves[action][0], cell[1] + moves[action][1])
            elif action == "sample" and cell in ROCKS:
                R[a, s] = 10 if rocks[ROCKS.index(cell)] else -10
                left[ROCKS.index(cell)] = 0
            out = there[0] == SIZE
            if out:
                R[a, s] = 10
            T[a, s, G if out else number[there if there in cells else cell, tuple(left)]] = 1
            if a < len(moves) + 1:
                Z[a, s, shown] = 1
                continue
            rock = a - len(moves) - 1
            right = (1 + 2 ** (-np.hypot(*np.subtract(cell, ROCKS[rock])) / HALF_EFFICIENCY)) / 2
            Z[a, s, shown + 1 : shown + 3] = (right, 1 - right) if rocks[rock] else (1 - right, right)
    start = np.zeros(G + 1)
    start[[number[BEGIN, rocks] for rocks in qualities]] = 1 / len(qualities)
    states = (*("-".join(map(str, (*cell, "".join(map(str, rocks))))) for cell, rocks in number), "gone")
    return Model(states, actions, observations, 0.95, start, T, Z, R, np.arange(G + 1) == G)


ACROSS = 8
COLOURS = ("orange", "yellow", "red", "blue", "green", "white")


def compass_world() -> Model:
    """Compass World (Rafols et al. 2005), with a goal: find the green spot of the wall by colours seen up close.

    A room of 8 x 8 cells. The north wall is orange, the east wall yellow, the south wall red, the west wall blue, but
    green beside the topmost row. Who stands at a wall and faces it sees its colour, and white everywhere else. Actions:
    forward, turn right, turn left. Facing the green spot ends the episode with a reward of 1. All other states are as
    likely at first. Nothing but the start is random.
    """
    places = list(itertools.product(range(ACROSS), range(ACROSS), range(4)))
    number = {place: s for s, place in enumerate(places)}
    actions = ("forward", "right", "left")
    T = np.zeros((len(actions), len(places), len(places)))
    Z = np.zeros((len(places), len(COLOURS)))
    goal = number[0, 0, WEST]
    for (row, x, heading), s in number.items():
        ahead = row + STEP[heading][0], x + STEP[heading][1]
        faces_wall = not (0 <= ahead[0] < ACROSS and 0 <= ahead[1] < ACROSS)
        Z[s, COLOURS.index("green") if s == goal else heading if faces_wall else COLOURS.index("white")] = 1
        T[0, s, s if faces_wall else number[(*ahead, heading)]] = 1
        T[1, s, number[row, x, (heading + 1) % 4]] = 1
        T[2, s, number[row, x, (heading - 1) % 4]] = 1
    ends = np.arange(len(places)) == goal
    T[:, goal] = np.eye(len(places))[goal]
    R = np.zeros((len(actions), len(places), len(places), 1))
    R[:, ~ends, goal] = 1
    states = tuple(f"{row}-{x}-{'nesw'[heading]}" for row, x, heading in places)
    start = ~ends / (~ends).sum()
    return Model(states, actions, COLOURS, 0.95, start, T, np.tile(Z, (len(actions), 1, 1)), R, ends)


MODELS = {"tiger": tiger, "hallway": hallway, "rock_sample": rock_sample, "compass_world": compass_world}
