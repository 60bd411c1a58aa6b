"""The tasks with dials, held to players and simulators of their own, which know nothing but the rule cards."""

import numpy as np
import pytest
from rlmem_envs.dials.color_cubes import ColorCubes
from rlmem_envs.dials.copy import Copy
from rlmem_envs.dials.endless_tmaze import FORWARD, LEFT, RIGHT, EndlessTMaze
from rlmem_envs.registration import make

from rlmem.config.compose import load
from rlmem.run.nodes import make_env

# A player reads an episode slot by slot, in plain Python, and returns its answer; None where nothing is asked.


def copy(symbols, **rest):
    held = []

    def read(seen):
        if seen < symbols:
            held.append(seen)
        return held.pop(0) if seen == symbols + 1 else None

    return read


def n_back(items, symbols, **rest):
    letters = []

    def read(seen):
        if seen >= symbols:
            return None
        letters.append(seen)
        return letters[-1 - items] if len(letters) > items else None

    return read


def associative_recall(items, values, **rest):
    table = {}

    def read(seen):
        key, value = seen
        if value < values:
            table[key] = value
        return table[key] if key < items and value == values else None

    return read


def counting(items, **rest):
    counts = [0] * items

    def read(seen):
        if seen < items:
            counts[seen] += 1
        if not items <= seen < 2 * items:
            return None
        answer, counts[seen - items] = counts[seen - items], 0
        return answer

    return read


def memory_demand(symbols, lags, items=None, delay=None, **rest):
    letters, back = [], lags or range(delay, delay + items)

    def read(seen):
        letters.append(seen)
        return sum(letters[-1 - lag] for lag in back) % symbols if len(letters) > max(back) else None

    return read


CASES = [
    ("Copy", copy, {"items": 3, "delay": 2, "rewrites": 0}),
    ("Copy", copy, {"items": 1, "delay": 0, "rewrites": 4, "symbols": 7}),
    ("NBack", n_back, {"items": 1, "delay": 0, "rewrites": 0}),
    ("NBack", n_back, {"items": 3, "delay": 2, "rewrites": 5, "symbols": 2}),
    ("AssociativeRecall", associative_recall, {"items": 1, "rewrites": 3, "delay": 2}),
    ("AssociativeRecall", associative_recall, {"items": 5, "rewrites": 4, "values": 9}),
    ("Counting", counting, {"items": 1, "delay": 0, "rewrites": 2}),
    ("Counting", counting, {"items": 3, "delay": 4, "rewrites": 1, "most": 2}),
    ("MemoryDemand", memory_demand, {"items": 1, "delay": 0, "rewrites": 3}),
    ("MemoryDemand", memory_demand, {"items": 3, "delay": 2, "rewrites": 6, "symbols": 3}),
    ("MemoryDemand", memory_demand, {"lags": [0, 5], "rewrites": 6}),
]
every_case = pytest.mark.parametrize(("task", "player", "dials"), CASES)


@every_case
def test_a_player_with_memory_gets_everything(task, player, dials):
    """It is asked as often as the card says, earns 1, and answers as the oracle does."""
    env = make(task, 6, **dials)
    obs, _ = env.reset(seed=3)
    for _ in range(2):
        players, total, asked, over = [player(**env.params) for _ in range(6)], 0, 0, False
        while not over:
            answers = [read(seen) for read, seen in zip(players, obs.tolist(), strict=True)]
            assert [answer is not None for answer in answers] == env.asked().tolist()
            actions = np.array([answer or 0 for answer in answers])
            np.testing.assert_array_equal(actions[env.asked()], env.oracle()[env.asked()])
            asked += env.asked()[0]
            obs, reward, terminated, truncated, _ = env.step(actions)
            total, over = total + reward, terminated.all()
            assert terminated.any() == over and not truncated.any()
        np.testing.assert_allclose(total, 1)
        assert asked * env._pay.max() == pytest.approx(1)
        obs, *_ = env.step(actions)  # the slot after the last action; the next episode begins


@every_case
def test_streams_have_the_same_episodes_for_every_number_of_rows_and_window(task, player, dials):
    many, few, cut = (make(task, 1, **dials).stream(*given, seed=5) for given in ((9, 70), (4, 70), (9, 10)))
    batch = many.next()
    for a, b, c in zip(batch, few.next(), zip(*(cut.next() for _ in range(7)), strict=True), strict=True):
        np.testing.assert_array_equal(a[:4], b)
        np.testing.assert_array_equal(a, np.concatenate(c, 1))
    read, params = None, make(task, 1, **dials).params
    for row in range(9):
        for slot in range(70):
            if batch.start[row, slot]:
                read = player(**params)
            answer = read(batch.symbols[row, slot].tolist()) if read and batch.start[row, : slot + 1].any() else None
            assert (answer is not None) == batch.mask[row, slot]
            assert answer is None or answer == batch.label[row, slot]
        read = None
    assert batch.mask.any() and len({tuple(starts) for starts in batch.start}) > 1  # rows are not in step


def test_a_stream_goes_on_from_its_state():
    one, other = (Copy(1, items=2, delay=3).stream(5, 12, seed) for seed in (1, 2))
    one.next()
    saved = one.state()
    expected = [one.next() for _ in range(3)]
    other.restore(saved)
    for a, b in zip(expected, (other.next() for _ in range(3)), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


class Corridors:
    """The maze of one player, by the rule card."""

    def __init__(self, cues, lengths, longest, wrong=-1.0, penalty=-0.01):
        self.cues, self.lengths, self.longest, self.wrong, self.penalty = cues, lengths, longest, wrong, penalty
        self.number = self.x = self.steps = 0

    def seen(self):
        cue = self.cues[self.number] if self.x == 0 and self.number < len(self.cues) else None
        return [np.float32(self.x / self.longest), cue == 0, cue == 1]

    def act(self, action):
        self.steps += 1
        if self.x < self.lengths[self.number]:
            self.x += action == FORWARD
            out_of_time = self.steps == 6 * (self.longest + 1) * len(self.cues)
            return 0 if action == FORWARD else self.penalty, False, out_of_time
        if action != (LEFT if self.cues[self.number] == 0 else RIGHT):
            return self.wrong, True, False
        self.number += 1
        done = self.number == len(self.cues)
        self.x = self.x if done else 0
        return 1, done, not done and self.steps == 6 * (self.longest + 1) * len(self.cues)


@pytest.mark.parametrize(("skill", "lengths"), [(0.9, "fixed"), (0.9, "uniform"), (0.05, "uniform")])
def test_an_endless_tmaze_keeps_its_rules(skill, lengths):
    """Random steps, mixed with as many of the oracle as it takes to come far; players without skill run out of time."""
    env, rng = EndlessTMaze(40, corridor_length=3, num_corridors=4, lengths=lengths), np.random.default_rng(0)
    obs, _ = env.reset(seed=1)
    mazes = [
        Corridors(*facts, 3) for facts in zip(env.cues[:, :-1].tolist(), env.corridors[:, :-1].tolist(), strict=True)
    ]
    running, ends = np.ones(40, bool), []
    while running.any():
        for i in np.flatnonzero(running):
            np.testing.assert_array_equal(obs[i], mazes[i].seen())
        lazy = rng.integers(LEFT, RIGHT + 1, 40) if skill < 0.5 else rng.integers(0, 3, 40)
        idle = np.where(env._here()[1], env.oracle(), lazy)  # never wrong at a junction, else it would end early
        actions = np.where(rng.uniform(size=40) < skill, env.oracle(), idle if skill < 0.5 else lazy)
        obs, reward, terminated, truncated, infos = env.step(actions)
        for i in np.flatnonzero(running):
            assert (reward[i], terminated[i], truncated[i]) == mazes[i].act(actions[i])
            if terminated[i] or truncated[i]:
                assert infos["success"][i] == (mazes[i].number == 4)
                ends.append((bool(terminated[i]), bool(infos["success"][i])))
        running &= ~(terminated | truncated)
    assert len(set(ends)) > 1, "the test saw one kind of end only"
    assert skill > 0.5 or (False, False) in ends


class Board:
    """The cubes of one player, by the rule card."""

    def __init__(self, size, cells, targets, teleport, coloured):
        self.size, self.teleport, self.coloured = size, teleport, coloured
        self.cubes, self.player, self.targets = list(cells[:-1]), cells[-1], list(targets)
        self.got = self.steps = 0
        self.moved = True

    def seen(self):
        place = lambda cell: [cell // self.size / (self.size - 1), cell % self.size / (self.size - 1)]  # noqa: E731
        n = len(self.cubes)
        wanted = [colour == self.targets[self.got] for colour in range(n)]
        coloured = self.moved and (self.coloured or self.steps == 0)
        order = self.cubes if coloured else sorted(self.cubes)
        shown = [number for cell in order for number in place(cell)] if self.moved else [0] * (2 * n)
        return place(self.player), wanted, [self.moved, coloured], shown

    def jump(self, cube, luck):
        taken = {*self.cubes, self.player}
        free = [cell for cell in range(self.size**2) if cell not in taken]
        self.cubes[cube] = free[int(luck * len(free))]

    def act(self, action, luck):
        self.steps += 1
        row, column = divmod(self.player, self.size)
        down, right = [(-1, 0), (1, 0), (0, -1), (0, 1)][action]
        row, column = row + down, column + right
        row, column = (min(max(number, 0), self.size - 1) for number in (row, column))
        self.player, wanted = row * self.size + column, self.targets[self.got]
        caught = self.cubes[wanted] == self.player
        others = [(wanted + 1 + k) % len(self.cubes) for k in range(len(self.cubes) - 1)]
        self.moved = caught or bool(others and luck[0] < self.teleport)
        if caught:
            self.jump(wanted, luck[2])
            self.got += 1
        elif self.moved:
            self.jump(others[int(luck[1] * len(others))], luck[2])
        done = self.got == len(self.targets)
        return float(caught), done, not done and self.steps == 2 * (self.size - 1) * len(self.targets)


@pytest.mark.parametrize("dials", [{"num_cubes": 1, "num_targets": 2}, {"updates": "positions"}, {"teleport": 0.7}])
def test_color_cubes_keep_their_rules(dials):
    env, rng = ColorCubes(30, size=4, **dials), np.random.default_rng(0)
    luck = rng.uniform(size=(30, 200, 3))
    obs, _ = env.reset(seed=1, options={"hidden": {"luck": luck}})
    teleport, coloured = env.params["teleport"], env.params["updates"] == "full"
    boards = [
        Board(4, [*cubes, player], targets, teleport, coloured)
        for cubes, player, targets in zip(
            env.cubes.tolist(), env.player.tolist(), env.targets[:, :-1].tolist(), strict=True
        )
    ]
    running, ends = np.ones(30, bool), set()
    while running.any():
        for i in np.flatnonzero(running):
            own, wanted, flags, shown = boards[i].seen()
            np.testing.assert_array_equal(obs[i], np.float32([*own, *wanted, *flags, *shown]))
        actions = np.where(rng.uniform(size=30) < 0.7, env.oracle(), rng.integers(0, 4, 30))
        step = [board.steps for board in boards]
        obs, reward, terminated, truncated, _ = env.step(actions)
        for i in np.flatnonzero(running):
            assert (reward[i], terminated[i], truncated[i]) == boards[i].act(actions[i], luck[i, step[i]])
            ends.add((bool(terminated[i]), bool(truncated[i])))
        running &= ~(terminated | truncated)
    assert {(True, False), (False, True)} <= ends


def test_an_order_that_is_none_is_refused():
    env = make("AssociativeRecall", 1, items=2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="`order` is no order of the keys"):
        env.reset(options={"hidden": {"order": [[0, 0]]}})


@every_case
def test_the_full_state_has_the_due_answer_and_all_that_comes_later_ones(task, player, dials):
    """Episodes that have the same full state from some slot on, and see the same, are asked for the same."""
    env = make(task, 400, **{**dials, "privileged": True})
    answers = env.single_action_space.n
    obs, _ = env.reset(seed=2)
    later = {}  # (slot, full state) -> what was seen and asked for afterwards
    states, trace = [], []
    over = False
    while not over:
        assert env.observation_space.contains(obs)
        due = obs["privileged"][:, :answers]
        asked = env.asked()
        np.testing.assert_array_equal(due.argmax(1)[asked], env.oracle()[asked])
        assert (due.sum(1) == asked).all()
        states.append(obs["privileged"].copy())
        trace.append((obs["observation"].copy(), np.where(asked, env.oracle(), -1)))
        obs, _, terminated, _, _ = env.step(env.oracle())
        over = terminated.all()
    for t in range(len(states) - 1):
        for i in range(400):
            seen = np.concatenate([np.ravel(obs[i]) for obs, _ in trace[t + 1 :]]).tobytes()
            wanted = [int(answer[i]) for _, answer in trace[t + 1 :]]
            assert later.setdefault((t, states[t][i].tobytes(), seen), wanted) == wanted


@pytest.mark.parametrize("name", ["copy", "parity"])
def test_tasks_that_can_be_read_are_played_in_as_many_copies_as_asked_for(name):
    assert make_env(load([f"env={name}"]), 3).num_envs == 3
